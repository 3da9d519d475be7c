"""A world of plain Python objects, taken down, put back, and known again.

A class with FROZEN = True is left alone: its objects are the same in every state, or of none.

Knows: the containers that Python has, and which attributes of the client say nothing about what
it does next. Must not know: what a client, a broker or a fault is.

`capture()` keeps the contents of every object that can be reached; `restore()` puts them back into
the very same objects. So views of buffers stay valid, and no object has to be made anew: that is
six times as fast as copy.deepcopy(), which cannot copy a memoryview at all.
"""

import io
import marshal
from array import array
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

ATOMS = frozenset((int, str, bytes, float, bool, type(None), type, FunctionType,
                   BuiltinFunctionType, ModuleType, range))  # fmt: skip
PLAIN = frozenset((int, str, bytes, bool, type(None)))

# Attributes that no decision depends on: counts, scratch buffers and caches. What is missing here
# costs states, what is wrong here would hide some: tests compare cases with and without.
COUNTS = frozenset((
    "connects", "sent", "acked", "redelivered", "received", "duplicates", "oversize", "unexpected",
    "forgotten", "pings", "lost_sessions", "stall", "last_error", "closed"))  # fmt: skip
READER = frozenset(("buf", "target", "behind", "start", "end", "pos", "n", "next", "message",
                    "code", "ended"))
SCRATCH = {
    "Counters": COUNTS,
    "Sender": frozenset(("buf", "data", "pos", "count")),
    "Receiver": READER,
    "DurableReceiver": READER,
    "Session": frozenset(("_name", "_view", "_given", "_flags", "_busy", "_waits", "_due", "_far",
                          "seq")),
    "MQTTClient": frozenset(("_narrow", "_as_bytes")),
    "RAMStore": frozenset(("_two", "_found", "_stop", "pid", "flags", "state")),
    "Chip": frozenset(("programs", "programmed", "reads", "erases", "worn", "operations", "log",
                       "random", "_cut", "_at", "mode")),

}
JOURNAL = frozenset((
    "_buf", "_back", "_views", "_backs", "_tmp", "_crc", "_seen", "_base", "_index", "_from",
    "_limit", "_failed", "_topic", "_payload", "pid", "flags", "state", "_body", "programs",
    "programmed", "erases", "_magic"))  # fmt: skip
# Instants: only how long ago they are says something.
INSTANTS = frozenset(("time", "request", "timeout", "_end", "since", "spoke", "heard"))
LONG_AGO = 600000  # ms; nothing waits longer
SKIP = dict.fromkeys(("FlashStore", "FileStore", "Journal"), JOURNAL)
SKIP.update(SCRATCH)


# How an object is kept: (its contents or None where it cannot change, what lies in it).
KEEP = {
    list: lambda o: (o[:], o),
    dict: lambda o: (o.copy(), o.values()),
    tuple: lambda o: (None, o),
    bytearray: lambda o: (bytes(o), ()),
    array: lambda o: (o[:], ()),
    set: lambda o: (o.copy(), ()),
    memoryview: lambda o: (None, (o.obj,)),
    MethodType: lambda o: (None, (o.__self__,)),
    io.BytesIO: lambda o: ((o.getvalue(), o.tell()), ()),
}
# How an object without others in it is known again.
FLAT = {bytearray: bytes, array: bytes, set: sorted, io.BytesIO: io.BytesIO.getvalue}


def capture(root):
    """The contents of all that can be reached from `root`."""
    seen = set()
    saved = []
    todo = [root]
    while todo:
        o = todo.pop()
        kind = type(o)
        if kind in ATOMS or id(o) in seen or getattr(kind, "FROZEN", False):
            continue
        seen.add(id(o))
        if kind in KEEP:
            content, inside = KEEP[kind](o)
        else:
            content = vars(o).copy()
            inside = content.values()
        if content is not None:
            saved.append((o, content))
        todo.extend(inside)
    return saved


def restore(saved):
    """Put everything back."""
    for o, content in saved:
        kind = type(o)
        if kind is list or kind is bytearray or kind is array:
            o[:] = content
        elif kind is dict or kind is set:
            o.clear()
            o.update(content)
        elif kind is io.BytesIO:
            o.seek(0)
            o.write(content[0])
            o.seek(content[1])
        else:
            fields = vars(o)
            fields.clear()
            fields.update(content)


def digest(root, now):
    """Sixteen bytes that stand for the state of `root` at the instant `now`."""
    out = []
    _walk(root, out, {}, now)
    return blake2b(marshal.dumps(out, 2), digest_size=16).digest()


def _walk(o, out, seen, now):
    kind = type(o)
    if kind in PLAIN:
        out.append(o)
    elif kind in ATOMS or getattr(kind, "FROZEN", False):
        out.append(getattr(o, "__name__", kind.__name__))
    elif id(o) in seen:
        out.append(seen[id(o)])
    else:
        seen[id(o)] = "@%d" % len(seen)
        if kind in FLAT:
            out.append(FLAT[kind](o))
        elif kind is list or kind is tuple:
            out.append(-len(o))
            for item in o:
                _walk(item, out, seen, now)
        else:
            _walk_object(o, kind.__name__, out, seen, now)


def _walk_object(o, name, out, seen, now):
    out.append(name)
    if name == "memoryview":
        _walk(o.obj, out, seen, now)
        return
    if name == "method":
        out.append(o.__func__.__name__)
        _walk(o.__self__, out, seen, now)
        return
    fields = o if name == "dict" else vars(o)
    skip = SKIP.get(name, ())
    for key in sorted(fields):
        if key in skip:
            continue
        value = fields[key]
        if key in INSTANTS and type(value) is int:
            out.append(min(now - value, LONG_AGO))
        elif key == "clock":
            continue
        elif key == "_ends":  # of the connections: it is only looked at whether it is their count
            out.append(value == fields["_client"].counters.closed)
        elif key == "_born" and value is not None:  # of the messages that a store has
            out.append([min(now - born, LONG_AGO) if state else 0
                        for born, state in zip(value, fields["_states"])])
        else:
            _walk(value, out, seen, now)
    if name == "Receiver" or name == "DurableReceiver":  # of the buffer only what is not handled
        out.append(bytes(o.buf[o.start : o.end]))
        out.append(o.next > o.start)
    elif name == "Sender":
        out.append(bytes(o.data[o.pos : o.pos + o.waiting]) if o.waiting else b"")
        out.append(o.topic is None or o.buf.startswith(o.topic, 7))  # always, in a correct client
