"""Wrong arguments: a ValueError that names the argument, the value, and what is allowed.

Knows: the client's API.  Must not know: where what is checked.
"""
# heap: 2M

from array import array

import umqtt_min
from harness import Bench, raises
from nor import NOR
from strict_wire import PUBACK
from umqtt_min import MQTT_3_1, FileStore, FlashStore, MQTTClient, RAMStore
from umqtt_min.aio import MQTTClient as AioClient
from umqtt_min.errors import ENOTCONN
from umqtt_min.reconnect import Reconnect
from umqtt_min.tls import context

WRONG = (
    ("port", (70000, -1, "1883", 1.5, True), "1 to 65535"),
    ("keepalive", (-1, 65536, "x", None, 60.0, True), "0 to 65535"),
    ("timeout", (0, -1, "x", None, float("inf"), float("nan"), 1 << 20, 0.0001), "seconds"),
    ("window", (0, -1, 256, "x", None, True), "1 to 255"),
    ("buffer_size", (10, 63, -1, 0, "x", None, 1 << 30), "64 to"),
    ("max_message", (-1, "x", None, 1 << 28), "0 to"),
    ("protocol", (9, 4, None, (), "MQTT"), "MQTT_3_1_1"),
    ("server", ("", None, 5), "host name"),
    ("timer", (5, "x", True, 0), "machine.Timer"),
    ("connector", (5, "x", True, 0, False), "f(host, port, timeout_ms)"),
    ("ssl", (5, "x"), "SSLContext"),
)


def words(function, *args, **kw):
    """What the ValueError says that function must raise."""
    return str(raises(ValueError, function, *args, **kw))


def test_every_argument_of_the_client():
    for name, values, allowed in WRONG:
        for value in values:
            for store in (None, RAMStore()):
                options = {"server": "broker", "store": store}
                options[name] = value
                text = words(MQTTClient, "dev", **options)
                assert name in text and allowed in text, (name, value, text)
                assert repr(value) in text, (name, value, text)


NUMBERS = (-1, "64k", None, 1.5)
OPTIONS = (
    ("size", NUMBERS + (1 << 32,), "whole number"),
    ("messages", NUMBERS + (65536, True), "0 to 65535"),
    ("inbound", NUMBERS + (0, 65536), "1 to"),
    ("policy", (3, -1, "x", None), "LATEST"),
    ("max_age", (-1, "x", None), "seconds"),
    ("clock", (5, "x"), "function"),
)


def test_every_option_of_the_stores():
    def files(**options):
        return FileStore("no such folder", **options)

    def flash(**options):
        return FlashStore(NOR(8, 4096), **options)

    makers = ((RAMStore, ()), (files, ("segment", "chunk")),
              (flash, ("segment", "first", "blocks", "page")))  # fmt: skip
    for make, more in makers:
        for name, values, allowed in OPTIONS + tuple((n, NUMBERS, "whole number") for n in more):
            if make is flash and name == "size":
                continue
            for value in values:
                text = words(make, **{name: value})
                assert name in text and allowed in text, (make, name, value, text)
                assert repr(value) in text, (make, name, value, text)
        assert "clock" in words(make, max_age=5)
        for wrong in (1.5, -1, None, "now"):
            text = words(make, max_age=5, clock=lambda wrong=wrong: wrong)
            assert "clock=" in text and "gives %r: whole seconds" % (wrong,) in text
    for folder in ("", None, 5, b"/mqtt"):
        assert "folder=" in words(FileStore, folder)
    for device in (None, 5, "mqtt"):
        assert "device=" in words(FlashStore, device)
    for chunk in (10, 72):
        assert "chunk" in words(files, small=True, chunk=chunk)
    assert "first=4" in words(flash, first=4, blocks=5)
    assert "segment" in words(flash, segment=100)
    assert "size" in words(files, size=4096)


