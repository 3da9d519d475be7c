"""Signing keys of tests, and sets signed with them as firmware/release.py describes it.

Knows RSASSA-PKCS1-v1_5 (RFC 8017) and the form of an envelope. Must not know the firmware's code:
that is tested by it. The keys were made for these tests; nothing else trusts them.
"""

import hashlib
import json
from binascii import hexlify

BYTES = 384
_SHA256 = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
PROJECT = "umqtt_min"


class Key:
    """An RSA key: primes p and q, and the exponents dp and dq that undo 65537; hexadecimal."""

    def __init__(self, p, q, dp, dq):
        self._p, self._q = int(p, 16), int(q, 16)
        self._dp, self._dq = int(dp, 16), int(dq, 16)
        self._inverse = pow(self._q, self._p - 2, self._p)
        self.modulus = (self._p * self._q).to_bytes(BYTES, "big")
        self.print = hexlify(hashlib.sha256(self.modulus).digest()).decode()

    def sign(self, message):
        """The signature of bytes, BYTES bytes."""
        tail = b"\x00" + _SHA256 + hashlib.sha256(message).digest()
        return self.raw(b"\x00\x01" + b"\xff" * (BYTES - 2 - len(tail)) + tail)

    def raw(self, block):
        """The signature of a block of BYTES bytes, whatever is in it."""
        # RFC 8017, section 5.1.2, step 2b: four times as quick as with the private exponent.
        m = int.from_bytes(block, "big")
        one, two = pow(m, self._dp, self._p), pow(m, self._dq, self._q)
        h = (one - two) * self._inverse % self._p
        return (two + self._q * h).to_bytes(BYTES, "big")


def manifest(made, **change):
    """The manifest of an ota_kit.Set as the holder of a key would make it, bytes."""
    body = made.body
    said = {"project": PROJECT, "board": "", "chip": "", "version": body["version"],
            "security": 1, "expires": 0, "sha": body["sha"], "size": len(made.run),
            "index": body["index"], "mpy": body["mpy"], "loader": body["loader"],
            "files": "00" * 32}  # fmt: skip
    said.update(change)
    return json.dumps({key: value for key, value in said.items() if value is not None}).encode()


def signed(made, key, text=None, **change):
    """Sign an ota_kit.Set; returns it. text: the manifest when it is not to be made here."""
    text = manifest(made, **change) if text is None else text
    made.seal(key.modulus + key.sign(text) + text)
    return made


