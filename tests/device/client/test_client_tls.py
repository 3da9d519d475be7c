"""tls.context() against mosquitto: who is trusted, and a client with a certificate of its own.

Knows: the certificates that the broker's folder holds.  Must not know: a TLS library's inside.
The stream itself is tested in tests/attacks/device/test_path.py.
"""
# needs: tls
# heap: 2M

import os
import time

from harness import raises
from umqtt_min import MQTTClient, MQTTException
from umqtt_min.reconnect import Reconnect

PORT = int(os.getenv("BROKER_PORT"))
MUTUAL = int(os.getenv("BROKER_MUTUAL_PORT"))
FOLDER = os.getenv("BROKER_TLS") + "/"


def read(name):
    """A file of the broker's folder."""
    with open(FOLDER + name, "rb") as f:
        return f.read()


def client(port, **params):
    """A client with these ssl_params."""
    name = "tls-%d" % (time.ticks_us() & 0xFFFFFF)
    return MQTTClient(name, "localhost", port, keepalive=30, timeout=30, timer=False,
                      ssl=True, ssl_params=params)  # fmt: skip


def works(c):
    """One message each way."""
    got = []
    c.set_callback(lambda topic, msg: got.append(msg))
    c.connect()
    c.subscribe(b"tls/" + c.client_id)
    c.publish(b"tls/" + c.client_id, b"hello", qos=1)
    c.wait_msg() if not got else None
    assert got == [b"hello"]
    c.disconnect()


def refused(c, kind=OSError):
    """connect() must fail, and leave nothing open."""
    e = raises(kind, c.connect)
    assert not c.connected
    return e


def test_the_authority_as_bytes_text_and_file():
    works(client(PORT, cadata=read("ca.der")))
    works(client(PORT, cadata=bytearray(read("ca.pem"))))
    works(client(PORT, cadata=read("ca.pem").decode()))
    works(client(PORT, cafile=FOLDER + "ca.der"))
    works(client(PORT, cafile=FOLDER + "ca.pem"))


def test_several_authorities_in_one_pem():
    refused(client(PORT, cadata=read("other.der")))
    both = read("server.pem") + read("ca.pem")
    works(client(PORT, cadata=both))


def test_an_unknown_authority_is_refused():
    e = refused(client(PORT, cadata=read("other.der")))
    assert "ertificate" in str(e) or "CERTIFICATE" in str(e), e


def test_a_certificate_that_is_refused_does_not_end_who_stays_connected():
    c = client(PORT, cadata=read("other.der"))
    link = Reconnect(c, first=0)
    for _ in range(3):
        assert link.step() is False
        assert type(link.error) is not ValueError and isinstance(link.error, OSError)
    c.ssl_params["cadata"] = read("ca.der")
    for _ in range(600):
        if link.step():
            break
        time.sleep_ms(50)
    assert c.connected
    c.disconnect()


def test_a_wrong_host_name_is_refused():
    refused(client(PORT, cadata=read("ca.der"), server_hostname="elsewhere.example"))
    # The address is not among the certificate's names.
    c = client(PORT, cadata=read("ca.der"))
    c.server = "127.0.0.1"
    refused(c)
    c.ssl_params["server_hostname"] = "localhost"
    works(c)


def test_broken_certificates_are_refused_before_anything_is_sent():
    for data in (b"", b"nonsense", read("ca.der")[:-9], read("ca.pem")[:-40]):
        refused(client(PORT, cadata=data), (OSError, ValueError))


def test_a_client_certificate_in_pem_or_by_name():
    ca = read("ca.der")
    names = {"certificate": FOLDER + "client.pem", "key": FOLDER + "client-key.pem"}
    works(client(MUTUAL, cadata=ca, **names))
    own = {"certificate": read("client.pem"), "key": read("client-key.pem")}
    works(client(MUTUAL, cadata=ca, **own))
    e = raises(ValueError, client, MUTUAL, cadata=ca, certificate=own["certificate"])
    assert "key" in str(e)


def test_without_a_client_certificate_the_broker_hangs_up():
    c = client(MUTUAL, cadata=read("ca.der"))
    raises((OSError, MQTTException), c.connect)
    assert not c.connected
