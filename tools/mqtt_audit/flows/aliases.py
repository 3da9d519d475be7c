"""Topic aliases of MQTT 5, compiled.

Knows: which topic an alias stands for. Must not know: bytes of packets.
"""

from ..compiled.arena import copy, take
from ..compiled.jit import kernel
from ..compiled.layout import ALIAS
from .table import begin, find


@kernel
def name(st, conn, sender, alias, d, topic, size, time, frame):
    """A topic gets an alias on this connection; topic, size: its place in d."""
    at = find(st, conn, ALIAS + sender, alias)
    k = st.slots[at] if at >= 0 else begin(st, at, conn, ALIAS + sender, alias, time, frame, 0)
    st.flows[k]["tears"] = st.conns[conn]["torn"]
    place = take(st, size)
    if place >= 0:
        copy(d, topic, size, st.arena, place)
        st.flows[k]["topic"], st.flows[k]["topic_len"] = place, size


@kernel
def named(st, conn, sender, alias):
    """(place in the arena, length) of the topic that has an alias; place -1: none has."""
    at = find(st, conn, ALIAS + sender, alias)
    if at < 0 or st.flows[st.slots[at]]["tears"] != st.conns[conn]["torn"]:
        return -1, 0
    f = st.flows[st.slots[at]]
    return f["topic"], f["topic_len"]
