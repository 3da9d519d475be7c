"""The rows that the compiled loops read and write, and the numbers that stand for words in them.

Knows: field names and widths. Must not know: how a field comes to its value.
"""

from collections import namedtuple

import numpy as np


def _rows(text):
    pairs = [item.split(":") for item in text.split()]
    return np.dtype([(name, kind) for name, kind in pairs], align=True)


SECOND = 1_000_000_000  #: in the ns of all times
GRACE = SECOND // 2  #: that a packet may be late in the capture before keep alive counts as broken
#: Later than that behind the last segment of a connection that has ended, none counts for its row,
#: which may be told already.
LINGER = 2 * SECOND
FLOOD, FLOOD_S = 200, 10  #: messages a second, seconds: more is a flood

#: A captured frame: ns since 1970, place in the file, bytes there, bytes on the wire, link type.
FRAME = _rows("time:i8 off:i8 cap:i8 wire:i8 link:i4")

#: A TCP segment: off, cap, wire are of its payload. key: which pair of endpoints, dir 0: a to b.
#: stamp: TCP's time stamp, ident: the identification of the IP packet; 0: none.
SEGMENT = _rows(
    "time:i8 off:i8 frame:u4 key:u4 seq:u4 ack:u4 cap:u4 wire:u4 flags:u1 dir:u1 ident:u2 stamp:u4"
)
FIN, SYN, RST, ACK = 1, 2, 4, 16
KNOWN_FLAGS = 31  #: the flags up to ACK
#: No flag of TCP: this capture had the segment already, as the same IP packet (tcp/doubles.py).
TWICE = 32
SHUT = 64  #: no flag of TCP: the window is 0, the other side may send nothing
#: No flag of TCP: another capture has the segment as well (together/weave.py), or this one had it
#: already (tcp/doubles.py, tcp/copies.py).
COPY = 128

#: A pair of endpoints, a before b; addresses as four words, IPv4 mapped into IPv6.
#: server: 0 unknown, 1 a, 2 b: who was sent a CONNECT; 3 a, 4 b: a TLS or WebSocket for MQTT;
#: 5 a, 6 b: MQTT that began before the capture; 7 a, 8 b: in a WebSocket. tags: ids of its VLANs,
#: 12 bits each, the outer one above; 0: none. root: the key that its segments count for, another
#: one if its frames are of the same connections in another VLAN; sure: segments of both were the
#: same; of its own root: they were others at the same place. apart: another key of the same
#: endpoints has other connections, as far as is known. ways: bit 0 if a sent, bit 1 if b did.
#: opened, latest: both numbers of its first and its latest SYN with ACK, mixed; 0: none. Where
#: that is missing, the first data show them to `latest`. told: the frame whose connection may be
#: another VLAN's, too.
KEY = _rows(
    "a0:u4 a1:u4 a2:u4 a3:u4 b0:u4 b1:u4 b2:u4 b3:u4 ap:u2 bp:u2 hash:u4 server:u1 "
    "apart:u1 sure:u1 ways:u1 tags:u4 root:u4 opened:u4 latest:u4 told:u4"
)
#: One end's packets on a connection that may be MQTT (tcp/midway.py): where the next one begins
#: and whether that is known; how many stood where they must, whether a topic was seen, and a
#: packet that only a client, only a server sends; webs: how many segments of either side were
#: frames of a WebSocket with MQTT whose broker is this end; of a header that goes on in the next
#: segment how many bytes are there, and which.
#: Of the end's latest segment, of any kind, the headers: VLAN tags, numbers of TCP, checksum; met:
#: 1 if there is one. stamped, stamp: time and time stamp of the latest one that has one, 0: none;
#: began, began_stamp: of the first one, -1: it is a SYN; pauses: how many the capture had had by
#: the latest one (tcp/stamps.py). ident: of its IP header; varied:
#: whether that was another one than before; twins: whether its segments come twice
#: (tcp/doubles.py). syn...: number, checksum and identification of its latest SYN.
#: head...: the same, and the length, of the first segment with data behind that; headed: whether
#: there is one. strange: the first data behind its SYN are none that MQTT begins with.
TRAIL = _rows(
    "at:i8 bytes:i8 known:i4 good:i4 topics:u1 client:u1 server:u1 left:u1 "
    "webs:u1 flags:u1 met:u1 sum:u2 tags:u4 seq:u4 ack:u4 wire:u4 stamp:u4 stamped:i8 pauses:i8 "
    "began:i8 began_stamp:u4 "
    "ident:u2 varied:u1 twins:u1 syn:u4 syn_sum:u2 syn_ident:u2 "
    "headed:u1 strange:u1 head:u4 head_wire:u4 head_sum:u2 head_ident:u2"
)
#: A segment that the capture has had, in case it has it twice. time, mark: as tcp/doubles.py has
#: them. Four rows fill a line of the processor's cache, which the first pass notices.
RECENT = _rows("time:u4 seq:u4 mark:u4 sum:u2 ident:u2")
#: A time in ns in which the capture has no frame, or in which its clock went back (since > until);
#: right, wrong: whether time stamps confirm it, or deny it.
PAUSE = _rows("since:i8 until:i8 right:u1 wrong:u1")
V4 = 0xFFFF  #: word 2 of an IPv4 address

