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


def test_a_command_below_that_of_another_sender_is_told_and_sent_again(home, boards, broker):
    """A refused update, say, of a computer whose clock is ahead: no status tells of it."""
    flat = {"device": "b1", "group": "test", "broker.host": "h", "broker.port": broker.port}
    board = boards.make(broker.port, "b1", command_key=giving.give(flat, "b1")[0]["command_key"])
    where = {"host": "127.0.0.1", "port": broker.port}
    board.power_on()
    board.wait_for("first publish acknowledged", 20)

    def ahead(records, above=0):
        return keys.next_count(records, above) + 3_600_000

    with Session("test", [keys.load("test", "b1")], where, ahead) as session:
        session.send("ota", {"sha": "none"})
        board.wait_for("refused", 20)
    with Session("test", [keys.load("test", "b1")], where, keys.next_count) as session:
        session.command("interval", {"interval_ms": 6000}, PATIENCE * 20)
    member = session.members["b1"]
    assert (member.state, member.overtaken) == ("done", 1)
    board.wait_for("interval 6000 ms by command", 20)  # its answer may be here before its line
    assert board.printed().count("interval 6000 ms by command") == 1
