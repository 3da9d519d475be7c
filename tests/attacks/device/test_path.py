"""The path: whoever stands on it shows a certificate of his own, or lets a handshake wait. TLS
over real sockets: certificate and name are checked, the handshake is bounded, and what is right
passes.

Knows: the client's API, certificates made for this run.  Must not know: a TLS library's inside.
"""
# needs: strict-tls
# heap: 2M

import os
import ssl
import time

from harness import raises
from interop_common import silent
from umqtt_min import MQTTClient

PORT = int(os.getenv("BROKER_PORT"))
FOLDER = os.getenv("BROKER_CERTIFICATES")


def read(name):
    """A file of the certificates' folder."""
    with open(FOLDER + "/" + name, "rb") as f:
        return f.read()


def client(params, host="localhost", **options):
    """A client that collects what it receives in .got."""
    name = "tls-%d" % (time.ticks_us() & 0xFFFFFF)
    settings = {"keepalive": 30, "timeout": 30, "timer": False, "ssl": True}
    settings.update(options)
    c = MQTTClient(name, host, PORT, ssl_params=params, **settings)
    got = []
    c.set_callback(lambda topic, msg: got.append((topic, msg)))
    return c, got


def echo(c, got, sizes=(0, 1, 300, 20000)):
    """Every QoS both ways."""
    c.connect()
    topic = b"echo/" + c.client_id
    c.subscribe(topic, 2)
    sent = []
    for qos in (0, 1, 2):
        for n in sizes:
            sent.append((topic, b"x" * n))
            c.publish(topic, sent[-1][1], qos=qos)
    end = time.ticks_add(time.ticks_ms(), 60000)
    while len(got) < len(sent) and time.ticks_diff(end, time.ticks_ms()) > 0:
        c.check_msg()
        time.sleep_ms(2)
    assert got == sent
    c.disconnect()


def test_every_qos_both_ways_with_der_and_pem():
    echo(*client({"cadata": read("ca.der")}))
    echo(*client({"cadata": read("ca.pem")}), sizes=(10,))


def context_of_the_application():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=read("ca.der"))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_context_of_the_application():
    context = context_of_the_application()
    echo(*client(None, ssl=context), sizes=(10,))
    # ... and the name in the certificate, where the broker is called by its address.
    named = {"server_hostname": "localhost"}
    echo(*client(named, host="127.0.0.1", ssl=context), sizes=(10,))


def test_a_certificate_of_another_authority_is_refused():
    c, _ = client({"cadata": read("other.der")})
    raises((OSError, ValueError), c.connect)
    assert not c.connected


def test_another_host_name_is_refused():
    name = "elsewhere.example"
    made = client({"cadata": read("ca.der"), "server_hostname": name})
    with_context = client({"server_hostname": name}, ssl=context_of_the_application())
    for c, _ in (made, with_context):
        raises((OSError, ValueError), c.connect)
        assert not c.connected


def test_no_authority_is_an_error_that_says_what_to_do():
    assert "cadata" in str(raises(ValueError, client, {}))
    assert "ca" in str(raises(ValueError, client, {"ca": b""}))


def test_checking_without_minding_is_refused():
    # With it MicroPython connects to an impostor.
    params = {"cadata": read("other.der"), "cert_reqs": ssl.CERT_OPTIONAL}
    e = raises(ValueError, lambda: client(params)[0].connect())
    assert "CERT_OPTIONAL connects to anybody: ssl.CERT_REQUIRED" in str(e)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=read("other.der"))
    context.verify_mode = ssl.CERT_OPTIONAL
    e = raises(ValueError, lambda: client(None, ssl=context)[0].connect())
    assert "verify_mode=ssl.CERT_OPTIONAL connects to anybody" in str(e)


def test_not_checking_has_to_be_asked_for():
    echo(*client({"cert_reqs": ssl.CERT_NONE}), sizes=(10,))


def test_a_handshake_that_does_not_go_on_ends_in_time():
    for timeout, least in ((1, None), (60, 1)):  # the client's, or that of the call
        listener, port = silent()
        c = MQTTClient("slow", "localhost", port, ssl=True, keepalive=10, timeout=timeout,
                       ssl_params={"cadata": read("ca.der")})  # fmt: skip
        start = time.ticks_ms()
        e = raises(OSError, c.connect, None, least)
        assert e.args[0] == 110
        assert time.ticks_diff(time.ticks_ms(), start) < 20000
        assert not c.connected
        listener.close()
