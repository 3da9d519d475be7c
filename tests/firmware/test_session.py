"""What boards say to a command or an update, and what the tool makes of it."""

import json
import random
import time
from types import SimpleNamespace

import pytest
from certificates import Authority
from umqtt_board.errors import BoardError
from umqtt_board.ota import counters, fileset, keys, ota_cli, reports, send, trust

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def session():
    """A session that never connects, with an update of one board that it has sent the command."""
    made = send.Session("g", [keys.Record("g", "oven", "00" * 16)], {"host": "h", "port": 1},
                            lambda records: 1)  # fmt: skip
    made._set = fileset.Set({"app.mpy": random.Random(1).randbytes(100000)}, "9.9")
    oven = made.members["oven"]
    oven.state, oven.count, oven.own = "sent", 1, {1}
    return made, oven


def told(session, member, **said):
    session._hear_update(member, {"id": session._set.id, "size": 100000} | said)


def test_pieces_go_on_from_what_the_board_has(session):
    session, oven = session
    sent = []
    session._client.publish = lambda topic, piece, qos: sent.append((topic, piece[4:8]))
    told(session, oven, state="receiving", have=0)
    session._pieces(oven)
    window = session._set.window(0, send.WINDOW)
    assert len(sent) == send.WINDOW and oven.sent == window
    assert {topic for topic, _ in sent} == {"fleet/g/oven/cmd/piece"}
    told(session, oven, state="receiving", have=window // 2)
    session._pieces(oven)
    assert oven.sent == window // 2 + window, "no piece twice while it gets on"
    # It has started again and has less: from there.
    told(session, oven, state="receiving", have=window // 4)
    del sent[:]
    session._pieces(oven)
    assert sent[0][1] == (window // 4).to_bytes(4, "big")


def test_a_silent_board_is_asked_more_and_more_rarely(session, monkeypatch):
    session, oven = session
    now = [1000.0]
    monkeypatch.setattr(send.time, "monotonic", lambda: now[0])
    session._client.publish = lambda topic, piece, qos: sent.append(now[0])
    sent = []
    told(session, oven, state="receiving", have=0)
    for _ in range(900):
        session._push([oven], {})
        now[0] += 0.1
    times = sorted(set(sent))
    pauses = [round(b - a) for a, b in zip(times, times[1:])]
    assert pauses == [2, 4, 8, 16, 30]
    told(session, oven, state="receiving", have=0)
    assert oven.quiet == send.QUIET_S


def test_what_a_status_says_of_another_time_or_set_ends_nothing(session):
    session, oven = session
    id = session._set.id
    failed = {"online": True, "set": "", "trial": False, "failed": {"id": id, "why": "it crashed"}}
    session._hear_status(oven, failed)
    assert oven.state == "sent", "an earlier try with the same set"
    told(session, oven, state="receiving", have=0)
    session._hear_status(oven, {"online": True, "set": "12345678", "trial": False})
    session._hear_status(oven, {"online": False})
    assert oven.state == "receiving"
    told(session, oven, state="restarting", have=100000)
    session._hear_status(oven, {"online": True, "set": id, "trial": True})
    assert oven.state == "on trial" and not oven.final
    session._hear_status(oven, failed)
    assert (oven.state, oven.why) == ("taken back", "it crashed")


def test_a_trial_that_goes_on_says_once_which_command_ends_it(session, monkeypatch, capsys):
    session, oven = session
    now, said = [1000.0], []
    monkeypatch.setattr(send.time, "monotonic", lambda: now[0])
    status = {"online": True, "set": session._set.id, "trial": True}

    def work(show):
        session._hear_status(oven, status)
        for waited in (0, ota_cli.TRIAL_S, 0):
            now[0] += waited
            session._hear_status(oven, status)
            show()
            said.append(capsys.readouterr().out)
        session._hear_status(oven, status | {"trial": False})

    again = ota_cli._again("broker.example:8883", "my ca.pem", None, None)
    assert ota_cli._run(session, work, again, 1) == 0
    ends = ("umqtt-board command --device oven --group g --broker broker.example:8883 "
            f"--ca 'my ca.pem' commit {session._set.id}\n")  # fmt: skip
    assert [text.count(ends) for text in said] == [0, 1, 0]


def test_a_board_that_is_starting_with_the_set_is_not_said_to_have_refused_it(session, capsys):
    session, oven = session
    assert ota_cli._run(session, lambda show: told(session, oven, state="restarting"), "", 1) == 1
    said = capsys.readouterr().err
    assert "still restarting when --timeout was over: oven" in said and "not taken" not in said


@pytest.mark.parametrize("of, ends", [
    ({"set": "a1b2c3d4", "trial": True}, True), ({"set": "a1b2c3d4", "trial": False}, False),
    ({"set": "a1b2\x1b[2J", "trial": True}, False),
])  # fmt: skip
def test_an_update_refused_for_another_ones_trial_says_which_command_ends_that(
    session, of, ends, capsys
):
    """The board's status is of before the command: a refusal brings no other."""
    session, oven = session

    def work(show):
        session._on_message(None, None, report("00" * 16, **{"count": 0, **of}))
        told(session, oven, state="refused", why="the last update is still on trial")

    assert ota_cli._run(session, work, " --broker h", 1) == 1
    said = capsys.readouterr().err
    command = "umqtt-board command --device oven --group g --broker h commit a1b2c3d4 ends the"
    before = "oven is still on trial with the set a1b2c3d4, which came before this one"
    assert (command in said) is (before in said) is ends and "\x1b" not in said


def test_a_set_that_is_on_trial_and_comes_again_is_not_said_to_leave_the_security_version(session):
    """It does when its trial ends well."""
    session, oven = session
    session._set.seal(b"x")
    session._hear_status(oven, {"online": True, "set": session._set.id, "trial": True})
    assert "lowest security version stays" not in oven.why and "on trial already" in oven.why


@pytest.mark.parametrize("envelope, received, says", [
    (b"", False, ""), (b"x", True, ""), (b"x", False, "no signature"),
])  # fmt: skip
def test_a_signed_set_that_a_board_runs_already_was_not_looked_at(
    session, envelope, received, says
):
    session, oven = session
    session._set.seal(envelope)
    if received:
        told(session, oven, state="receiving", have=1)
    session._hear_status(oven, {"online": True, "set": session._set.id})
    assert oven.state == "done"
    assert says in oven.why and bool(oven.why) is bool(says)


def test_a_board_that_makes_room_is_asked_again(session, monkeypatch):
    session, oven = session
    asked = []
    monkeypatch.setattr(session, "send", lambda name, body, members: asked.append(name))
    oven.asked = send.time.monotonic()
    session._push([oven], {})
    assert not asked
    told(session, oven, state="making room")
    assert oven.state == "sent" and "room" in oven.why
    now = send.time.monotonic() + send.RESTART_S + 1
    monkeypatch.setattr(send.time, "monotonic", lambda: now)
    session._push([oven], {})
    assert asked == ["ota"]


def test_a_board_that_began_anew_without_the_update_gets_its_command_again(session, monkeypatch):
    """What a board has of a signed set lies in memory until the signature was looked at."""
    session, oven = session
    now, sent = [1000.0], []
    monkeypatch.setattr(send.time, "monotonic", lambda: now[0])
    session._client.publish = lambda topic, payload, qos: sent.append(topic.rpartition("/")[2])
    oven.start = "a"
    session._command({}, [oven])
    told(session, oven, state="receiving", have=0)

    def goes_on(seconds):
        del sent[:]
        for _ in range(seconds * 10):
            session._push([oven], {})
            now[0] += 0.1
        return sent.count("ota")

    assert goes_on(40) == 0, "the board is only slow"
    oven.start = "b"
    assert goes_on(20) == 1 and oven.state == "sent"
    told(session, oven, state="receiving", have=0)
    assert goes_on(40) == 0 and "piece" in sent


def report(key, **said):
    """What a broker brings of the board g/oven with that key."""
    topic = "fleet/g/oven/status"
    body = json.dumps({"online": True, "count": 1, **said}).encode()
    payload = body[:-1] + b',"code":"' + reports.code(key, topic, body) + b'"}'
    return SimpleNamespace(topic=topic, payload=payload)


@pytest.mark.parametrize("store, says", [({"live": 7, "held": 5}, "7 messages wait in its store"),
                                         ({"live": "7"}, ""), ([7], ""), (None, "")])  # fmt: skip
def test_a_report_says_how_much_waits(session, store, says):
    session, oven = session
    session._set, session.send = None, lambda name, body: setattr(oven, "last", 1)
    session._on_message(None, None, report("00" * 16, store=store))
    session.command("report", {}, 5)
    assert (oven.state, oven.why) == ("done", says)


FOREIGN = ["was heard with a key that this computer does not have",
           "or somebody forges its reports", "If you know of such a flash, `umqtt-board keys "
           "import`", "Otherwise leave the keys as they are"]  # fmt: skip
VOID = ["was heard with a key that is void here", "`make flash` does it",
        "If it was flashed, it has not connected since"]  # fmt: skip
SILENT = ["Nothing was heard of oven", "keys forget"]


# Whoever may publish there can say such a thing, too: for that alone no key is replaced.
@pytest.mark.parametrize("heard, says", [(["11"], FOREIGN), (["22"], VOID), ([], SILENT),
                                         (["22", "11"], FOREIGN)])  # fmt: skip
def test_a_board_that_answers_with_another_key_is_not_to_be_forgotten(
    session, capsys, heard, says
):
    session, oven = session
    oven.record.former = ["22" * 16]
    for key in heard:
        session._on_message(None, None, report(key * 16))
    assert ota_cli._run(session, lambda show: None, "", 1) == 1
    said = capsys.readouterr().err
    for text in FOREIGN + VOID + SILENT:
        assert (text in said) is (text in says), said


def test_a_report_says_which_set_was_taken_back(session):
    session, oven = session
    session._set, session.send = None, lambda name, body: setattr(oven, "last", 1)
    session._on_message(None, None, report("00" * 16, store={"live": 0},
                                           failed={"id": "a1b2", "why": "3 crashes"}))  # fmt: skip
    session.command("report", {}, 5)
    assert oven.why == "0 messages wait in its store; it took the set a1b2 back: 3 crashes"


def test_a_set_that_was_taken_back_before_is_told_of_when_it_is_sent_again(session, capsys):
    session, oven = session
    failed = {"id": session._set.id, "why": "3 crashes in a row"}

    def work(show):
        for _ in range(2):
            session._hear_status(oven, {"online": True, "failed": failed})
            show()
        oven.state = "done"

    assert ota_cli._run(session, work, "", 1) == 0
    assert capsys.readouterr().out.count("oven took this set back before: 3 crashes in a row") == 1


@pytest.mark.parametrize("failed, tells", [
    ({"why": "3 crashes in a row"}, 1), ({"id": "12345678", "why": "3 crashes in a row"}, 0),
    ("nonsense", 0), (None, 0),
])  # fmt: skip
def test_a_set_that_the_board_has_just_taken_back_is_told_of_as_its_update_begins(
    session, capsys, failed, tells
):
    """By the status of before: a board forgets it when it takes the command."""
    session, oven = session
    made, session._set = session._set, None
    if isinstance(failed, dict):
        failed = {"id": made.id, **failed}
    session.send = lambda name, body, members: session._on_message(
        None, None, report("00" * 16, count=0, failed=failed))  # fmt: skip

    def work(show):
        def ends():
            show()
            oven.state = "done"

        session.update(made, 1, 1, 5, ends)

    assert ota_cli._run(session, work, "", 1) == 0
    said = capsys.readouterr().out
    assert said.count("oven took this set back before: 3 crashes in a row") == tells


@pytest.mark.parametrize("revoked, says", [
    (False, "clock is right: umqtt-board keys revoke --device oven --group g, and flash it"),
    (True, "its key is revoked: flash it, and it gets another one"),
])  # fmt: skip
def test_a_counter_far_ahead_asks_for_what_was_not_done_yet(session, revoked, says):
    session, oven = session
    oven.seen, oven.record.revoked = counters.now() + 400 * 86_400_000, revoked
    assert session._goes_out(oven, {"oven": counters.now()}) is False
    assert oven.state == "refused" and oven.why.endswith(says)


def test_a_board_that_was_flashed_here_meanwhile_is_told_of(home, session, capsys):
    session, oven = session
    with keys.locked():
        keys.save(keys.Record("g", "oven", "11" * 16))
    session._on_message(None, None, report("11" * 16))
    assert ota_cli._run(session, lambda show: None, "", 1) == 1
    said = capsys.readouterr().err
    assert "oven was given another key here while this command ran: run it again" in said
    assert "computer has flashed it" not in said and "keys forget" not in said


@pytest.mark.parametrize("data, says", [
    (b"\xc3\xb6del", "is not right"), (b"\xff", "is not right"), (b"", "is empty"),
    (b"\n", "is empty"),
])  # fmt: skip
def test_a_file_that_is_no_authority_of_a_broker_is_one_sentence(tmp_path, data, says):
    """An empty one would stand for whomever the system trusts."""
    (tmp_path / "ca").write_bytes(data)
    with pytest.raises(BoardError, match=f"The CA certificate {tmp_path}/ca {says}") as found:
        trust.context({"ca": str(tmp_path / "ca")})
    assert "_ssl" not in str(found.value)


@pytest.mark.parametrize("given, says, warns", [
    (None, "broker one:1883, by the settings of a\n", "settings of c, d name another broker"),
    ("one:1883", "", "")])  # fmt: skip
def test_a_group_with_two_brokers_is_told_which_of_them_it_is(given, says, warns, capsys):
    at = {"a": ("one", 1883), "b": ("one", 1883), "c": ("two", 1883), "d": ("one", 8883)}
    records = [keys.Record("g", name, "00" * 16, broker={"host": host, "port": port})
               for name, (host, port) in at.items()] + [keys.Record("g", "e", "00" * 16)]
    assert ota_cli._where(records, given, None, None, None)["host"] == "one"
    ota_cli._where(records[:1], given, None, None, None)
    said = capsys.readouterr()
    assert said.out.strip() == says.strip() and (warns in said.err if warns else not said.err)


def test_a_silent_board_of_another_broker_is_not_to_be_forgotten(capsys):
    record = keys.Record("g", "far", "00" * 16, broker={"host": "two", "port": 1883})
    made = send.Session("g", [record], {"host": "one", "port": 1883}, lambda records: 1)
    made._client.publish = lambda *_, **__: None
    assert ota_cli._run(made, lambda show: made.command("report", {}, 0, show), "") == 1
    said = capsys.readouterr().err
    assert "Nothing was heard of far, whose settings name another broker" in said
    assert "forget" not in said


@pytest.mark.parametrize("key, says", [
    ("key", ""), ("none", "none: No such file or directory"), ("garbage", "not the key of it"),
    ("other", "the key is that of another certificate"),
])  # fmt: skip
def test_an_operators_certificate_and_key_that_are_no_pair_are_told_in_our_words(
    tmp_path, key, says
):
    authority = Authority("fleet")
    for name, data in zip(("cert", "key"), authority.issue("operator")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "other").write_bytes(authority.issue("operator")[1])
    (tmp_path / "garbage").write_bytes(b"garbage")
    broker = {"cert": str(tmp_path / "cert"), "key": str(tmp_path / key)}
    if not says:
        trust.context(broker)
        return
    with pytest.raises(BoardError, match=f"--cert {tmp_path}/cert: .*{says}") as found:
        trust.context(broker)
    assert "SSL" not in str(found.value) and "X509" not in str(found.value)


@pytest.mark.parametrize("before, obeyed, behind, lost", [
    ([109, 100, 95], 100, False, False), ([109, 95], 0, True, False), ([], 0, True, False),
    ([109, 108, 107, 106], 0, False, True), ([109, 108, 107, 100], 100, False, False),
    ([109, 108, 107, 99], 0, True, False), (["x", None, 100.0, True], 0, True, False),
])  # fmt: skip
def test_a_command_that_others_have_overtaken_is_sent_again_only_if_it_was_refused(
    session, before, obeyed, behind, lost
):
    """A counter above that of a command does not say that the board has refused it."""
    session, oven = session
    oven.count, oven.last, oven.own = 100, 100, {100}
    oven.hear_counts({"count": 99, "before": [98, 97]})
    assert (oven.obeyed, oven.behind, oven.lost) == (0, False, False)
    for _ in range(2):
        oven.hear_counts({"count": 110, "before": before})
        assert (oven.obeyed, oven.behind, oven.lost) == (obeyed, behind, lost)
        assert oven.again is behind


def test_whoever_cannot_know_whether_a_board_has_obeyed_says_so(session, capsys):
    session, oven = session
    oven.lost, oven.start, oven.seen, oven.last = True, "aaaaaaaa", 9, 8
    assert ota_cli._run(session, lambda show: None, "", None) == 1
    ota_cli._tell_of_late(session)
    shown = capsys.readouterr().err
    assert "oven may have taken it, or not: more than 4 commands of other computers" in shown
    assert "not taken" not in shown and "on connecting" not in shown


def heard(session, **said):
    session._on_message(None, None, report("00" * 16, **said))


def test_what_comes_when_the_time_is_over_changes_nothing_that_is_told(session, capsys):
    """Half of what is told was of before the report, half of after: nothing was heard of the
    command, and no board would obey it later."""
    session, oven = session

    def work(show):
        session.command("restart", {}, 0, show)
        heard(session, count=oven.last, start="aaaaaaaa")

    session._client.publish = lambda *_, **__: None
    assert ota_cli._run(session, work, "", None) == 1
    ota_cli._tell_of_late(session)
    shown = capsys.readouterr().err
    assert "no answer from oven within --timeout: it may have been obeyed" in shown
    assert "not taken" not in shown and "oven may still obey it on connecting" in shown


def test_a_board_that_has_obeyed_and_shows_no_effect_yet_is_not_said_to_have_refused(
    session, capsys
):
    session, oven = session

    def work(show):
        heard(session, count=1, start="aaaaaaaa", interval_ms=50000)
        session.command("interval", {"interval_ms": 70000}, 0.1, show)

    session._client.publish = lambda *_, **__: None
    assert ota_cli._run(session, work, "", None) == 1
    ota_cli._tell_of_late(session)
    shown = capsys.readouterr().err
    assert "taken by oven, without a sign of its effect" in shown
    assert "not taken" not in shown and "Nothing was heard" not in shown


def test_a_board_whose_counter_is_out_of_reach_is_waited_for_no_longer_and_reached_next_time(
    session, capsys
):
    """Its other commands came from computers that were ahead: this one heard of none of them."""
    session, oven = session
    above = []
    session._count = lambda records, **more: above.append(more.get("above", 0)) or 2
    session._client.publish = lambda *_, **__: heard(
        session, count=110, before=[109, 108, 107, 106], start="aaaaaaaa")  # fmt: skip
    began = time.monotonic()
    assert ota_cli._run(session, lambda show: session.command("restart", {}, 60, show), "", None)
    assert time.monotonic() - began < 30 and above == [0, 110]
    assert "oven may have taken it, or not" in capsys.readouterr().err


def test_a_connection_that_has_just_ended_is_left_without_an_error(session):
    session, _ = session

    def gone():
        raise OSError(9, "Bad file descriptor")

    session._client.disconnect = gone
    assert session.__exit__() is None