# From here on `frame` is the number of the file in the order of the capture, 32 bits, and that of
# the frame in it: it names a frame of the whole capture, and a greater one is a later one.

#: What is wrong with the input, and where. count: bytes or frames concerned.
PROBLEM = _rows("time:i8 off:i8 count:i8 frame:i8 conn:i8 kind:i4 from_server:i4")

#: A pair of endpoints in the second pass: cur is the index of its connection now, or -1. guessed:
#: nobody named the port of the one that is taken for the broker.
PAIR = _rows("cur:i8 server:u1 wanted:u1 guessed:u1")

#: A connection. server: 1 the endpoint a, 2 b. before: the one before it of the same endpoints, or
#: -1. level: of the protocol, 0 unknown. closed: when the
#: first FIN or RST was seen, 0: none. late: bytes were captured after their acknowledgement: LATE,
#: or LATE_FAR if by half of GRACE or more.
#: ping_frame: of the first PINGREQ without an answer. dismissed: the server sent DISCONNECT.
#: web: the client asked for a WebSocket. dubious: its SYN is missing, and no CONNACK that is the
#: broker's first packet has confirmed its CONNECT.
#: asked_frame: of CONNECT. acked_at: when CONNACK came. method: whether a CONNECT of MQTT 5 names
#: an Authentication Method. fields: how far the capture has its CONNECT: HAS_FLAGS, or
#: HAS_KEEP_ALIVE if the keep alive is there, too. agreed: keep_alive is for sure what holds: that
#: of CONNECT or, in MQTT 5, what CONNACK has of it. imposed: it is a Server Keep Alive. spoilt:
#: from this frame on its bytes may be others than were sent; 0: from none. rtt: from SYN to the
#: client's next segment, about a round trip. begun: BEGUN or BEGUN_ACK, 0: without SYN.
#: ping_heard, asked_heard: when the broker had acknowledged PINGREQ, CONNECT; 0: not known.
#: ping_waited: how long it could have answered since, up to what it sent instead.
#: owed...: a silence after which the broker should have closed, and the packet that ended it; it
#: is told when the broker has acknowledged that packet. 0: none.
#: tears: how often its numbers jumped so that another connection may have begun (tcp/places.py);
#: torn: how many of these lie before the packet that was read last. settled: both sides have
#: acknowledged all that the other has sent, FIN too. doubled: the capture has it twice, as far as
#: nothing tells; replayed: its SYN at least (tcp/copies.py). belated: some of its segments came
#: again more than half of GRACE behind the latest one that shows that a side was there, or behind
#: their first ones; lag: the least of the latter times in ns, 0: none. upto: the last file that
#: has a segment of it. swept: what was open on it is forgotten, as it has ended.
CONN = _rows(
    "pair:i8 before:i8 id:i8 first:i8 last:i8 closed:i8 last_client:i8 ping_at:i8 ping_frame:i8 "
    "ping_heard:i8 ping_waited:i8 asked_heard:i8 rtt:i8 owed:i8 owed_at:i8 owed_frame:i8 "
    "owed_kind:u1 asked_at:i8 asked_frame:i8 acked_at:i8 "
    "server:u1 begun:u1 level:u1 clean:u1 end:u1 opaque:u1 "
    "connected:u1 acked:u1 disconnected:u1 dismissed:u1 web:u1 code:u1 present:u1 login:u1 "
    "late:u1 dubious:u1 method:u1 keep_alive:i4 agreed:u1 imposed:u1 connects:i4 pings:i4 "
    "silences:i4 longest:i8 spoilt:i8 tears:i4 torn:i4 settled:u1 doubled:u1 replayed:u1 "
    "belated:u1 lag:i8 fields:u1 upto:i8 swept:u1"
)
BEGUN_ACK, BEGUN = 1, 2  #: CONN.begun: by SYN with ACK, by the client's SYN
LATE, LATE_FAR = 1, 2
SHIFT = SECOND // 1000  #: STREAM.delay from which on times of the connection are not known
HAS_FLAGS, HAS_KEEP_ALIVE = 1, 2  #: CONN.fields
END_OPEN, END_FIN_CLIENT, END_FIN_SERVER, END_RST_CLIENT, END_RST_SERVER, END_REUSED = range(6)

