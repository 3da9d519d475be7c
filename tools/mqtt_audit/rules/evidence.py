"""Which connections have shown to be MQTT, so that they may be accused.

Knows: connections and streams, how a broker was found. Must not know: rules, tables.

A port that somebody named is a broker's. On another one packets may look like MQTT on either side,
as where a server sends back what it gets: there each side that sends has to show that it is what
it is taken for.
"""

from ..compiled.layout import P_ECHO


def judged(conns, ways, pairs):
    """Which connections are judged. A side has shown what it is with a packet that only a client,
    only a broker sends; a client also if all its bytes from SYN on are there, for then the first
    ones were looked at. A server that sends back a part of what it gets may begin anywhere in it,
    and something there may look like a broker's packet: if its SYN is there it has to begin with
    CONNACK. ways: both streams of each; pairs: rows of layout.PAIR."""
    client, server = ways[:, 0], ways[:, 1]
    sound = (ways["own"] > 0) | (ways["packets"] == 0)
    sound[:, 0] |= (client["isn_known"] > 0) & (client["gaps"] == 0) & (client["blind"] == 0)
    begun = (server["isn_known"] > 0) & (server["packets"] > 0) & (server["gaps"] == 0)
    sound[:, 1] &= ~begun | (conns["acked"] > 0)
    guessed = pairs["guessed"][conns["pair"]] > 0
    return (~guessed | sound.all(axis=1)) & (conns["opaque"] != P_ECHO)
