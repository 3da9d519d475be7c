"""A publisher who forges what boards say to the operator, and sends again what they once said: no
command and no update is done, refused or taken back for it."""

import dataclasses
import json

import paho.mqtt.client as paho
import pytest
from bench import Subscriber
from commands import seal
from patience import PATIENCE, wait_until
from umqtt_board import cli
from umqtt_board.ota import counters, fileset, giving, keys, reports
from umqtt_board.ota.send import LATE_MOST, Session
from update_kit import board_cli

KEY, OTHER = "ab" * 32, "cd" * 32
COUNT = 1000
HOUR = 3_600_000  # ms
SET = fileset.Set({"app.mpy": b"a" * 100000}, "9.9")
DONE = {"online": True, "set": SET.id, "trial": False, "failed": None, "count": COUNT}
BACK = {"online": True, "set": "", "failed": {"id": SET.id, "why": "it crashed"}, "count": COUNT}
REFUSED = {"id": SET.id, "state": "refused", "why": "no", "have": 0, "count": COUNT}


def said(level, report, key=KEY, device="oven", group="g"):
    """(topic, payload) as the board with this key publishes it."""
    topic = f"fleet/{group}/{device}/{level}"
    return topic, seal(bytes.fromhex(key), topic.encode(), json.dumps(report).encode())


def forged(level, report):
    """What somebody without the key may publish who has read this page, and has recorded."""
    good_topic, good = said(level, report)
    body, old = json.dumps(report).encode(), said(level, report | {"count": COUNT - 1})[1]
    yield good_topic, body
    yield good_topic, body[:-1] + b',"code":"' + b"0" * 64 + b'"}'
    yield good_topic, body[:-1] + b',"code":""}'
    yield said(level, report, key=OTHER)
    # Its own words of another time, of another topic, of another board, and with others put in.
    yield good_topic, old
    yield good_topic, old.replace(b"%d" % (COUNT - 1), b"%d" % COUNT)
    yield good_topic, said({"status": "ota", "ota": "status"}[level], report)[1]
    yield good_topic, said(level, report, device="oven2")[1]
    yield good_topic, said(level, report, group="h")[1]
    yield good_topic, good[:-1] + b',"count":9999999}'
    yield good_topic, good.replace(b", ", b",  ", 1)
    yield good_topic, good + b" "
    yield good_topic + "/", good
    yield "fleet/g/oven", good
    yield "", good


@pytest.fixture
def session():
    """A session that never connects and has sent an update to one board, which receives it."""
    made = Session("g", [keys.Record("g", "oven", KEY)], {"host": "h", "port": 1}, None)
    made._set = SET
    oven = made.members["oven"]
    oven.state, oven.count, oven.own, oven.seen = "receiving", COUNT, {COUNT}, COUNT - 1
    return made, oven


def hear(session, topic, payload):
    message = paho.MQTTMessage(topic=topic.encode())
    message.payload = payload
    session._on_message(None, None, message)


@pytest.mark.parametrize("level, report", [("status", DONE), ("status", BACK), ("ota", REFUSED)])
def test_only_what_the_board_itself_says_now_is_believed(session, level, report):
    session, oven = session
    # That somebody answers with another key is told, and changes nothing else.
    before = dataclasses.asdict(oven) | {"foreign": True}
    for topic, payload in forged(level, report):
        hear(session, topic, payload)
        assert dataclasses.asdict(oven) | {"foreign": True} == before, (topic, payload)
    hear(session, *said(level, report))
    assert oven.state in ("done", "taken back", "refused") and oven.final


def test_nothing_counts_before_the_first_command_of_the_session(session):
    session, oven = session
    oven.state, oven.count, oven.own = "waiting", 0, set()
    hear(session, *said("status", DONE))
    hear(session, *said("ota", REFUSED))
    assert oven.state == "waiting" and oven.status == {}


