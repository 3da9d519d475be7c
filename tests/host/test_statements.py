"""Every normative statement of MQTT 3.1.1 that binds a client is named by a device test.

Knows: the list of ids.  Must not know: what they say.
"""

import re
from pathlib import Path

DEVICE = Path(__file__).resolve().parent.parent / "device"
# [MQTT-6.0.0-*] are about WebSockets, which the library does not offer.
STATEMENTS = """
1.5.3-1 1.5.3-2 1.5.3-3 2.2.2-1 2.2.2-2 2.3.1-1 2.3.1-2 2.3.1-3 2.3.1-5 2.3.1-6 2.3.1-7
3.1.0-1 3.1.0-2 3.1.2-3 3.1.2-4 3.1.2-6 3.1.2-9 3.1.2-11 3.1.2-13 3.1.2-14 3.1.2-15 3.1.2-18
3.1.2-19 3.1.2-20 3.1.2-21 3.1.2-22 3.1.2-23 3.1.3-1 3.1.3-2 3.1.3-3 3.1.3-4 3.1.3-7 3.1.3-10
3.1.3-11 3.2.0-1 3.2.2-1 3.2.2-2 3.2.2-3 3.2.2-4 3.2.2-5 3.2.2-6 3.3.1-1 3.3.1-2 3.3.1-4 3.3.2-1
3.3.2-2 3.3.4-1 3.6.1-1 3.8.1-1 3.8.3-1 3.8.3-3 3-8.3-4 3.8.4-5 3.9.3-1 3.9.3-2 3.10.1-1 3.10.3-1
3.10.3-2 3.14.1-1 3.14.4-1 3.14.4-2 4.1.0-1 4.1.0-2 4.3.1-1 4.3.2-1 4.3.2-2 4.3.3-1 4.3.3-2
4.4.0-1 4.5.0-2 4.6.0-1 4.6.0-2 4.6.0-3 4.6.0-4 4.7.1-1 4.7.1-2 4.7.1-3 4.7.3-1 4.7.3-2 4.7.3-3
4.8.0-1 4.8.0-2 7.0.0-2
""".split()


def test_every_statement_is_named_by_a_client_test():
    named = set()
    for path in DEVICE.rglob("test_client_*.py"):
        named.update(re.findall(r"\[MQTT-([\d.-]+)\]", path.read_text()))
    assert sorted(set(STATEMENTS) - named) == []
