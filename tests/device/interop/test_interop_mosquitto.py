"""The client against mosquitto: MQTT 3.1.1 and 3.1.

Knows: what mosquitto keeps and redelivers.  Must not know: the client's inside.
"""
# needs: mosquitto
# heap: 2M
# deadline: 90

import interop_common as common
from umqtt_min import MQTT_3_1, FileStore, MQTTException


def test_every_qos_both_ways():
    common.echo((0, 1, 50, 127, 128, 300, 5000))


def test_every_qos_both_ways_3_1():
    common.echo((0, 1, 50, 300), protocol=MQTT_3_1)


def test_keep_alive_0_is_accepted():
    common.echo((10,), keepalive=0)


def test_ssl_false_is_plain_whatever_ssl_params_say():
    common.echo((10,), ssl=False, ssl_params={"cadata": b"x"})


def test_offline_messages():
    assert common.offline() is True


def test_offline_messages_3_1():
    common.offline(protocol=MQTT_3_1)


def test_unacknowledged_messages_come_again_with_dup():
    for qos in (1, 2):
        seen, present = common.unacknowledged(qos)
        assert present is True
        assert seen == [qos << 1, 8 | qos << 1]


def test_a_burst_of_qos_2_is_received_once_with_a_store():
    """mosquitto 2.0 sends the next message at PUBREC: more and more of them are open."""
    name, topic = common.unique("burst"), common.unique("burst")
    c, got = common.client(name, store=FileStore(name))
    assert not c.connect(False)
    c.subscribe(topic, 2)
    c.disconnect()
    other, _ = common.client()
    other.connect()
    for i in range(300):
        other.publish(topic, b"%d" % i, qos=2)
    other.disconnect()
    assert c.connect(False)
    common.wait(c, got, 300, 30)
    assert [msg for _, msg in got] == [b"%d" % i for i in range(300)]
    common.quiet(c, got, 300)
    assert c.counters.connects == 2
    c.disconnect()


def test_will():
    common.will()


def test_retained():
    common.retained()


def test_a_large_message():
    c, got = common.client(max_message=200000)
    c.connect()
    topic = common.unique("large").encode()
    c.subscribe(topic, 1)
    c.publish(topic, b"z" * 100000, qos=1)
    common.wait(c, got, 1)
    assert len(got[0][1]) == 100000
    c.disconnect()


def test_packet_ids_wrap():
    c, got = common.client()
    c.connect()
    topic = common.unique("wrap").encode()
    c.subscribe(topic, 2)
    c.pid = 65530
    for i in range(12):
        c.publish(topic, b"%d" % i, qos=1 + i % 2)
    common.wait(c, got, 12)
    assert c.pid < 20
    c.disconnect()


def test_taken_over_by_the_same_client_id():
    name = common.unique("twin")
    c, _ = common.client(name)
    c.connect()
    twin, _ = common.client(name)
    twin.connect()
    try:
        common.wait(c, [], 1, 3)
    except OSError:
        twin.publish(b"t", b"the newer one lives", qos=1)
        twin.disconnect()
        return
    raise AssertionError("the older one was not told")


def test_a_bad_protocol_is_refused_with_a_reason():
    name = MQTT_3_1[0][:-1] + b"\x09"
    c, _ = common.client(protocol=(name,) + MQTT_3_1[1:])
    try:
        c.connect()
    except (MQTTException, OSError):
        return
    raise AssertionError("accepted")
