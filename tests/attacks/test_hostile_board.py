"""A hostile board, of this fleet or another. At a real mosquitto with the access lists every
needed way works and every forbidden one fails. A board's key commands no other board."""

import signal
import time

import pytest
from bench import Subscriber
from identity_kit import BOARDS, Client, files
from patience import wait_until
from umqtt_board.ota import keys, send
from update_kit import board_cli
from update_kit import fleet as running

LEVELS = ("telemetry", "status", "ota", "ack", "cmd/interval", "cmd/ota", "cmd/piece")
TOPICS = [f"fleet/{group}/{device}/{level}" for group, device in (*BOARDS, ("g", "-all"))
          for level in LEVELS] + ["fleet/g/new/telemetry", "elsewhere"]  # fmt: skip
# Of a group that this fleet does not have: it may be somebody else's.
TOPICS += [f"fleet/x/a/{level}" for level in ("telemetry", "status", "ack", "cmd/ota")]
USERS = ("bridge", "operator", "g/a", "h/a")


def may_publish(user, topic):
    """Whether the page says that this user may."""
    parts = topic.split("/")
    if parts[0] != "fleet" or parts[1] == "x":
        return False
    if user == "bridge":
        return parts[3] == "ack"
    if user == "operator":
        return parts[3] == "cmd"
    return "/".join(parts[1:3]) == user and parts[3] in ("telemetry", "status", "ota")


def may_receive(user, topic):
    parts = topic.split("/")
    if parts[0] != "fleet" or parts[1] == "x":
        return False
    if user == "bridge":
        return parts[3] == "telemetry"
    if user == "operator":
        return parts[3] in ("status", "ota")
    own = "/".join(parts[1:3])
    group = user.partition("/")[0]
    return own == user and parts[3] in ("ack", "cmd") or (
        own == f"{group}/-all" and parts[3] == "cmd")


def test_everybody_publishes_what_is_theirs_and_nothing_else(guarded, fleet):
    with Client(guarded.port) as observer:
        observer.subscribe("#")
        for user in USERS:
            for topic in TOPICS:
                with Client(guarded.guarded, fleet, user) as client:
                    client.publish(topic, user)
        observer.publish("end", "")
        wait_until(lambda: ("end", b"") in observer.got, 10, "the end")
        assert sorted(observer.got[:-1]) == sorted(
            (topic, user.encode()) for user in USERS for topic in TOPICS
            if may_publish(user, topic))  # fmt: skip


def test_everybody_receives_what_is_theirs_and_nothing_else(guarded, fleet):
    heard = {}
    clients = [Client(guarded.guarded, fleet, user) for user in USERS]
    for client in clients:
        client.subscribe("#", "$share/x/fleet/#", *TOPICS)
    with Client(guarded.port) as observer:
        for topic in TOPICS:
            observer.publish(topic, topic)
        for user, client in zip(USERS, clients):
            last = [topic for topic in TOPICS if may_receive(user, topic)]
            wait_until(lambda: set(last) <= {t for t, _ in client.got}, 10, f"{last} at {user}")  # noqa: B023
            heard[user] = {topic for topic, _ in client.got}
            client.__exit__()
    assert heard == {user: {topic for topic in TOPICS if may_receive(user, topic)}
                     for user in USERS}  # fmt: skip


def test_who_has_no_certificate_of_this_fleet_is_nobody(guarded, fleet, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    other = tmp_path / "other"
    assert board_cli("identity", "--out", other, "--board", "g/a", "--host", "localhost") == 0
    for user, pair in ((None, None), ("g/a", files(other, "g/a")), (
            "broker", files(fleet / "broker", "broker"))):  # fmt: skip
        with pytest.raises(OSError), Client(guarded.guarded, fleet, user, pair):
            pass


def test_a_board_that_is_not_in_the_lists_may_nothing(guarded, fleet):
    """It has a certificate, and the broker's lists are of before."""
    lists = (fleet / "broker" / "mosquitto.acl").read_text()
    assert board_cli("identity", "--out", fleet, "--board", "g/new") == 0
    assert (fleet / "broker" / "mosquitto.acl").read_text() != lists

    def tried():
        with Client(guarded.guarded, fleet, "g/new") as client:
            client.publish("fleet/g/new/telemetry", "early")
        return len(observer.got) > 1

    with Client(guarded.port) as observer:
        observer.subscribe("#")
        tried()
        observer.publish("end", "")
        wait_until(lambda: observer.got, 10, "the end")
        assert observer.got == [("end", b"")]
        guarded.process.send_signal(signal.SIGHUP)  # it reads the lists again
        wait_until(tried, 10, "its right")


def test_a_stolen_key_commands_no_other_board(home, boards, broker):
    one, two = running(boards, broker.port, "b1", "b2")
    stolen, other = keys.load("test", "b1"), keys.load("test", "b2")
    with Subscriber(broker.port) as subscriber:
        body = {"count": time.time_ns() // 10**6, "interval_ms": 7}
        forged = keys.Record("test", "b2", stolen.key)
        sent = send.messages([forged], "test", "interval", body)
        sent += send.messages([stolen, forged], "test", "interval", body)
        # b1's own command, recorded and sent to b2
        own = send.messages([stolen], "test", "interval", body | {"count": body["count"] + 1})
        sent += [(topic.replace("b1", "b2"), payload) for topic, payload in own]
        for topic, payload in sent:
            subscriber.client.publish(topic, payload, qos=1).wait_for_publish(10)
        # The group's message has a code of b1: that one obeys.
        one.wait_for("interval 7 ms by command", 10)
        wait_until(lambda: two.printed().count("refused: wrong code") == 2, 10, "two refusals")
        fine = send.messages([other], "test", "interval", body | {"interval_ms": 77})
        subscriber.client.publish(*fine[0], qos=1).wait_for_publish(10)
        two.wait_for("interval 77 ms by command", 10)
    assert "interval 7 ms" not in two.printed()