#: One direction of a connection: TCP state, state of the packet in progress, counters.
#: reached, reached_at: the latest frame of those with its bytes up to here, and its time; late:
#: the other side had acknowledged the bytes before that frame was captured, as CONN's. next: where
#: it goes on; before anything is known of it, what the other side had acknowledged at first. said:
#: so far it goes by its own segments without data. whole: from SYN up to here no packet can be
#: missing.
#: syn: the identification of its SYN; talks: it has sent a segment that is no SYN.
#: What TCP shows of who could send when (tcp/calm.py): acked_at: when the other side acknowledged
#: the latest of its bytes; heard_at: when its latest acknowledgement came; early_at, early_to:
#: when bytes up to there were acknowledged that had not come; delay: the longest in ns, as far as
#: was measured, that bytes came behind that; stuck: bytes up
#: to again_to were sent again and are not acknowledged; shut: the other side's window is 0; free:
#: the latest time of such trouble; alive: of a segment that shows that its side was there.
STREAM = _rows(
    "reached:i8 reached_at:i8 late:u1 said:i8 said_known:u1 whole:u1 "
    "next:i8 isn:i8 acked:i8 head:i8 tail:i8 held:i8 held_bytes:i8 gap_since:i8 "
    "known:u1 isn_known:u1 acked_known:u1 sync:u1 ever:u1 fin:u1 stage:u1 nlen:u1 "
    "first:u1 damaged:u1 seen:u1 unsure:u1 rem:i8 got:i8 need:i8 buf:i8 buf_len:i8 buf_cap:i8 "
    "open:i8 receive_max:i8 packet_max:i8 alias_max:i8 max_qos:u1 no_retain:u1 blind:u1 "
    "hash:i8 start:i8 skipped:i8 lost:i8 gaps:i8 strange:i8 origin:i8 "
    "segments:i8 bytes:i8 resent:i8 disordered:i8 packets:i8 payload:i8 "
    "publish0:i8 publish1:i8 publish2:i8 dups:i8 "
    "second:i8 second_frame:i8 in_second:i8 peak:i8 peak_frame:i8 "
    "run_from:i8 run_frame:i8 run_last:i8 run_n:i8 run_credit:i8 flood:i8 flood_n:i8 "
    "flood_frame:i8 "
    "web:u1 web_seen:u1 web_kind:u1 web_more:u1 web_masked:u1 web_n:i8 web_left:i8 web_at:i8 "
    "web_mask:i8 web_text:u1 hello:u1 searched:u1 wide:u1 asked:u1 "
    "lapse:u1 lapses:i4 aligned:i4 turns:i8 turn1:i8 turn2:i8 gaps_n:i4 gap_at:i8 most:i8 "
    "acked_at:i8 heard_at:i8 early_at:i8 early_to:i8 delay:i8 again_to:i8 free:i8 alive:i8 "
    "stuck:u1 shut:u1 left:u1 "
    "past:i8 past_frame:i8 top:i8 top_known:u1 talks:u1 syn:u2 fin_ack:u4 "
    "newest:i8 newest_at:i8 ident:u2 steps:u1 data:i8 data_again:i8 rest:i8 rest_again:i8 "
    "maybe:i8 twice:i8 twice_frame:i8 perhaps:i8 anew:i8 anew_frame:i8 lag_frame:i8 "
    "over_frame:i8 filled:i8 own:u1 hole_at:i8 webs:u1 web_rest:i8 web_last:u1 web_signs:u1 "
    "proxy:i4 proxy_first:u1 proxy_size:i8 answered:u1"
)
#: strange: so many of its messages were answered by PUBREC before the capture has them. origin:
#: where it began, if its SYN is missing.
#: open: messages of QoS 1 and 2 that are not acknowledged; answered: whether one was.
#: receive_max, packet_max, alias_max, max_qos (1 more), no_retain: what the other side of an
#: MQTT 5 connection lets it send; 0 (alias_max: -1) is not known or no limit.
#: second, second_frame, in_second: the latest second in which it had a PUBLISH, the frame of the
#: first of them, and how many; peak, peak_frame:
#: the most of them in one second, and the frame of the first of those.
#: run...: a time in which it sent FLOOD messages a second: since when, the frame, the latest
#: message, how many, and how much later the next may come; flood, flood_n, flood_frame: the
#: longest of at least FLOOD_S, in ns, how many messages, the frame of the first.
#: web...: where a WebSocket is (mqtt/websocket.py): what comes next, whether any byte came, the
#: first byte of the frame, bytes of its length and mask, bytes of its header that came, of its
#: payload left and taken, the mask; web_text: the message is none of binary frames.
#: webs, web_rest (mqtt/webframes.py): how many headers of a client's frames stood where they must,
#: although the capture lacks the upgrade, and how many bytes there are up to the next one;
#: web_last, web_signs: the first byte of the latest one with data, and what they have shown.
#: proxy, proxy_first, proxy_size (mqtt/proxy.py): of a header of the PROXY protocol in several
#: segments how many bytes came, the first one, and the latest one or the length that it says.
#: asked: its first packet here is CONNECT. left: its latest one is DISCONNECT.
#: fin: it has sent FIN; 2: before the other side did. fin_ack: what its first FIN acknowledges.
#: top: the greatest number of its bytes that a segment of either side has told of; top_known: 0:
#: none, 2 (tcp/places.py) if its first number tells nothing any more.
#: Of tcp/copies.py: newest, newest_at: the latest of its time stamps, when it came first, 0: none;
#: ident: its latest identification, 0: none; steps: how often in a row it grew;
#: data, rest: of the latest segments with data, and of all others of the connection; data_again,
#: rest_again: those of them that may have come before; maybe: segments counted as resent of which
#: nothing tells; twice, twice_frame: those that the capture has twice, and the first of them;
#: perhaps: those of them of which nothing tells that. anew, anew_frame: SYN that came once more
#: behind other segments, without a sign whether it opens another connection; the first of them.
#: lag_frame: the first copy that makes its connection `belated`, but for those that the first pass
#: has told. over_frame: the first frame with bytes of it that the other side had acknowledged.
#: filled: bytes that came after they were counted as lost. own: it has sent a packet that only its
#: side may send.
#: past, past_frame: bytes of segments that came long after the end and went no further; the first.
#: hello: whether its first message of TLS is waited for, and lies in `buf` (tls/collecting.py).
#: blind: bytes of it were skipped in a search, in which there may have been packets. searched:
#: its packets from here on were found by their look, which a payload may have as well; aligned: so
#: many segments in a row begin and end with a packet. lapse: bytes are missing since its last
#: packet; lapses: how often bytes of it went missing, or were skipped; hole_at: until when
#: the bytes of the latest place of these were sent: those behind them came, or, of missing ones,
#: these were acknowledged then.
#: turns: how many of its messages have their turn to be answered (UNORDERED: nobody knows any
#: more); turn1, turn2: the turns of the latest PUBACK, and of the latest PUBREC or PUBREL.
#: gaps_n: lapses of both sides before its latest PUBLISH; gap_at: how many PUBLISH without DUP
#: came before the first one behind the last of them. most: as many messages were open at a time.
UNORDERED = -1
PROPERTIES = 4096  #: bytes of a PUBLISH behind the packet id that are kept of one in pieces
SEARCHING, IN_STEP = 0, 1
HELLO_NONE, HELLO_WANTED, HELLO_WHOLE = 0, 1, 2
FRESH, IN_LENGTH, IN_BODY = 0, 1, 2

