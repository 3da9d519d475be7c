"""The serial line of the virtual board says what a chip's says, however the bytes are cut."""

from umqtt_board.virtual.console import FRIENDLY_GREETING, PROMPT_MARK, RAW_GREETING, Console

BANNER = b"MicroPython v1; linux\r\n" + FRIENDLY_GREETING + b">>> "
BOOT = b"from boot\n" + PROMPT_MARK + BANNER
SOFT_BOOT = BOOT + b"\r\n" + RAW_GREETING + b">"


def _fed(raw, data, size):
    console = Console(raw)
    shown = b"".join(console.feed(data[i : i + size]) for i in range(0, len(data), size))
    return console, shown + console.close()


def test_mark_is_cut_out_and_newlines_get_a_return():
    for size in range(1, len(BOOT) + 1):
        console, shown = _fed(False, BOOT, size)
        assert shown == b"from boot\r\n" + BANNER, size
        assert console.at_prompt and not console.raw


def test_soft_reset_in_the_raw_repl_comes_back_in_the_raw_repl():
    for size in range(1, len(SOFT_BOOT) + 1):
        console, shown = _fed(True, SOFT_BOOT, size)
        # boot.py printed while the REPL was raw: left as it is
        assert shown == b"from boot\n" + RAW_GREETING + b">", size
        assert console.raw


def test_mode_follows_the_greetings():
    console = Console()
    console.feed(BOOT)
    console.feed(b"\r\n" + RAW_GREETING + b">OK")
    assert console.raw
    assert console.feed(b"a\nb\x04") == b"a\nb\x04"
    console.feed(b"\r\n" + BANNER)
    assert not console.raw
    assert console.feed(b"a\nb\r\nc\r") + console.feed(b"\nd") == b"a\r\nb\r\nc\r\nd"


def test_what_only_looks_like_the_mark_is_shown():
    _, shown = _fed(False, PROMPT_MARK[:4] + b"x" + PROMPT_MARK[:3], 2)
    assert shown == PROMPT_MARK[:4] + b"x" + PROMPT_MARK[:3]
