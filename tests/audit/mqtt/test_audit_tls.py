"""TLS is told by what its hello says: version, server name, JA3, JA4.

Hellos of real clients (Python's ssl, mosquitto_pub, openssl), captured by a relay; the oracles are
tshark, as far as it has the fields, and the example in FoxIO's description of JA4.
Knows: audit_kit, ClientHello. Must not know: how the audit finds a hello.
"""

import json
import random
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from contextlib import suppress

import audit_kit as kit
import pytest
from certificates import Authority

HOST = "broker.example"
TLS = ("tls_version", "tls_server_name", "tls_ja3", "tls_ja4")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of TLS that agrees on a version and hangs up: its port and its authority's file."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("tests")
    made = authority.issue(HOST, ["127.0.0.1"])
    for name, pem in zip(("cert", "key", "ca"), (*made, authority.pem)):
        (folder / name).write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    context.set_alpn_protocols(["mqtt"])
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            with suppress(OSError):
                try:
                    near, _ = listener.accept()
                except OSError:
                    return
                near.settimeout(20)
                with context.wrap_socket(near, server_side=True) as secure:
                    secure.recv(100)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], folder / "ca"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(20)


def _python(port, ca, version=None, alpn=None, ciphers=None, name=HOST):
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    if version:
        context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(alpn)
    if ciphers:
        context.set_ciphers(ciphers)
    with socket.create_connection(("127.0.0.1", port), 20) as near:
        with context.wrap_socket(near, server_hostname=name) as secure:
            secure.sendall(b"x")


def _mosquitto(port, ca):
    argv = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "--cafile", str(ca), "-t", "a",
            "-m", "x", "--insecure"]  # fmt: skip
    subprocess.run(argv, capture_output=True, timeout=60)


def _openssl(port, ca, *more):
    argv = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(ca), *more]
    subprocess.run(argv, input=b"x", capture_output=True, timeout=60)


CLIENTS = {
    "python": (_python, "1.3", HOST),
    "python, 1.2": (lambda p, ca: _python(p, ca, ssl.TLSVersion.TLSv1_2), "1.2", HOST),
    "python, ALPN": (lambda p, ca: _python(p, ca, alpn=["mqtt", "http/1.1"]), "1.3", HOST),
    "python, one cipher": (lambda p, ca: _python(
        p, ca, ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256", name="other.name"),
        "1.2", "other.name"),
    "mosquitto_pub": (_mosquitto, "1.3", ...),
    "openssl": (lambda p, ca: _openssl(p, ca, "-servername", "x.y"), "1.3", "x.y"),
    "openssl, no name": (lambda p, ca: _openssl(p, ca, "-noservername", "-tls1_2"), "1.2", None),
}  # fmt: skip


def _tshark(path, port):
    """Of each ClientHello what tshark makes of it, under the audit's names."""
    known = subprocess.run(["tshark", "-G", "fields"], capture_output=True, text=True, timeout=120)
    names = {"tls_ja3": "tls.handshake.ja3", "tls_ja4": "tls.handshake.ja4",
             "tls_server_name": "tls.handshake.extensions_server_name"}  # fmt: skip
    names = {ours: name for ours, name in names.items() if f"\t{name}\t" in known.stdout}
    argv = ["tshark", "-r", str(path), "-d", f"tcp.port=={port},tls", "-Y",
            "tls.handshake.type == 1", "-T", "json"]
    argv += [word for name in names.values() for word in ("-e", name)]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=True)
    for packet in json.loads(done.stdout):
        layers = packet["_source"]["layers"]
        yield {ours: layers.get(name, [None])[0] for ours, name in names.items()}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_real_hello(name, server, tmp_path):
    talks, version, host = CLIENTS[name]
    program = name.split(",")[0]
    if program != "python" and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    port, ca = server
    tap = kit.Tap(port)
    talks(tap.port, ca)
    tap.stop()
    path = kit.pcap(tmp_path / "t.pcap", tap.frames())
    (row,) = kit.read([path], tmp_path, ports=(port,))["connections"]
    assert row["protocol"] == "TLS"
    host = row["tls_server_name"] if host is ... else host  # of an address: it depends
    assert (row["tls_version"], row["tls_server_name"]) == (version, host)
    start = f"t{version.replace('.', '')}{'d' if host else 'i'}"
    assert row["tls_ja4"].startswith(start)
    assert row["tls_ja4"][8:10] == ("mt" if "ALPN" in name else "00")
    if shutil.which("tshark"):
        (theirs,) = _tshark(path, port)
        assert {k: row[k] for k in theirs} == theirs


def _words(numbers):
    return b"".join(struct.pack(">H", n) for n in numbers)


def hello(ciphers, extensions, version=0x0303):
    """A ClientHello, in one record; extensions: (type, content)."""
    more = b"".join(struct.pack(">HH", t, len(c)) + c for t, c in extensions)
    body = struct.pack(">H", version) + bytes(32) + b"\0" + kit.string(_words(ciphers)) + b"\1\0"
    body += kit.string(more) if extensions else b""
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


#: The example of FoxIO's description, with GREASE (0x?A?A) where a browser has it.
CIPHERS = [0x2A2A, *(int(c, 16) for c in "1301 1302 1303 c02b c02f c02c c030 cca9 cca8 c013 c014 "
                     "009c 009d 002f 0035".split())]  # fmt: skip
