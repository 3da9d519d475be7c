"""Which connections have shown to be MQTT, so that they may be accused.

Knows: connections and streams, how a broker was found. Must not know: rules, tables.

A port that somebody named is a broker's. On another one packets may look like MQTT on either side,
as where a server sends back what it gets: there each side that sends has to show that it is what
it is taken for.
"""

from ..compiled.layout import P_ECHO


def judged(conns, ways, pairs):
    """Which connections are judged. A side has shown what it is with a packet that only a client,
    only a broker sends; or if all its bytes from SYN on are there, for then the first ones were
    looked at. ways: both streams of each; pairs: rows of layout.PAIR."""
    whole = (ways["isn_known"] > 0) & (ways["gaps"] == 0) & (ways["blind"] == 0)
    sound = (ways["own"] > 0) | (ways["packets"] == 0) | whole
    guessed = pairs["guessed"][conns["pair"]] > 0
    return (~guessed | sound.all(axis=1)) & (conns["opaque"] != P_ECHO)