def test_the_policies_are_names_of_the_package():
    store = RAMStore(64, policy=umqtt_min.DROP_OLDEST)
    store.open()
    for i in range(9):
        store.put(1, 2, b"a", b"%059d" % i)
    assert store.dropped == 8
    assert (umqtt_min.RAISE, umqtt_min.DROP_OLDEST, umqtt_min.LATEST) == (0, 1, 2)


def test_helpers_for_what_is_no_client():
    for wrong in (None, 5, "client"):
        assert "client=%r" % (wrong,) in words(Reconnect, wrong)
    for wrong in (False, 5, "/inbox", RAMStore):
        assert "durable_inbox=" in words(Bench, durable_inbox=wrong)
    own = RAMStore()
    assert "another store" in words(Bench, store=own, durable_inbox=own)
    assert "durable_inbox=" in words(AioClient, "id", "server", durable_inbox=own)


def test_what_needs_a_store_and_what_needs_a_number():
    c = Bench().client
    assert "store" in words(c.confirm, 1) and "store" in words(c.republish, 1, 2)
    c = Bench(store=RAMStore(hold=True)).client
    for wrong in ("x", None, 1.5):
        for call, arguments in ((c.confirm, (wrong,)), (c.republish, (1, wrong))):
            assert repr(wrong) in words(call, *arguments)
    assert c.confirm(1) == 0
    for store in (None, RAMStore()):
        for wrong in ("x", -1):
            text = words(Bench(store=store).client.flush, wrong)
            assert "timeout=%r" % (wrong,) in text


def test_a_store_that_is_none():
    for wrong in (5, "/mqtt", RAMStore, [1]):
        assert "store=" in words(MQTTClient, "dev", "host", store=wrong)


def test_flush_without_a_connection():
    assert Bench().client.flush() is True
    b = Bench(store=RAMStore())
    assert b.client.flush() is True
    b.client.publish(b"t", b"x", qos=1, wait=False)
    assert raises(OSError, b.client.flush).args[0] == ENOTCONN
    b.connect()
    assert b.client.flush()
    b.client.disconnect()
    assert b.client.flush() is True


def test_the_bounds_themselves_are_allowed():
    for options in (
        {"port": 1}, {"port": 65535}, {"keepalive": 65535}, {"keepalive": 0}, {"timeout": 0.001},
        {"timeout": 268435}, {"window": 1}, {"window": 255}, {"buffer_size": 64},
        {"max_message": 0}, {"max_message": 268435455}, {"protocol": MQTT_3_1},
        {"window": 1, "store": RAMStore()}, {"window": 255, "store": RAMStore()},
    ):  # fmt: skip
        Bench(**options).connect()
    assert MQTTClient("dev", "host").port == 1883
    assert MQTTClient("dev", "host", ssl=True, ssl_params={"cert_reqs": 0}).port == 8883


def test_login_and_client_id():
    for options in (
        {"password": "x"},
        {"user": b"\xff"},
        {"user": "x" * 65536},
        {"user": "u", "password": b"x" * 65536},
    ):
        text = words(MQTTClient, "dev", "host", **options)
        assert "user" in text or "password" in text, text
    for client_id in (b"\xff", "a\0b", "x" * 65536):
        assert "client_id" in words(MQTTClient, client_id, "host")
    for client_id in (5, None):
        assert "str or bytes-like" in words(MQTTClient, client_id, "host")
    assert "1 to 23 bytes" in words(MQTTClient, "x" * 24, "host", protocol=MQTT_3_1)


def test_what_is_no_buffer_is_refused_and_what_is_one_goes_out_whole():
    for store in (None, RAMStore()):
        b = Bench(store=store)
        b.connect()
        for qos in (0, 1, 2):
            for wrong in (5, None, 1.5, [1], {}):
                assert "str or bytes-like" in words(b.client.publish, b"t", wrong, qos=qos)
                assert "str or bytes-like" in words(b.client.publish, wrong, b"x", qos=qos)
            for n in (2, 300):
                b.client.publish(b"t", array("H", [1] * n), qos=qos)
                assert b.broker.payloads()[-1] == b"\1\0" * n
        b.client.publish(b"t", b"in step", qos=1)
        assert b.broker.payloads()[-1] == b"in step"


