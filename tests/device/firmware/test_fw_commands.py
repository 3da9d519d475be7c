"""Remote commands: the code, the counter, and what is refused. Both interpreters."""
# also: micropython32

import json
from binascii import hexlify

import commands
from commands import Commands, Refused, hmac_sha256, sign

KEY = b"0123456789abcdef"
TOPIC = b"fleet/g/oven/cmd/interval"


def test_hmac_of_rfc_4231():
    for key, data, code in (
        (b"\x0b" * 20, b"Hi There",
         b"b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (b"Jefe", b"what do ya want for nothing?",
         b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First",
         b"60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
    ):
        assert hexlify(hmac_sha256(key, data)) == code


def board(count=0):
    kept = []
    return Commands(KEY, count, kept.append), kept


def refusal(commands, topic, payload):
    before = commands.count
    try:
        commands.check(topic, payload)
    except Refused as error:
        assert commands.count == before
        return str(error)
    raise AssertionError("obeyed")


def test_valid_command_counts_before_it_acts():
    commands, kept = board()
    body = commands.check(TOPIC, sign(KEY, TOPIC, b'{"count":7,"interval_ms":500}'))
    assert body == {"count": 7, "interval_ms": 500}
    assert kept == [7] and commands.count == 7


def test_repeated_and_older_commands_are_refused():
    commands, kept = board()
    seven = sign(KEY, TOPIC, b'{"count":7}')
    commands.check(TOPIC, seven)
    assert "repeated" in refusal(commands, TOPIC, seven)
    assert "not above 7" in refusal(commands, TOPIC, sign(KEY, TOPIC, b'{"count":6}'))
    commands.check(TOPIC, sign(KEY, TOPIC, b'{"count":8}'))
    assert kept == [7, 8] and commands.refused == 2


def test_a_command_that_was_withheld_expires():
    now = [0]
    commands = Commands(KEY, 0, lambda count: None, lambda: now[0])
    until = 1767268800

    def sent(count):
        return sign(KEY, TOPIC, b'{"count":%d,"until":%d}' % (count, until))

    assert "does not know the time" in refusal(commands, TOPIC, sent(2))
    assert commands.late == 2
    now[0] = until
    commands.check(TOPIC, sent(2))
    assert commands.late == 0
    now[0] = until + 5
    assert "expired 5 s ago" in refusal(commands, TOPIC, sent(3))
    commands.check(TOPIC, sign(KEY, TOPIC, b'{"count":3}'))
    for odd in (b"0", b"-1", b'"7"', b"1e999", b"true", b"1.5", b"[]"):
        body = b'{"count":4,"until":%s}' % odd
        assert "until" in refusal(commands, TOPIC, sign(KEY, TOPIC, body)), odd


def test_a_command_for_one_start_of_the_board_is_for_no_other_and_expires_by_uptime():
    class Uptime:
        s = 7

    now = [0]
    commands = Commands(KEY, 0, lambda count: None, lambda: now[0], Uptime)
    other = Commands(KEY, 0, lambda count: None, lambda: now[0], Uptime)
    assert len(commands.start) == 8 and commands.start != other.start

    def sent(count, up=7, until=1767268800):
        body = {"count": count, "until": until, "start": commands.start, "up": up}
        return sign(KEY, TOPIC, json.dumps(body).encode())

    assert "another start" in refusal(other, TOPIC, sent(1))
    assert other.late == 1
    commands.check(TOPIC, sent(1))
    Uptime.s = 12
    assert "expired 5 s ago" in refusal(commands, TOPIC, sent(2))
    assert commands.late == 2
    # What the counter refuses is not late: nobody is asked to send it anew.
    assert "not above 1" in refusal(commands, TOPIC, sent(1))
    assert commands.late == 2
    now[0] = 1767268801
    assert "expired 1 s ago" in refusal(commands, TOPIC, sent(2, 12))
    commands.check(TOPIC, sent(2, 12, 1767268801))
    for odd in (0, -1, "7", True, 1.5, []):
        assert "up" in refusal(commands, TOPIC, sent(3, odd, 1767268801)), odd
        body = {"count": 3, "start": odd}
        assert "start" in refusal(commands, TOPIC, sign(KEY, TOPIC, json.dumps(body).encode()))


def test_counter_outlives_a_reset():
    commands, kept = board(count=7)
    assert "not above 7" in refusal(commands, TOPIC, sign(KEY, TOPIC, b'{"count":7}'))
    assert kept == []


def test_other_key_topic_or_body_is_refused():
    commands, kept = board()
    body = b'{"count":1}'
    good = sign(KEY, TOPIC, body)
    assert "wrong code" in refusal(commands, TOPIC, sign(b"0123456789abcdeX", TOPIC, body))
    assert "wrong code" in refusal(commands, TOPIC[:-1] + b"x", good)
    assert "wrong code" in refusal(commands, TOPIC, good.replace(b"1", b"2", 1))
    for i in range(64):
        at = len(body) + 1 + i
        other = b"0" if good[at] != 0x30 else b"1"
        assert "wrong code" in refusal(commands, TOPIC, good[:at] + other + good[at + 1 :])
    assert kept == [] and commands.refused == 67


def test_every_truncation_is_refused():
    commands, kept = board()
    good = sign(KEY, TOPIC, b'{"count":7,"interval_ms":500}')
    for length in range(len(good)):
        refusal(commands, TOPIC, good[:length])
        refusal(commands, TOPIC, good[len(good) - length :])
    assert kept == [] and commands.check(TOPIC, good)["count"] == 7


def test_commands_out_of_order_only_ever_go_forward():
    commands, kept = board()
    sent = [sign(KEY, TOPIC, b'{"count":%d}' % count) for count in range(1, 9)]
    obeyed = []
    for count in (3, 1, 5, 5, 4, 8, 2, 7, 6, 8):
        try:
            obeyed.append(commands.check(TOPIC, sent[count - 1])["count"])
        except Refused:
            pass  # late or repeated
    assert obeyed == kept == [3, 5, 8]


GROUP = b"fleet/g/-all/cmd/interval"


def group(body, keys):
    """One command for the boards with these keys."""
    return body + b"".join([sign(key, GROUP, body)[len(body) :] for key in keys])


def test_one_of_several_codes_is_enough_and_no_other_key_finds_its_own():
    keys = [bytes([n]) * 16 for n in range(5)]
    message = group(b'{"count":1}', keys)
    for key in keys:
        assert Commands(key, 0, lambda count: None).check(GROUP, message) == {"count": 1}
    stranger = Commands(b"\x77" * 16, 0, None)
    assert "wrong code" in refusal(stranger, GROUP, message) and not stranger.meant
    # A key that was stolen makes no code for another board, whatever is put around it.
    forged = group(b'{"count":2}', [keys[0]] * 4)
    assert "wrong code" in refusal(Commands(keys[1], 0, None), GROUP, forged)
    # The group's command is none on a board's own topic, nor the other way round.
    assert "wrong code" in refusal(Commands(keys[1], 0, None), TOPIC, message)
    # Codes that are cut or shifted are none.
    for payload in (message[:-1], message[:-65] + message[-64:], message + b".", message + b"0"):
        assert "BODY.CODE" in refusal(Commands(keys[1], 0, None), GROUP, payload)


def test_what_is_no_command_is_refused():
    commands, kept = board()
    code = b"." + b"0" * 64
    for payload in (b"", b".", code, b"x" + code, b"{}" + b"0" * 65, b"{}." + b"0" * 63):
        assert "BODY.CODE" in refusal(commands, TOPIC, payload), payload
    assert "wrong code" in refusal(commands, TOPIC, b"{}." + b"g" * 64)
    long = b'{"count":1,"x":"' + b"x" * 1024 + b'"}'
    assert "1024" in refusal(commands, TOPIC, sign(KEY, TOPIC, long))
    assert kept == []


def test_nonsense_with_a_right_code_is_refused():
    commands, kept = board()
    for body in (b"{", b"[]", b"null", b"{}", b'{"count":"1"}', b'{"count":1.5}',
                 b'{"count":true}', b'{"count":null}', b'{"count":-1}', b'{"count":0}'):
        refusal(commands, TOPIC, sign(KEY, TOPIC, body))
    assert kept == [] and commands.refused == 10


def test_counter_that_cannot_be_kept_stops_the_command():
    def keep(count):
        raise OSError(28)

    commands = Commands(KEY, 0, keep)
    payload = sign(KEY, TOPIC, b'{"count":1}')
    try:
        commands.check(TOPIC, payload)
        raise AssertionError("obeyed")
    except OSError:
        assert commands.count == 0


def test_short_key_is_refused():
    try:
        Commands(b"short", 0, None)
        raise AssertionError("accepted")
    except ValueError as error:
        assert "16 bytes or more, got 5" in str(error)


def test_same():
    assert commands.same(b"ab", bytearray(b"ab"))
    assert not commands.same(b"ab", b"ac")
    assert not commands.same(b"ab", b"abc")


def test_a_report_carries_the_code_of_its_topic_and_stays_json():
    board_, _ = board(count=7)
    body = b'{"id":"ab","count":7}'
    report = board_.seal(b"fleet/g/oven/ota", body)
    code = hexlify(hmac_sha256(KEY, b"fleet/g/oven/ota\n" + body)).decode()
    assert json.loads(report) == {"id": "ab", "count": 7, "code": code}
    assert report == body[:-1] + b',"code":"' + code.encode() + b'"}'
    assert board_.seal(b"fleet/g/oven/status", body) != report
    # Nothing that a board has said is a command, be its topic that of one.
    assert "BODY.CODE" in refusal(board_, TOPIC, board_.seal(TOPIC, b'{"count":8}'))
