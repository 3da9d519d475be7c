"""What MQTT 5 says about values: of properties, of filters of shared subscriptions.

Knows: properties that were read, filters. Must not know: packets, connections.
"""

from ..rules.statements import BESIDE

#: Properties that are 0 or 1, and those that must not be 0.
YES_OR_NO = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}
NOT_ZERO = {0x0B, 0x21, 0x27}
RESPONSE_TOPIC, METHOD, DATA = 0x08, 0x15, 0x16


def value_rules(ident, value, out):
    """The value of one property, as text."""
    if ident in YES_OR_NO and value not in ("0", "1") or ident in NOT_ZERO and value == "0":
        out.broken.append((100, ident | int(value) << BESIDE))
    if ident == RESPONSE_TOPIC and not value:
        out.broken.append((24, 0))
    elif ident == RESPONSE_TOPIC and ("#" in value or "+" in value):
        out.broken.append((98, 0))


def together_rules(seen, out):
    """The numbers of all properties of a packet."""
    if DATA in seen and METHOD not in seen:
        out.broken.append((101, 0))


def shared_rules(raw, no_local, out):
    """What a filter of SUBSCRIBE asks for, without the name of the share; None if that is wrong.
    no_local: whether No Local is set in its options."""
    head, slash, rest = raw.partition(b"/")
    if head != b"$share" or not slash:
        return raw
    if no_local:
        out.broken.append((102, 0))
    name, slash, behind = rest.partition(b"/")
    if not name:
        out.broken.append((110, 0))
    elif b"+" in name or b"#" in name or not slash or not behind:
        out.broken.append((111, 0))
    else:
        return behind
    return None