def test_subscribe_and_unsubscribe():
    b = Bench()
    b.connect()
    for wrong in (5, None, [b"a", b"b"], [(b"a", 1, 2)], [(b"a",)], [5]):
        assert "a list of (topic filter, QoS)" in words(b.client.subscribe, wrong)
    for wrong in (5, None, [5], [None]):
        words(b.client.unsubscribe, wrong)
    for qos in (3, -1, "1", None, 0.5):
        assert "qos=%r: 0, 1 or 2" % (qos,) in words(b.client.subscribe, b"t", qos)
        assert "qos=%r: 0, 1 or 2" % (qos,) in words(b.client.subscribe, [(b"t", qos)])
    for timeout in ("x", -1, float("inf"), 1 << 20):
        text = "timeout=%r: seconds, 0 to 268435" % (timeout,)
        assert text in words(b.client.subscribe, b"t", 1, None, timeout)
        assert text in words(b.client.unsubscribe, b"t", timeout)
    assert not b.conn.session.subscriptions
    for none in ([], ()):
        assert "no topic filter" in words(b.client.subscribe, none)
        assert "no topic filter" in words(b.client.unsubscribe, none)
    assert b.client.subscribe([("t", 1), (bytearray(b"u"), 0), (memoryview(b"v"), 2)]) == [1, 0, 2]
    b.client.unsubscribe(("t", b"u"))
    b.client.unsubscribe(memoryview(b"v"))
    assert not b.conn.session.subscriptions


def test_publish_and_connect():
    for store in (None, RAMStore()):
        b = Bench(store=store)
        for timeout in ("x", -1, float("inf"), float("nan"), 1 << 20, (), b""):
            text = "timeout=%r: seconds, 0 to 268435" % (timeout,)
            assert text in words(b.client.connect, None, timeout)
            if store:
                assert text in words(b.client.flush, timeout)
        b.connect()
        for qos in (3, -1, "1", 0.5, [1]):
            assert "qos=%r: 0, 1 or 2" % (qos,) in words(b.client.publish, b"t", b"x", qos=qos)
        for topic in ("a/+/b", "#", "a\0b", b"\xff/x", "", "caf\xe9#"):
            text = words(b.client.publish, topic, b"x")
            assert repr(topic if isinstance(topic, bytes) else topic.encode()) in text, text
            assert repr(topic if isinstance(topic, bytes) else topic.encode()) in words(
                b.client.set_last_will, topic, b"x"
            )
        assert b.broker.messages == [] and b.client.connected
        b.client.publish(b"t", b"x", qos=1.0)
        b.client.publish(b"t", b"x", qos=True)
        assert len(b.broker.messages) == 2
        assert "'a/#/b'" in words(b.client.subscribe, "a/#/b")


def test_a_will_and_a_publisher_that_are_refused_leave_nothing_behind():
    b = Bench()
    for qos in ("1", None, 3, -1, 0.5):
        text = "qos=%r: 0, 1 or 2" % (qos,)
        assert text in words(b.client.set_last_will, b"w", b"x", False, qos)
        assert text in words(b.client.publisher, b"t", False, qos)
    for topic, msg in (("", b"x"), ("a/#", b"x"), (5, b"x"), ("w", 5), ("w", b"x" * 65536)):
        words(b.client.set_last_will, topic, msg)
    b.connect()
    b.net.cut()
    assert b.broker.messages == []


def test_what_stores_are_made_of():
    for wrong in (5, None, ""):
        assert "folder=" in words(FileStore, wrong)
    assert "device=" in words(FlashStore, 5)
    for size, least in ((100, 16384), (16383, 16384)):
        assert "%d bytes" % least in words(FileStore, "/nowhere", size, small=False)
    assert "8192 bytes" in words(FileStore, "/nowhere", 8191, small=True)