#: A segment that came before its turn.
HELD = _rows("stream:i8 next:i8 seq:i8 cap:i8 wire:i8 off:i8 time:i8 frame:i8 late:u1")

#: A segment taken of a stream: where its bytes are in the file, for one that overlaps it later.
#: mark: as copies.mark() has it.
TAKEN = _rows("off:i8 frame:i8 time:i8 seq:u4 cap:u4 wire:u4 mark:u4")
REMEMBERED = 16  #: of them are known of each stream

#: A packet. text_end: end of its topic in the text heap; body: its body in the body heap.
#: at, have: where its bytes are (kept: in the arena, else in the file) and how many.
#: opening: it is the first that its side sent, and nothing is missing before it. text: it came in
#: a WebSocket's frame that is not binary. found: FOUND if the stream was `searched`, OTHER_FOUND
#: if the other side's was. wide: its Remaining Length takes more bytes than it must.
#: lapse: bytes are missing between it and its side's packet before. now: bytes of the other side
#: are not there (yet); lapses: as STREAM's of the other side; own: of its own. calm: since when
#: all that its side had sent before was acknowledged, without trouble of TCP (tcp/calm.py);
#: calm_other: of the other side; 0: not. tears: as CONN's. hole_at: as STREAM's of the other side.
PACKET = _rows(
    "time:i8 start:i8 conn:i8 frame:i8 at:i8 have:i8 digest:i8 text_end:i8 body:i8 body_len:i8 "
    "length:i8 payload:i8 id:i4 kind:u1 flags:u1 from_server:u1 damaged:u1 kept:u1 missing:u1 "
    "topic:u1 level:u1 late:u1 opening:u1 text:u1 found:u1 wide:u1 "
    "lapse:u1 now:u1 lapses:i4 own:i4 tears:i4 calm:i8 calm_other:i8 hole_at:i8"
)