# Each ends with a brace: seal() puts the code before it.
@pytest.mark.parametrize("body", [
    b"[}", b"7}", b"\xff}", b"}", b"[" * 5000 + b"}", b"{}", b'{"count": "9999"}',
    b'{"count": 9999, "online": true, "failed": "x"}', b'{"count": 9999, "id": "ID", "state": 7}',
    b'{"count": 9999, "id": "ID", "state": "receiving", "have": "1"}',
    b'{"count": 9999, "id": "ID", "state": "refused", "why": [1]}',
    b'{"count": 9999, "id": "ID", "state": "done"}', b'{"count": 9999, "start": 7}',
    b'{"count": 9999, "start": "aaaaaaaa", "up": "1"}',
    b'{"count": 9999, "start": "aaaaaaaa", "refused_late": "1"}',
    b'{"count": 9999, "id": "ID", "state": "refused", "x": "' + b"x" * reports.LONGEST + b'"}',
])  # fmt: skip
def test_a_board_that_says_nonsense_with_its_key_ends_nothing(session, body):
    session, oven = session
    before = dataclasses.asdict(oven) | {"heard": 0, "foreign": True, "seen": 9999}
    body = body.replace(b"ID", SET.id.encode())
    for level in ("status", "ota"):
        topic = f"fleet/g/oven/{level}"
        hear(session, topic, body)
        hear(session, topic, seal(bytes.fromhex(KEY), topic.encode(), body))
    assert before == dataclasses.asdict(oven) | {
        "heard": 0, "foreign": True, "seen": 9999, "status": {}}  # fmt: skip


def test_a_topic_that_is_no_text_ends_no_session(session):
    session, oven = session
    message = paho.MQTTMessage(topic=b"fleet/g/\xff/status")
    message.payload = said("status", DONE)[1]
    session._on_message(None, None, message)
    assert oven.state == "receiving"


def test_what_a_board_says_it_has_is_within_the_set(session):
    session, oven = session
    for have in (-5, 10**12):
        hear(session, *said("ota", REFUSED | {"state": "receiving", "have": have}))
        assert 0 <= oven.have <= len(SET.run)


