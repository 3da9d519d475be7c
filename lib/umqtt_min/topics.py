"""Checks of topic names and topic filters before anything is sent.

Knows: MQTT 3.1.1, sections 1.5.3 and 4.7. Never does: I/O.
"""


def check_utf8(s):
    """Raise ValueError unless bytes `s` are well-formed UTF-8 without U+0000,
    without surrogates [MQTT-1.5.3-1, -2]."""
    i = 0
    n = len(s)
    while i < n:
        b = s[i]
        i += 1
        if b < 0x80:
            if b == 0:
                raise ValueError("U+0000 in a string")
        else:
            i = _tail(s, i, b)


def _tail(s, i, b):
    # The bytes behind a lead byte, with the first one's bounds (Unicode table 3-7).
    lo = 0xA0 if b == 0xE0 else 0x90 if b == 0xF0 else 0x80
    hi = 0x9F if b == 0xED else 0x8F if b == 0xF4 else 0xBF
    more = 1 if 0xC2 <= b <= 0xDF else 2 if 0xE0 <= b <= 0xEF else 3 if 0xF0 <= b <= 0xF4 else 0
    if not more:
        raise ValueError("not UTF-8")
    while more:
        if i >= len(s) or not lo <= s[i] <= hi:
            raise ValueError("not UTF-8")
        lo = 0x80
        hi = 0xBF
        i += 1
        more -= 1
    return i


def check_name(s, limit):
    """Raise ValueError unless `s` is a topic name to publish to: 1 to `limit`
    bytes, no wildcards [MQTT-3.3.2-2, MQTT-4.7.3-1, -3]."""
    if not 0 < len(s) <= limit:
        raise ValueError("topic %s of %d bytes: 1 to %d" % (_shown(s), len(s), limit))
    for b in s:
        if b == 35 or b == 43:
            raise ValueError("topic %s: wildcard in a topic name" % _shown(s))
    _check_text("topic", s)


def check_filter(s, limit):
    """Raise ValueError unless `s` is a topic filter: `#` last and alone in its
    level, `+` alone in its level [MQTT-4.7.1-2, -3]."""
    n = len(s)
    if not 0 < n <= limit:
        raise ValueError("topic filter %s of %d bytes: 1 to %d" % (_shown(s), n, limit))
    for i in range(n):
        b = s[i]
        if b == 35 or b == 43:
            if i and s[i - 1] != 47 or i + 1 < n and (b == 35 or s[i + 1] != 47):
                raise ValueError("topic filter %s: wildcard out of place" % _shown(s))
    _check_text("topic filter", s)


def matches(wanted, topic):
    """Whether topic filter `wanted` matches a topic name, both bytes-like [MQTT 3.1.1, 4.7]."""
    if topic[0] == 36 and (wanted[0] == 35 or wanted[0] == 43):
        return False  # a wildcard at the start does not match `$SYS` [MQTT-4.7.2-1]
    at = 0  # in the topic
    n = len(topic)
    for i in range(len(wanted)):
        b = wanted[i]
        if b == 35:
            return True
        if b == 43:
            while at < n and topic[at] != 47:
                at += 1
        elif at < n and topic[at] == b:
            at += 1
        else:
            # `sport/#` matches `sport`, too
            return at == n and b == 47 and i + 2 == len(wanted) and wanted[i + 1] == 35
    return at == n


def _check_text(kind, s):
    try:
        check_utf8(s)
    except ValueError as e:
        raise ValueError("%s %s: %s" % (kind, _shown(s), e))


def _shown(s):
    # A long one would need as much memory again.
    return repr(bytes(s[:64])) + ("..." if len(s) > 64 else "")