#: A QoS 1 or 2 message on its way. sender: 1 the server, 2 (REQUEST): no message, but a SUBSCRIBE
#: or UNSUBSCRIBE (its type in `qos`) that waits for its answer. topic: a place in the arena.
#: unsure: it was captured after TCP's acknowledgement of it, and its answer may be there already.
#: frame: of its first PUBLISH, or of the answer or PUBREL that it begins with; missing: as
#: PACKET's, of that one; lapses: as well, -1: bytes of the other side were not there. turn: of a
#: message of the server the place of its PUBLISH, of one of the client the place of its PUBREC,
#: among those of its connection; 0: not known. tears: CONN's torn when it began. own: lapses of
#: its own side then. vague: VAGUE if nobody knows when PUBLISH or its last answer passed;
#: ANOTHER if its last answer may be another message's. maybe: the packet that it begins with may
#: repeat one that was answered when the repetition was on its way.
FLOW = _rows(
    "first:i8 rec:i8 rel:i8 done:i8 last:i8 conn:i8 hash:i8 length:i8 topic:i8 topic_len:i8 "
    "frame:i8 id:i4 sent:i4 dup:i4 nodup:i4 used:u1 sender:u1 qos:u1 dup_first:u1 early:u1 "
    "outcome:u1 state:u1 missing:u1 unsure:u1 vague:u1 maybe:u1 lapses:i4 own:i4 tears:i4 turn:i8"
)
F_OPEN, F_DONE, F_REUSED, F_HEADLESS = range(4)
VAGUE, ANOTHER = 1, 2
FOUND, OTHER_FOUND = 1, 2
PENDING, UNSEEN = 1, 2  #: PACKET.now: bytes are waited for; none has come so far
METHOD_UNKNOWN, METHOD_NONE, METHOD_NAMED = 0, 1, 2
REQUEST = 2
ALIAS = 4  #: and more: a topic that has an alias (its number in `id`) of sender 0 or 1
#: And more, twice a type of packet and the sender 0 or 1 of the message: so many packets of the
#: type (`sent`) may come once more with this `id`.
REPEATED = 6