SIGNED = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]
CONTENT = {0x0000: b"\0\x08\0\0\x05a.org", 0x0010: b"\0\x0c\x02h2\x08http/1.1",
           0x000D: kit.string(_words(SIGNED)), 0x002B: b"\x06\x1a\x1a\x03\x04\x03\x03",
           0x000A: kit.string(_words([0x4A4A, 29, 23])), 0x000B: b"\x01\x00"}  # fmt: skip
TYPES = [0x3A3A, *(int(t, 16) for t in "001b 0000 0033 0010 4469 0017 002d 000d 0005 0023 0012 "
                   "002b ff01 000b 000a 0015".split()), 0xDADA]  # fmt: skip
EXAMPLE = hello(CIPHERS, [(t, CONTENT.get(t, b"")) for t in TYPES])


def read(made, tmp_path, **more):
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped(), **more)], tmp_path)
    assert found["violations"] == []
    return [tuple(c[n] for n in TLS) for c in found["connections"]], found


def test_the_example_of_ja4(tmp_path):
    made = kit.Talk(broker=("10.0.0.1", 8883)).open().client(EXAMPLE).close()
    ((version, name, _, ja4),), _ = read(made, tmp_path)
    assert (version, name, ja4) == ("1.3", "a.org", "t13d1516h2_8daaf6152771_e5627efa2ab1")


@pytest.mark.parametrize("protocol, said", [
    (b"\xab", "ab"), (b"\x20", "20"), (b"\xab\xcd", "ad"), (b"\x20\x61", "21"),
    (b"\x30\xab", "3b"), (b"\x61\x20", "60"), (b"\x30\x31\xab\xcd", "3d"),
    (b"\x30\xab\xcd\x31", "01"), (b"h", "hh"), (b"", "00")])  # fmt: skip
def test_ja4_of_a_protocol_that_is_no_word(protocol, said):
    from mqtt_audit.tls.hello import read

    content = struct.pack(">HB", len(protocol) + 1, len(protocol)) + protocol
    assert read(hello([0x1301], [(16, content)]))["ja4"][8:10] == said


def test_ja4_of_a_hello_with_next_to_nothing():
    """The digests of nothing, and of extensions without signatures (FoxIO's description)."""
    from mqtt_audit.tls.hello import read

    assert read(hello([], [], 0x0301))["ja4"] == "t10i000000_000000000000_000000000000"
    types = [t for t in TYPES if t != 0x000D] + [0x000D]
    made = hello(CIPHERS, [(t, CONTENT.get(t, b"") if t != 0x000D else b"") for t in types])
    assert read(made)["ja4"] == "t13d1516h2_8daaf6152771_6d807ffa2a79"


@pytest.mark.parametrize("seed", range(4))
def test_a_hello_in_pieces(seed, tmp_path):
    """In segments of any size, out of order, sent again; in several records."""
    choice = random.Random(seed)
    message, records, at = EXAMPLE[5:], b"", 0
    while at < len(message):
        part = message[at : at + choice.randrange(1, 200)]
        records += b"\x16\x03\x01" + struct.pack(">H", len(part)) + part
        at += len(part)
    made = kit.Talk(broker=("10.0.0.1", 8883)).open()
    while records:
        size = choice.randrange(1, 90)
        made.client(records[:size])
        records = records[size:]
    made.broker(b"\x15\x03\x03\0\x02\x02\x28")
    rest = made.frames[3:]
    choice.shuffle(rest)
    made.frames[3:] = [*rest, *rest[:2]]
    ((version, name, _, ja4),), _ = read(made, tmp_path)
    assert (version, name, ja4[:10]) == ("1.3", "a.org", "t13d1516h2")


def test_a_hello_that_is_not_all_there_tells_nothing(tmp_path):
    """Cut anywhere, bytes changed, a frame missing: no fault, and no name that is none."""
    from mqtt_audit.tls.hello import read as told

    for n in range(len(EXAMPLE)):
        assert told(EXAMPLE[:n]) == {}
    choice = random.Random(1)
    for _ in range(2000):
        raw = bytearray(EXAMPLE)
        for _ in range(choice.randrange(1, 4)):
            raw[choice.randrange(len(raw))] = choice.randrange(256)
        told(bytes(raw))
    made = kit.Talk(broker=("10.0.0.1", 8883)).open()
    for at in range(0, len(EXAMPLE), 60):
        made.client(EXAMPLE[at : at + 60])
    del made.frames[5]
    (row,), found = read(made.close(), tmp_path)
    assert row == (None,) * 4 and found["connections"][0]["protocol"] == "TLS"


def test_the_text_and_the_report_and_json_tell_it(tmp_path):
    from pipeline_kit import AUDIT

    made = kit.Talk(broker=("10.0.0.1", 8883)).open().client(EXAMPLE).close()
    path = kit.pcap(tmp_path / "t.pcap", made.wrapped())
    done = subprocess.run([AUDIT, path, "--out", tmp_path / "out"], capture_output=True, text=True,
                          timeout=300)  # fmt: skip
    assert "TLS 1.3 server name a.org JA3 " in done.stdout, done.stderr
    assert "JA4 t13d1516h2_8daaf6152771_e5627efa2ab1" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "t13d1516h2_8daaf6152771_e5627efa2ab1" in page and "a.org" in page
    done = subprocess.run([AUDIT, path, "--json", "--events", "connection"], capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    (event,) = map(json.loads, done.stdout.splitlines())
    assert [event[n] for n in TLS[:2]] == ["1.3", "a.org"] and len(event["tls_ja3"]) == 32