def run_cli(capsys, *arguments):
    """Exit status and what the command line said."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return ended.value.code or 0, shown.out + shown.err


def test_the_command_line_with_a_forger_at_a_real_broker(broker, capsys):
    """The board is off; somebody answers in its name, with what it said to an earlier update."""
    flat = {"device": "oven", "group": "forged", "broker.host": "127.0.0.1",
            "broker.port": broker.port}  # fmt: skip
    giving.give(flat, "oven")
    record = keys.load("forged", "oven")
    made = fileset.of_project()
    replies = []

    def answer(client, _, message):
        count = json.loads(message.payload[: message.payload.index(b"}") + 1])["count"]
        for level, report in (("status", DONE), ("status", BACK), ("ota", REFUSED)):
            told = json.loads(json.dumps(report).replace(SET.id, made.id))
            topic, old = said(level, told | {"count": 7}, record.key, "oven", "forged")
            new = json.dumps(told | {"count": count}).encode()
            for payload in (old, new, new[:-1] + b',"code":"' + b"0" * 64 + b'"}'):
                client.publish(topic, payload, qos=1)
                replies.append(topic)

    forger = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="forger")
    subscribed = []
    forger.on_message = answer
    forger.on_subscribe = lambda *_: subscribed.append(True)
    forger.connect("127.0.0.1", broker.port)
    forger.subscribe("fleet/forged/oven/cmd/+", 1)
    forger.loop_start()
    try:
        wait_until(lambda: subscribed, 10, "a subscription")
        where = ("--device", "oven", "--group", "forged", "--timeout", 2 * PATIENCE)
        for arguments, says in ((("command", *where, "report"), "no answer from oven within"),
                                (("ota", *where), "not taken by oven")):  # fmt: skip
            status, shown = run_cli(capsys, *arguments)
            assert status == 1 and says in shown, shown
            assert "done" not in shown and "refused" not in shown and "taken back" not in shown
        assert len(replies) >= 18
    finally:
        forger.disconnect()
        forger.loop_stop()


def test_an_old_report_that_a_publisher_brings_back_stops_no_command(
    home, boards, broker, monkeypatch
):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port}  # fmt: skip
    key = giving.give(flat, "b1")[0]["command_key"]
    board = boards.make(broker.port, "b1", command_key=key)
    topic, old = "fleet/test/b1/status", []
    with Subscriber(broker.port) as subscriber:
        subscriber.client.message_callback_add(topic, lambda _, __, told: old.append(told.payload))
        board.power_on()
        board.wait_for("first publish acknowledged", 20)
        wait_until(lambda: old, 10, "a report")
        recorded = old[-1]
        board.reset()
        board.wait_for("first publish acknowledged(.|\n)*first publish acknowledged", 20)
        subscriber.client.publish(topic, recorded, 1, True).wait_for_publish(PATIENCE * 10)
        assert board_cli("command", "--device", "b1", "--group", "test", "interval", "7") == 0
    assert board.printed().count("interval refused: it is for another start") == 1
    assert board.printed().count("interval 7000 ms by command") == 1
    # Another computer, whose clock is ahead, commands it; the next command is above that.
    record = keys.load("test", "b1")
    with monkeypatch.context() as patch:
        later = counters.now() + HOUR
        patch.setattr(counters, "now", lambda: later)
        assert board_cli("command", "--device", "b1", "--group", "test", "interval", "8") == 0
    with keys.locked():
        keys.save(record)
    assert board_cli("command", "--device", "b1", "--group", "test", "interval", "9") == 0
    assert board.printed().count("interval 9000 ms by command") == 1


def late(count, start, up, obeyed=1):
    """A report of a board that has refused the command with this counter as late."""
    return said("status", {"online": True, "count": obeyed, "start": start, "up": up,
                           "refused_late": count})  # fmt: skip


def test_a_command_that_a_board_goes_on_refusing_as_late_is_sent_again_a_few_times_only(session):
    session, oven = session
    for n in range(LATE_MOST + 2):
        oven.last = COUNT + n
        if n:
            hear(session, *late(COUNT + n - 1, "aaaaaaaa", 0))  # said again, of the one before
            assert not oven.again and oven.late == n
        hear(session, *late(COUNT + n + 1, "cccccccc", 0))  # of another operator's command
        assert not oven.again and oven.late == n
        for _ in range(2):
            hear(session, *late(COUNT + n, f"{n:08x}", n))
            assert oven.again == (n < LATE_MOST) and oven.late == n + 1
        assert (oven.start, oven.up) == (f"{n:08x}", n)
    assert f"{LATE_MOST + 2} times refused as late: is the time right" in oven.why


def test_once_the_board_has_answered_an_old_report_names_no_start(session):
    session, oven = session
    old = said("status", {"online": True, "count": COUNT - 1, "start": "aaaaaaaa", "up": 9})
    oven.count = 0
    hear(session, *old)
    assert (oven.start, oven.up) == ("aaaaaaaa", 9)
    oven.count = oven.last = COUNT
    oven.own = {COUNT}
    hear(session, *late(COUNT, "bbbbbbbb", 3))
    hear(session, *old)
    assert (oven.start, oven.up) == ("bbbbbbbb", 3) and oven.again


@pytest.mark.parametrize("obeyed, state", [(COUNT + 9, "sent"), (COUNT + 10, "done")])
def test_what_another_operator_sent_between_is_not_taken_for_a_command_refused_as_late(
    session, obeyed, state
):
    session, oven = session
    session._set, oven.count, counts = None, 0, iter((COUNT, COUNT + 10))
    session._count = lambda records: next(counts)
    oven.own, sent = set(), []

    def publish(topic, payload, qos):
        sent.append(json.loads(payload.rpartition(b".")[0]))
        if len(sent) == 1:
            hear(session, *late(COUNT, "bbbbbbbb", 3, obeyed=COUNT + 9))
        else:
            hear(session, *said("status", {"online": True, "count": obeyed, "start": "bbbbbbbb",
                                           "interval_ms": 1}))  # fmt: skip

    session._client.publish = publish
    session.command("interval", {"interval_ms": 1}, 0.5)
    assert [(body["count"], body.get("start")) for body in sent] == [
        (COUNT, None), (COUNT + 10, "bbbbbbbb")]  # fmt: skip
    assert oven.state == state


class Boards:
    """Boards that obey as firmware/commands.py does, at a broker that is a function call.

    counts   dict: device -> its counter
    reports  whether they report at each connection
    fails    whether they cannot keep what they have taken
    """

    def __init__(self, counts, reports=True, fails=False):
        self.counts, self.fails, self.sent = counts, fails, []
        self.interval = dict.fromkeys(counts, 5000)
        records = [keys.Record("g", name, KEY) for name in counts]
        with keys.locked():
            for record in records:
                keys.save(record)
        self.session = Session("g", records, {"host": "h", "port": 1}, keys.next_count)
        self.session._client.publish = self.take
        for name in counts:
            if reports:
                self.say(name)

    def say(self, name, **more):
        report = {"online": True, "count": self.counts[name], "start": "aaaaaaaa", "up": 9,
                  "interval_ms": self.interval[name]}  # fmt: skip
        hear(self.session, *said("status", report | more, device=name))

    def take(self, topic, payload, qos):
        body = json.loads(payload[: payload.rfind(b"}") + 1])
        self.sent.append((topic, body["count"]))
        for name in self.counts if "/-all/" in topic else [topic.split("/")[2]]:
            if body["count"] > self.counts[name]:
                self.counts[name] = body["count"]
                self.interval[name] = 5000 if self.fails else body["interval_ms"]
            self.say(name)  # sooner or later

    def command(self, seconds=0.5):
        self.session.command("interval", {"interval_ms": 2000}, seconds)
        return {name: member.state for name, member in self.session.members.items()}


@pytest.mark.parametrize("reports", [True, False])
def test_a_board_whose_counter_is_ahead_gets_a_command_above_it(home, reports):
    boards = Boards({"oven": counters.now() + HOUR}, reports)
    assert boards.command() == {"oven": "done"} and boards.interval == {"oven": 2000}
    assert len(boards.sent) == 2 - reports
    assert keys.load("g", "oven").count == boards.counts["oven"] > counters.now()


def test_a_board_that_has_taken_a_command_and_not_acted_has_not_obeyed(home):
    boards = Boards({"oven": 0}, fails=True)
    assert boards.command() == {"oven": "sent"}
    assert boards.session.members["oven"].why == "it measures every 5000 ms"


def test_a_counter_months_ahead_is_not_followed(home):
    ahead = counters.now() + 1000 * HOUR
    boards = Boards({"oven": ahead, "fridge": 0}, False)
    assert boards.command() == {"oven": "refused", "fridge": "done"}
    assert "keys revoke --device oven --group g, and flash it" in (
        boards.session.members["oven"].why)
    assert keys.load("g", "oven").count < counters.now() + HOUR
    again = Boards({"oven": ahead})
    assert again.command() == {"oven": "refused"} and again.sent == []


def test_a_hostile_board_raises_no_other_boards_counter(home):
    boards = Boards({"oven": counters.now() + 500 * HOUR, "fridge": 0, "lamp": 0})
    assert set(boards.command().values()) == {"done"}
    assert max(keys.load("g", name).count for name in ("fridge", "lamp")) < counters.now() + HOUR
    assert max(boards.counts["fridge"], boards.counts["lamp"]) < counters.now() + HOUR


@pytest.mark.parametrize("level, report", [("status", DONE), ("status", BACK), ("ota", REFUSED)])
def test_what_a_board_said_after_another_computers_command_is_no_answer(session, level, report):
    """Recorded, with a counter above that of the command which the board is sent now."""
    session, oven = session
    oven.last = COUNT
    hear(session, *said(level, report | {"count": COUNT + 7}))
    assert oven.state == "receiving" and oven.again
    # Once it has obeyed, another computer may command it, too.
    hear(session, *said("status", {"online": True, "count": COUNT}))
    hear(session, *said(level, report | {"count": COUNT + 7}))
    assert oven.final and not oven.again


def test_a_counter_that_rises_with_each_answer_is_followed_a_few_times_only(home):
    boards = Boards({"oven": counters.now() + HOUR}, False)
    take = boards.take

    def rises(topic, payload, qos):
        boards.counts["oven"] += HOUR
        take(topic, payload, qos)

    boards.session._client.publish = rises
    assert boards.command(PATIENCE) == {"oven": "sent"}
    assert len(boards.sent) == 1 + LATE_MOST