#: kind: the type of the packet; NO_PACKET: what is missed is one that never came.
VIOLATION = _rows("time:i8 conn:i8 frame:i8 value:i8 code:i4 kind:u1 from_server:u1 level:u1")

NO_PACKET = 255

#: What TCP and the cutting into packets carry from segment to segment.
Wire = namedtuple("Wire", "pairs conns streams taken held arena packets problems n")
#: What the reading of packets carries; text and bodies are heaps of bytes.
Talk = namedtuple(
    "Talk",
    "conns streams arena flows slots packets problems violations done text bodies done_text n",
)

# Places in `n` of both
(N_CONNS, N_HELD_FREE, N_ARENA, N_FLOW_FREE, N_FLOWS, N_PACKETS, N_PROBLEMS, N_VIOLATIONS, N_DONE,
 N_TEXT, N_BODIES, N_DONE_TEXT, N_RESUMED, N_WANT, N_TIGHT, N_FILE, N_UNLISTED, N_READ,
 N_WAITING, N_BACK, N_HELLOS,
 N_FOUND) = range(22)  # fmt: skip
MASK = 0xFFFFFFFF

#: What a full table asks of the caller (N_WANT).
WANT_NOTHING, WANT_DRAIN, WANT_CONNS, WANT_HELD, WANT_ARENA, WANT_FLOWS = range(6)
#: Space that one packet may need: of a body, of a topic (escaped), in the arena.
BODY_MAX, TOPIC_MAX, SLACK = 1 << 20, 1 << 18, 3 << 20

TYPES = (
    "RESERVED CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE "
    "UNSUBACK PINGREQ PINGRESP DISCONNECT AUTH"
).split()
(RESERVED, CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK,
 UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH) = range(16)  # fmt: skip