FIRST = Key(
    "d3a074bfb5a69f1e671b95de3e471b03142cd7a51a29e04b257bdb8831c45a8ad25bcc18d2451879413ed5a9"
    "917fd2dd3298669542402ae78ea90944a1e52aaa370aabfb6938238621fa4aef1fa6fdc5bf6977d3e91e7304"
    "b85b14f94cb8bc60c61f3d6ec2a31e6f39f81cef7bf517404a97643e470466358d6d9d21d80783609a535171"
    "6ee93125ea7fc5baef62fedc048bd69c5c8cb485ae0d5e49ecf2e02e3c29369b80a68ac158f3cf30156e8a54"
    "846119c620d20367d31ca97f61b3c8d3",
    "ba7dfe0368f2918630e142ceb0da8a0c7fa10bec01107dec035dee9d1f201b0ada57eb0c622bae5cecfcb81e"
    "27ed09d1dbb13eb5d953acab7dcc424de7fd7f344a06a56f274ccf6f7bf732e96d846ae35f298fa7e25654bb"
    "b7503731ba49dd492f5abcd41e55bf72be58fa53a8fcbc51d6417133d22e59d11d3b47134aeff9a41c431b19"
    "3580bc68abbf3638d097bbba609e6df992092bfbdca34931508973d9e164be4e4a7777d0cd1806f46b887db0"
    "9706c67d4211138df30efff6c780e0f5",
    "93c7043faad5435fb3986bbad9ba457e8ce41361d33752cca6cc2aac9c340515d3770eba767a91707ac329e8"
    "5315f3654b2368dee9786d7d6cfd54df7c3dcee135b65a0a219b7613003f0b7c9799c0b409c9d8473e0e693a"
    "ee918bbfda7755f42de53abcd1659ea704cfe144ca468789f98c660fa6ffc76fb5e6c9470cd792422f01e769"
    "528dbc2841ec1f633e2eded13ccb797d8e9322ac06b28719104139928fa827ddc6a4855826897a309586af49"
    "fd76e0cc9db6897242d54cf70a7ec4c9",
    "65c2f4458611bea8bba95f5c0b92e47b5775585d0a63a6628f9fc4e185a76e3a28d48a94b248e5971d55f55d"
    "b729980f2452fe461a759725e8b9f9802b53df02785652156a1b76a17dc270cc810f1d883e581e645c94011e"
    "8133cb3a5e4d89eb3264cfdeeb429cfa0eb5dcbaa3de6d2036ca74ebf30789c91aab4ae8531ec958ec770da5"
    "5ed585799425fd7f590b42cbbb8717b9741f7f19aad68accd70679e9ed1c9cdf79b0e0f755c283a101c073dd"
    "553bc4397b40782c1ff21267e58b04b5",
)
SPARE = Key(
    "f5a747519be33f6176df2c699d3edd21708f2fb1063541fc7c5a684d75d6adf05e3d56678a78001fea8e3d28"
    "98473ed2e02482928ba696574b4ad173a56e4e480cdcf807bb8828ecfb3ff6bee3ea3f326fcb24123b47871f"
    "514925c1f583c19fd096a5a48951833d63fb07ac480f92e0f8b5400491aaf92839a5cf4ca876c7fbe590ac28"
    "f156948612c056377a88616ffb19789da3db34d6f90cb935b813e1d513e929d6a32dad2c32e316d4bfd3f254"
    "fefa47a10e27c07ceccaacda5366b4dd",
    "d3185493a7af1e05a0b0b5df61c4432623b600767fc848d96e695118e37273e85627bcb9d0e2c31402a96a01"
    "7a50c0bde1fb71d043c5fee639f7b37a1463358d0a573314121555f9f17d3770824c8765f10dbe707515b459"
    "6495e69d4baf9a601a8a63f2a5de4c7a93d5953709f0bd698fa9cba2eda98de882be83b19aae3b4cc24aabdb"
    "b2c3a28ed32fb89160f7befb1c66edf39c2bd6cd547a0c18c423702347f9852c19449e305b4326e47f06f6c3"
    "bdbdf4c9f9ea544738edc315f2d70053",
    "f403f268327d8ddbf704c14d3811d5fefd9c7e374e7f60c8b98de4c5ed240f2c11b0c43f9de08ddf26539c94"
    "d28f12ecce11f65233be8ae0b3bde2490a2f843b35ebd9c57497506ff734169a9033840b49d9743f57fb3951"
    "f6a0be8ce8a0b49957ce0d445fd344969ad6254d1157c7030a8aa0c8e919f8dde845b8a1e145fc695024619f"
    "59fc3314eb537b5128ba886f7ff25149e6163d6abd81d208768de96a8b98b522ac7d16e42cb83f599e239f38"
    "a6ff5e5fb17bf34d24ba3ef1b09ef951",
    "62240ca63d2e7031c39c8461df6d449ec5b9870b90ab081b7676a64a80ec24311f65081c079e757da7232672"
    "9b7051bbb60595cb72c6e99415dd30671075735f28309441bf8a85d7574b94ebccd85196b67462569c48c3f9"
    "4f87559949a7d188deadfa7bc45bce88aa9480f3febe1b01a9d61223a484d0c2098f13610dfdf4f9e1d69f81"
    "dbe19280fe745045dea42ff94522217cc1ddabd6f87069915616f7ba9f6ac55c543f0fa081bd7da67bdc3bfb"
    "930a6e753ca892182ec273918fbe1f9b",
)
STRANGER = Key(
    "f80cd5e8259e6de4e333506808d8e04e342116a71ca724bed81366dfcc1ef7e9e2a4f2cee943654bee1eecf2"
    "9a718c8fec9e79db81bd3b46bb066ee613f3f62bed5c00fb6982745b1636c13d7ba147ee2e144642b701f4e6"
    "7f2e74c21fcbf067540d380bc0363932bfe1895185f5d5c691d7840c2a81cc271e55e1983647826ec329b871"
    "7eceb3c80e80016f33f03b48cbf1853a0df25fd3800b8347196f1d7c0e14f40321d751578d95dbe14ada2f1a"
    "77cac55f3fdb3f550932197cba4115a7",
    "d87d174a05778d247ee251443f05162e0fe75e30f941bfa642a0b4b551a073d9549d615251b1ec65b06d2909"
    "cd38d7af51a2315374435fae6ac25a52de0d77a280e7cca89425fdf889dd70fec7473f9ba36805b4785f539f"
    "3e7b57c123f240bd257b14f0ac755acef7d7f9e3fccb3273a5be35d9e93425351b6b7cbdf7153065da1e5371"
    "562c4c8b70aaac1cc4b25aa7f58049ac57959b201426e07ac7dcb980266508a729d12b2e12790e0952af5525"
    "bf9db0fe7f6b5a2d3dd3b872127d3e5b",
    "1b9879f7b0afb6741f5ea7145bdf9cdcb669f3f63576d6dcb077401ba7bece3fe3ea0be53f08336dc61904ad"
    "5cc7432703e101978d107b56bc19d41e9e9ba6886e88acc74b8eaad9335876191bf6ee64ae15ad5760bac3ff"
    "1ca9136e415153f67ae0599add106b3e9d203f41a5909aeed36cd190f4eda9c3b4594396c67b2024a86baccc"
    "5b9a2d601554e253f7c843202f28387523f611f91aa6ad3d2cb432e8893c85850fafbfa9e8e38229c7450cb6"
    "7a1b41e7fdd7ab6d0f6fd66c0ce08ec3",
    "bfec05dd85833b0983c337b07cfe116fbc81ad2b558e484d28fc37b817295c0aebccaa1ec4762bd0eadb9b6a"
    "29199f7cb9ae44746bb9def54d880773379050e32bcc53cf8fa72ec44bd498fc05c6d04936505dde64687e45"
    "caaaa65d7f74a0980ec653061a9ddf6764a97fcbf2ac6189cd0217d39bbeb2cda605608d38a2fc490f599b37"
    "fae142eacb73432a2de6c01feeb1509f0cf68093abc9db707e06dc1d13ecb6031c3b67406cf80ccd8f140934"
    "71ef669df8703f7da436326a4ea1e1c9",
)