def test_callbacks():
    b = Bench().subscribe()
    for wrong in (5, "f", b.got):
        assert "f=" in words(b.client.set_callback, wrong)
        assert "f=" in words(b.client.set_view_callback, wrong)
    b.broker.publish(b"t", b"1", 1)
    b.pump()
    b.client.set_callback(None)
    b.broker.publish(b"t", b"2", 1)
    b.pump()
    assert b.got == [(b"t", b"1")] and b.broker.count(PUBACK) == 2


def test_reconnect():
    c = Bench().client
    for wrong in ("topic", b"topic", [b"topic"], 5, [(b"a/#/b", 1)], [("t", 3)]):
        words(Reconnect, c, wrong)
    assert "a list of (topic filter, QoS)" in words(Reconnect, c, "topic")
    for name in ("first", "most", "stable", "attempt"):
        for wrong in (-1, "x", None, 16778, float("nan")):
            if name == "stable" and wrong is None:
                continue  # as long as the bound at that time
            text = words(Reconnect, c, **{name: wrong})
            assert name + "=" + repr(wrong) in text and "0 to 16777" in text
    assert "first=2" in words(Reconnect, c, first=2, most=1)
    assert "attempt=0" in words(Reconnect, c, attempt=0)
    assert Reconnect(c, (("a", 1),), 0, 0, 0).subscriptions == [(b"a", 1)]


class Context:
    """What an application gives as an SSLContext."""

    def wrap_socket(self, sock, **options):
        return sock


def test_asyncio():
    for wrong in (0, -1, 1.5, "8", None, True):
        text = words(AioClient, "dev", "host", queue=wrong)
        assert "queue=%r: a whole number" % (wrong,) in text
    for wrong in (False, None, 5):
        text = words(AioClient, "dev", "host", timer=wrong)
        assert "timer=%r" % (wrong,) in text and "asyncio" in text
    for wrong in (5, None, "yes", [("a", 1)], {"foo": 1}, {"first": 1, "client": 2}, {1: 2}):
        text = words(AioClient, "dev", "host", reconnect=wrong)
        assert "reconnect=%r: True, False, or a dict" % (wrong,) in text
    assert "attempt=0" in words(AioClient, "dev", "host", reconnect={"attempt": 0})


def test_tls_parameters():
    def tls(**options):
        return MQTTClient("dev", "127.0.0.1", **options)

    ca = {"cadata": b"x"}
    for wrong in (
        5, "ca.der", [("cadata", b"x")], {"ca": b"x"}, {"certificate": b"x"}, {"cadata": 5},
        {"cafile": None}, dict(ca, certificate="own.pem"), dict(ca, key=b"x"),
        dict(ca, cert_reqs=7), dict(ca, cert_reqs="none"),
    ):  # fmt: skip
        assert "ssl_params" in words(tls, ssl=True, ssl_params=wrong), wrong
    assert "cadata" in words(tls, ssl=True)
    assert "known: server_hostname" in words(tls, ssl=Context(), ssl_params=ca)
    assert "ssl=True, or ssl=False" in words(tls, ssl_params=ca)
    made = Context()
    assert context({"server_hostname": "other"}, "host", made) == (made, "other")
    assert context({}, "host", made) == (made, "host")
    client = tls(ssl=True, ssl_params=ca)
    client.ssl_params["ca"] = b"x"  # and again when the connection is made
    assert "unknown key ca" in words(client.connect)


def test_what_the_caller_changes_afterwards_is_not_sent():
    will, name = bytearray(b"gone"), bytearray(b"dev")
    b = Bench(client_id=name)
    b.client.set_last_will(b"w", will)
    will[:] = b"BAD!"
    name[:] = b"BAD"
    b.connect()
    assert (b.client.client_id, b.client.lw_msg) == (b"dev", b"gone")


def test_a_list_of_names_and_a_protocol_of_numbers_are_refused():
    b = Bench()
    b.connect()
    assert "topic=['ab', 'cd']" in words(b.client.subscribe, ["ab", "cd"])
    assert "protocol=" in words(MQTTClient, "x", "host", protocol=tuple(range(1, 9)))
    assert "timeout=" in words(MQTTClient, "x", "host", timeout=True)
