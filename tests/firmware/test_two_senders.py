"""Commands of several senders that reach a board at the same time: each is obeyed once."""

from threading import Thread

import pytest
from bench import Subscriber
from patience import PATIENCE, wait_until
from umqtt_board.ota import giving, keys
from umqtt_board.ota.send import Session


@pytest.mark.parametrize("first, body, second, lines", [
    ("restart", {}, "report", ["restart by command"]),
    ("interval", {"interval_ms": 6000}, "restart",
     ["interval 6000 ms by command", "restart by command"]),
])  # fmt: skip
def test_commands_of_two_senders_at_once_are_each_obeyed_once(
    home, boards, broker, link, first, body, second, lines
):
    """That a report names the other's command as the last is no reason to send one again."""
    flat = {"device": "b1", "group": "test", "broker.host": "h", "broker.port": link.port}
    board = boards.make(link.port, "b1", command_key=giving.give(flat, "b1")[0]["command_key"])
    where = {"host": "127.0.0.1", "port": broker.port}
    sessions = [Session("test", [keys.load("test", "b1")], where, keys.next_count) for _ in "12"]
    passed = []
    with Subscriber(broker.port) as subscriber, sessions[0] as one, sessions[1] as two:
        subscriber.client.message_callback_add("fleet/test/b1/cmd/+",
                                               lambda *told: passed.append(told))
        board.power_on()
        board.wait_for("first publish acknowledged", 20)
        members = [made.members["b1"] for made in sessions]
        wait_until(lambda: all(member.start for member in members), 20, "a report")
        link.down()
        senders = []
        for made, name, what in ((one, first, body), (two, second, {})):
            senders.append(Thread(target=made.command, args=(name, what, PATIENCE * 40)))
            senders[-1].start()
            wait_until(lambda: len(passed) == len(senders), 10, "a command at the broker")
        link.up()  # the broker has kept both: they come in one go
        for sender in senders:
            sender.join(PATIENCE * 60)
        for line in lines:
            board.wait_for(line, 20)
    assert [(member.state, member.overtaken) for member in members] == [("done", 0)] * 2
    assert [board.printed().count(line) for line in lines] == [1] * len(lines)


def test_an_update_that_is_refused_tells_its_counter_to_other_senders(home, boards, broker):
    """They learn it from the status, which else comes only on connecting here."""
    flat = {"device": "b1", "group": "test", "broker.host": "h", "broker.port": broker.port}
    board = boards.make(broker.port, "b1", command_key=giving.give(flat, "b1")[0]["command_key"])
    where = {"host": "127.0.0.1", "port": broker.port}
    with Subscriber(broker.port) as subscriber, Session(
            "test", [keys.load("test", "b1")], where, keys.next_count) as session:  # fmt: skip
        board.power_on()
        board.wait_for("first publish acknowledged", 20)
        member = session.members["b1"]
        wait_until(lambda: member.start, 20, "a report")
        session.send("ota", {"sha": "none"})
        wait_until(lambda: subscriber.status[-1].get("count") == member.last, 10, "its counter")
        assert "refused" in board.printed()