#: Problems: what a row of the table `problems` says. {} is the count.
KINDS = {
    1: ("cut", "the file ends in the middle of a frame; {} bytes of it are there"),
    2: ("damaged", "no frame can be read here; {} bytes were skipped to the next one"),
    3: ("no interface", "a frame of an interface that the file does not describe ({} such)"),
    4: ("bad time", "an impossible time ({} such): that of the frame before is taken, or else of "
        "the next"),
    5: ("link type", "frames of a link type that is not decoded ({} such)"),
    6: ("bad header", "IP or TCP header is wrong or was cut off ({} such)"),
    7: ("fragment", "fragments of IP datagrams whose rest is not there ({} such)"),
    8: ("snapped", "the capture kept only the beginning of segments; {} bytes are missing"),
    9: ("loss", "{} bytes of the stream are not in the capture, or come too late to be read"),
    10: ("resynchronised", "{} bytes skipped before the next packet was found"),
    11: ("began before", "began before the capture; a packet was found after {} bytes"),
    12: ("not in step", "{} bytes skipped at the end: no packet was found in them"),
    13: ("TLS", "encrypted: only the connection and its hello can be told"),
    14: ("HTTP", "HTTP, which is not decoded"),
    15: ("MQTT 5", "a topic alias ({}) whose topic is not in the capture"),
    16: ("unfinished", "the capture ends inside a packet; {} bytes of it are there"),
    17: ("too large", "a packet of {} bytes is kept only in part; its fields are not decoded"),
    18: ("memory", "too much unfinished data: segments out of order are given up"),
    19: ("not MQTT", "the first bytes are no packet; {} bytes skipped"),
    20: ("length", "a Remaining Length of more than four bytes, or a packet of type 0"),
    21: ("more", "{} problems more of this file are not listed"),
    22: ("closed inside", "the connection was closed inside a packet; {} bytes of it came"),
    23: ("other content", "{} bytes were sent again with another content, and the capture does "
         "not tell which are right: from the first on, the connection is not judged"),
    24: ("PROXY", "a header of the PROXY protocol ({} bytes) stands before the first packet"),
    25: ("WebSocket", "its frames cannot be followed any more, {} bytes are the reason: they are "
         "missing, or packed by an extension"),
    26: ("other content", "{} bytes were sent again with another content, and the first have a "
         "wrong TCP checksum: from the first on, the connection is not judged"),
    27: ("other content", "{} bytes were sent again with another content and a wrong TCP "
         "checksum; the first are read"),
    28: ("length", "a Remaining Length of more than four bytes"),  # told as a violation
    29: ("after the end", "{} bytes came long after the end of the connection, and are left out: "
         "they may be of another one with the same ports"),
    30: ("jump", "sequence numbers jump by {} bytes: perhaps to another connection with the same "
         "ports, the beginning of which the capture lacks; what was before counts no more"),
    31: ("doubled", "segments that the capture has twice, each as one IP packet ({} such): they "
         "count once"),
    32: ("doubled", "segments that came once more, and were not sent again, as TCP's numbers or "
         "time stamps show ({} such): they count once"),
    33: ("doubled", "about half of the segments come once more, and nothing tells whether they "
         "were sent again ({} such): they count once"),
    34: ("doubled", "{} pairs of ports have connections in two VLANs that begin with the same "
         "numbers: perhaps each is one that the capture has twice; they count for each VLAN"),
    35: ("clock", "segments that the capture has twice, the second a quarter of a second or more "
         "after the first ({} such), as if made of captures whose clocks differ: the times of the "
         "first count, and no silence and no missing answer of these connections is judged"),
    36: ("doubled", "SYN that came once more, with the number of the first, behind other segments "
         "({} such): the capture has the connection twice, or another one has the same ports and "
         "numbers; nothing tells which, and both count as one"),
    37: ("clock", "segments come once more, a quarter of a second or more after the first, as if "
         "made of captures whose clocks differ: the times of the first count, and no silence and "
         "no missing answer of this connection is judged"),
    38: ("clock", "the clock of the capture was set, or its frames are out of order ({} times): "
         "no silence, no missing answer and no latency counts that has such a place in it"),
    39: ("order", "bytes come {} ms or more behind TCP's acknowledgement of them, so frames are "
         "out of order, or their clocks differ: nothing of this connection is judged that depends "
         "on the order of both sides, and no latency or silence is told that this may have "
         "changed"),
    40: ("order", "bytes come {} ms or more behind TCP's acknowledgement of them, so frames are "
         "out of order, or their clocks differ: nothing of this connection is judged that depends "
         "on time, or on the order of both sides, and no latency or silence is told that this may "
         "have changed"),
    41: ("snapped", "the capture kept only the beginning of {} frames: if the rest has MQTT, "
         "the audit lacks those packets, or whole connections; capture whole frames (tcpdump -s "
         "0)"),
    42: ("not MQTT", "this side sends what only the other side of MQTT may send, and nothing of "
         "its own, as a server does that sends back what it gets: the connection is not read "
         "from here on, and nothing of it is judged"),
    43: ("WebSocket", "frames of a WebSocket whose upgrade the capture lacks: the audit does not "
         "unmask what the client sends, and reads none of it ({} bytes up to here)"),
}  # fmt: skip
(P_CUT, P_DAMAGED, P_INTERFACE, P_TIME, P_LINK, P_HEADER, P_FRAGMENT, P_SNAPPED, P_LOSS, P_RESYNC,
 P_BEFORE, P_NO_STEP, P_TLS, P_HTTP, P_MQTT5, P_UNFINISHED, P_LARGE, P_MEMORY, P_NOT_MQTT,
 P_LENGTH, P_MORE, P_CLOSED, P_OTHER, P_PROXY, P_WEB, P_SPOILT,
 P_BROKEN, P_FIVE, P_PAST, P_JUMP,
 P_DOUBLED, P_TWICE, P_MAYBE,
 P_LANS, P_LATER, P_ANEW, P_LAG, P_CLOCK, P_LATE, P_FAR, P_SHORT,
 P_ECHO, P_MASKED) = range(1, 44)  # fmt: skip
