"""The bridge: takes PUBLISH packets from a broker, makes them durable, then acknowledges them.

Knows one MQTT connection at a time, the spool and the marks. Must not know Spark or tables. It
never acknowledges what `SpoolWriter.append` has not returned for.

One read of the socket becomes one block of the spool, one fsync and one write of
acknowledgements, so the cost of durability falls with the load. The session is persistent (clean
session 0): what the broker sends while the bridge is down comes when it is back, if the broker
remembers; what the broker forgets the devices send again, since the mark (`marks.py`) that the
bridge publishes on `.../ack` stands still.
"""

import logging
import random
import time

from .. import wire
from ..spool import consumers
from ..spool.writer import SpoolFull, SpoolWriter, now_us
from . import accounts, answers, telling
from .connection import READ_SIZE, Link, Settings, certificates
from .faults import Faults, Refused
from .mark_file import MarkFile
from .mark_keys import MarkKeys
from .marks import Marks
from .peers import Peers
from .session_file import SessionFile
from .shipping import Shipper
from .telling import Telling
from .upkeep import Upkeep

__all__ = ["Bridge", "Refused", "Settings"]

log = logging.getLogger("umqtt.bridge")

FULL_RETRY_S = 1.0
HOUSEKEEPING_S = 1.0
SET_BACK_US = 60_000_000  #: a clock that goes back by more was set
LOST_AGAIN_S = 15.0  #: the same failure to connect, in a row, is told once in so long
SETTLED_S = 10.0  #: a connection that lasted so long resets the backoff


def _days(us):
    """A length of time in words."""
    days = round(us / 86_400_000_000)
    return f"{days} days" if days > 1 else f"{us // 1_000_000} s"


def _today():
    """The day that the clock says."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time()))


class Bridge:
    """Runs until `stop()`; see the module's text. `sleep` can be replaced by a test. Raises
    Refused for certificates that cannot be read and for a clock before 1970, SpoolError for a
    spool that cannot be trusted."""

    def __init__(self, settings, sleep=time.sleep):
        if time.time() < 0:
            raise Refused(f"the clock of this computer says {_today()}: set it. Times of receipt "
                          "before 1970 cannot be written")  # fmt: skip
        if settings.secured:
            certificates(settings)  # before a broker is waited for, and before there is a spool
        try:
            self.mark_keys = MarkKeys(settings.mark_keys)
        except ValueError as error:
            raise Refused(f"--mark-keys: {error}")
        self.settings = settings
        self._sleep = sleep
        self._stopping = False
        self._link = None
        self._pending = None  # a Scan that the full disk did not take
        self.spool = self._open_spool()  # and marks, peers, upkeep
        self.peers.register()
        self._telling = Telling(self.marks, self.mark_keys)
        self._accounts = self._open_accounts()  # and shipper
        self.counts = dict.fromkeys(("received", "acknowledged", "blocks", "connects",
                                     "refused_by_disk", "too_large"), 0)  # fmt: skip
        self._started = time.time()
        self._last_error = None
        self._lost_again = 0.0  # when a failure that was told is told again
        self._rate = (time.monotonic(), 0, 0.0)
        self._full = False
        self._early = False  # the clock was set to before 1970
        self._latest = self.spool.written_us  # when the last message came
        self._ready = False
        self._unheard = False  # CONNECT is sent and not answered
        self._old_topics = []  # that the session has, and nobody asks for any more
        where = f"{settings.host}:{settings.port}"
        self._session_file = SessionFile(self.spool.folder, where, settings.client_id)
        # It was there once: what closes each connection now may be a forwarder before it.
        waits = settings.wait or self._session_file.known
        self._faults = Faults(where, settings.client_id, settings.secured, waits)

    # -- opening ------------------------------------------------------------------------------

    def _open_spool(self):
        s = self.settings
        while True:
            try:
                opened = SpoolWriter(s.spool, s.segment_bytes, s.max_spool_bytes,
                                     self._restore_marks)  # fmt: skip
                break
            except SpoolFull as error:
                log.error("no room for the spool in %s (%s): waiting", s.spool, error)
                self._sleep(FULL_RETRY_S * 5)
        for note in opened.notes:
            log.warning("spool: %s", note)
        return opened

    def _open_accounts(self):
        self.shipper = None
        if self.settings.ship is None:
            folder, name = self.spool.folder, consumers.SHIP
            if name in consumers.positions(folder):
                log.warning("an earlier bridge shipped this spool: without --ship nothing is "
                            "deleted that is not shipped. To give that up, remove %s",
                            folder / "consumers" / f"{name}.json")  # fmt: skip
            return accounts.Accounts(self.spool, self.marks, self.spool.position)
        self.shipper = Shipper(self.spool, self.settings.ship, self.settings.ship_interval)
        self.shipper.start()
        position = self.upkeep.snapshot_at
        return accounts.ShippedAccounts(self.spool, self.marks, position, self.shipper,
                                        self.peers, self._mark_file, self._seen)  # fmt: skip

    def _restore_marks(self, spool):
        """Called before anything of the spool is changed."""
        s = self.settings
        self._mark_file = file = MarkFile(spool.folder, s.ship is not None)
        restored = accounts.restore(spool, Marks(s.decoders, s.telemetry_keys), file,
                                    with_rest=s.ship is None)  # fmt: skip
        self.marks, position, seen = restored
        self._seen = dict(seen)
        self.peers = Peers(s.peers, spool.id, seen, s.ship is not None)
        self.upkeep = Upkeep(spool, file, position, self.peers, s.metrics, s.ship is not None)

    # -- the loop -----------------------------------------------------------------------------

    def stop(self):
        """End `run` soon; may be called from a signal handler."""
        self._stopping = True

    def run(self):
        """Serve until stopped. Raises Refused; network errors are retried for ever."""
        wait = 0.2
        log.info("connecting to %s:%d", self.settings.host, self.settings.port)
        try:
            while not self._stopping:
                begun = time.monotonic()
                try:
                    self._session()
                except (OSError, wire.ProtocolError, Refused) as error:
                    self._lost(error)
                if time.monotonic() - begun > SETTLED_S:
                    wait = 0.2
                if not self._stopping:
                    self._pause(random.uniform(0, wait) + 0.05)
                    wait = min(wait * 2, self.settings.backoff_max)
        finally:
            self._finish()

    def _lost(self, error):
        if isinstance(error, answers.Silent) and not self.counts["connects"]:
            try:
                answers.ask(self.settings)
            except answers.Foreign as found:
                error = found
        told, self._last_error = self._last_error, self._faults.lost(error, self._unheard)
        now = time.monotonic()
        if told != self._last_error or now >= self._lost_again:
            log.warning("%s; trying again", self._last_error)
            self._lost_again = now + LOST_AGAIN_S

    def _pause(self, seconds):
        end = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < end:
            self._sleep(min(0.2, end - time.monotonic()))
        self._metrics()

    def _session(self):
        """One connection from CONNECT to its end."""
        s = self.settings
        self._ready, self._unheard = False, False
        self._pending = None  # its acknowledgements belonged to the old connection
        self._dropped = None  # the acknowledgement of a packet that is being dropped
        self._link = Link(s)
        try:
            self._link.send(
                wire.connect_packet(s.client_id, s.keepalive, s.username, s.password)
            )
            self._unheard = True
            self._deadline = time.monotonic() + s.connect_timeout
            while not self._stopping:
                self._step()
            if self._ready and not self._link.unsent:
                self._link.send(wire.DISCONNECT_PACKET)
        finally:
            self._link.close()
            self._telling.lost()
            self._ready = False

    def _step(self):
        link = self._link
        reading = self._pending is None and link.unsent < READ_SIZE
        link.wait(self._next_timer(), reading)
        if self._pending is not None:
            if time.monotonic() >= self._retry_at:
                self._store(self._pending)
        elif reading:
            data = link.receive()
            if self._dropped is not None and not link.dropping:
                link.send(self._dropped)
                self._dropped = None
            if self._unheard and data:
                answers.check(data)
            found = wire.scan(data) if data else wire.Scan()
            if found.needs > self.settings.max_packet:
                self._too_large(data[found.consumed :], found)
            elif data:
                link.keep(found.consumed, found.needs)
            busy = len(data) > READ_SIZE // 8
            self._allowance = found.count // telling.SHARE if busy else telling.WINDOW
            if found.consumed:
                self._store(found)
        self._timers()

    def _store(self, found):
        """Make the packets of one read durable, then acknowledge; or hold them: disk full."""
        if found.count:
            try:
                self.upkeep.reserve.take()
                self.spool.append(found.body, found.count, self._received())
            except SpoolFull as error:
                self._disk_full(found, error)
                self._controls(found)  # CONNACK may stand before the messages
                return
            try:
                self._link.send(found.acks)
            finally:  # it is in the spool, also if the connection was lost just now
                self._taken(found)
            self._has_room()
        self._pending = None
        self._controls(found)

    def _controls(self, found):
        while found.others:
            self._control(*found.others.pop(0))

    def _has_room(self):
        if self._full:
            log.warning("there is room in the spool again: going on")
            self._full, self._last_error = False, None
            self._link.last_in = time.monotonic()  # it was not listened to meanwhile

    def _too_large(self, begun, found):
        """A packet of more than max_packet bytes has begun: drop it and acknowledge it, or the
        broker would send it again for ever, before everybody else's."""
        read = wire.beginning(begun)
        if read is None:  # its topic is not there yet
            self._link.keep(found.consumed, len(begun) + 1)
            return
        topic, self._dropped = read
        self._link.keep(found.consumed)
        self._link.drop(found.needs)
        self.counts["too_large"] += 1
        log.error("a message of %d bytes on %r is longer than --max-packet %d: it is dropped and "
                  "acknowledged", found.needs, topic.decode(errors="replace"),
                  self.settings.max_packet)  # fmt: skip

    def _received(self):
        """Time of receipt, unix us. A clock that is set to before 1970 while messages come costs
        their time, and no message. One that is set back otherwise is told of, for later messages
        then have earlier times."""
        early, now = time.time() < 0, now_us()
        if now < self._latest - SET_BACK_US and not early:
            log.warning("the clock of this computer was set back by %s: messages are said to be "
                        "received before earlier ones", _days(self._latest - now))  # fmt: skip
        self._latest = now
        if early and not self._early:
            log.warning("the clock of this computer says %s: until it is set, messages are said "
                        "to be received when 1970 began", _today())  # fmt: skip
        self._early = early
        return now

    def _taken(self, found):
        self.counts["received"] += found.count
        self.counts["acknowledged"] += len(found.acks) // 4
        self.counts["blocks"] += 1
        self._accounts.taken(found.body)

    def _account(self):
        """Take into the marks what was made durable since the last time."""
        self._accounts.settle()
        with self.marks.uncounted():
            self.peers.feed(self.marks)

    def _disk_full(self, found, error):
        self.counts["refused_by_disk"] += 1
        if not self._full:
            log.error("spool %s takes nothing (%s): messages are left unacknowledged until "
                      "there is room", self.spool.folder, error)  # fmt: skip
        self._last_error = f"spool full: {error}"
        self._full = True
        self._pending = found
        self._retry_at = time.monotonic() + FULL_RETRY_S
        if self.shipper:
            self.shipper.hurry()
        limit = self.settings.max_spool_bytes
        if limit is None or self.spool.bytes < limit:
            self.upkeep.make_room()

    # -- what the broker says beside messages ----------------------------------------------------

    def _control(self, head, body):
        kind = head & 0xF0
        if kind == wire.CONNACK:
            self._connack(body)
        elif kind == wire.SUBACK:
            self._suback(body)
        elif kind == wire.UNSUBACK:
            self._unsuback()
        elif kind == wire.PUBREL:
            self._link.send(wire.PUBCOMP_HEAD + body)
        elif kind == wire.PUBACK:
            self._telling.acknowledged(int.from_bytes(body, "big"))
        elif kind != wire.PINGRESP:
            raise wire.ProtocolError(f"unexpected packet, first byte 0x{head:02x}")

    def _connack(self, body):
        s = self.settings
        if len(body) != 2:
            raise wire.ProtocolError("CONNACK of a wrong length [MQTT 3.2]")
        self._unheard = False
        if body[1] == 3:
            raise ConnectionError(wire.REFUSALS[3])
        if body[1]:
            why = wire.REFUSALS.get(body[1], f"return code {body[1]}")
            if body[1] in (4, 5):
                why += ("; the login is --username or UMQTT_BROKER_USER, and "
                        "UMQTT_BROKER_PASSWORD")  # fmt: skip
            raise Refused(f"{s.host}:{s.port} refuses client {s.client_id!r}: {why}")
        if not body[0] & 1:
            # The broker starts from nothing: it may have lost the retained marks, too.
            self.marks.tell_all()
            if self._session_file.known:
                log.warning("%s:%d has lost the session of client %r: the messages that it held "
                            "for this bridge are gone. A device that keeps its readings until a "
                            "mark covers them sends its own again. The readings of other devices "
                            "are lost; the table `gaps` shows which are missing",
                            s.host, s.port, s.client_id)  # fmt: skip
        elif self.spool.made and not self.counts["connects"]:
            log.warning("the broker knows client %r, and the spool in %s is new: a bridge of this "
                        "name has had another spool. What it wrote there is not here, and what "
                        "comes from now on is not there. If that is not meant, end this one and "
                        "give --spool with that folder, or --client-id with a name of its own",
                        s.client_id, self.spool.folder.resolve())  # fmt: skip
        self.counts["connects"] += 1
        # Written down first, and until the broker has forgotten those of earlier runs: it goes on
        # delivering what they match.
        held = self._session_file.topics if body[0] & 1 else []
        self._old_topics = [topic for topic in held if topic not in s.topics]
        self.upkeep.keep_session(self._session_file, [*s.topics, *self._old_topics])
        self._link.send(wire.subscribe_packet(telling.SUBSCRIBE_ID, s.topics, s.qos))
        log.info("connected to %s:%d, session %s", s.host, s.port,
                 "present" if body[0] & 1 else "new")  # fmt: skip

    def _suback(self, body):
        refused = [t for t, code in zip(self.settings.topics, body[2:]) if code == 0x80]
        if refused:
            raise Refused(f"the broker refuses the subscription to {', '.join(refused)}")
        self._ready = True
        if self._old_topics:  # only now: what both match is not missed
            self._link.send(wire.unsubscribe_packet(telling.SUBSCRIBE_ID, self._old_topics))
        self._faults.ready()
        self._last_error = None
        log.info("subscribed to %s at QoS %s", ", ".join(self.settings.topics),
                 "/".join(str(c) for c in body[2:]))  # fmt: skip

    def _unsuback(self):
        self.upkeep.keep_session(self._session_file, self.settings.topics)
        log.info("unsubscribed from %s, which an earlier run asked for",
                 ", ".join(self._old_topics))  # fmt: skip
        self._old_topics = []

    # -- timers -----------------------------------------------------------------------------

    _next_marks = _next_house = _retry_at = _deadline = 0.0
    _allowance = telling.WINDOW

    def _next_timer(self):
        now = time.monotonic()
        if self._pending is not None:
            return min(self._retry_at - now, HOUSEKEEPING_S)
        until = self._next_house
        if not self._unheard and (self.marks.due or self._accounts.waiting):
            until = min(until, self._next_marks)
        return min(until - now, HOUSEKEEPING_S)

    def _timers(self):
        now = time.monotonic()
        self._keep_alive(now)
        if not self._unheard:  # SUBACK may come behind a long backlog
            if not self._telling and now >= self._next_marks:
                self._account()
                self._telling.begin()
                self._next_marks = now + self.settings.mark_interval
            # A fleet that comes back with its backlog is received first: each of its devices is
            # due in each round, and a mark costs as much as a message.
            packets = self._telling.packets(self._allowance) if self._accounts.may_tell else b""
            if packets:
                self._link.send(packets)
        if now >= self._next_house:
            self._next_house = now + HOUSEKEEPING_S
            self._house()

    def _keep_alive(self, now):
        link, s, half = self._link, self.settings, self.settings.keepalive / 2
        listens = self._pending is None
        # Bytes that come are life: a backlog may stand before SUBACK, or one long message. The
        # spool may have no room for it.
        late = now > max(self._deadline, link.last_in + s.connect_timeout)
        if not self._ready and listens and late:
            kind = answers.Silent if self._unheard else ConnectionError
            raise kind(f"no {'CONNACK' if self._unheard else 'SUBACK'} within "
                       f"{self.settings.connect_timeout:g} s")  # fmt: skip
        if listens and now - link.last_in > 2 * half:
            raise ConnectionError(f"not a byte from the broker for {2 * half:g} s")
        # Before SUBACK too, but only while a long packet comes: a broker that answers pings and
        # not SUBSCRIBE is not waited for.
        pings = self._ready or not self._unheard and (link.within or not listens)
        if pings and (now - link.last_out > half or now - link.last_in > half):
            if not link.unsent and now - link.last_out > min(half, 1.0):
                link.send(wire.PINGREQ_PACKET)

    def _house(self):
        self.spool.check_place()  # also when no message comes
        self.mark_keys.refresh()
        self.settings.telemetry_keys.refresh()
        self._account()
        if self.shipper:
            self.shipper.keep()
        self.upkeep.house(self.marks, self._accounts.position, self._full)
        self._metrics()

    def _metrics(self):
        self.upkeep.write_metrics(self.state)

    def state(self):
        """Counters and gauges as a dict (the metrics file)."""
        at, count, rate = self._rate
        now = time.monotonic()
        if now - at >= HOUSEKEEPING_S:
            rate = (self.counts["received"] - count) / (now - at)
            self._rate = (now, self.counts["received"], rate)
        return {
            "time": time.time(), "started": self._started, "connected": self._ready,
            "rate": round(rate, 1), "position": self.spool.position,
            "spool_bytes": self.spool.bytes, "spool_segments": self.spool.segments,
            "spool_full": self._full,
            "lag_bytes": self.upkeep.lag(), "segments_deleted": self.upkeep.deleted,
            "marks": len(self.marks.marks), "marks_due": len(self.marks.due) + len(self._telling),
            "acks_published": self._telling.published,
            "unreadable": self.marks.unreadable, "held_back": self.marks.held_back,
            "unsigned": self.marks.unsigned, "last_error": self._last_error, **self.counts,
            **({"shipped": self.shipper.shipped, "ship_error": self.shipper.error}
               if self.shipper else {}),
        }  # fmt: skip

    def _finish(self):
        if self.shipper:
            self.shipper.stop()
            while self._accounts.settle():
                continue
        if self.spool.in_place():  # else the folder may be another bridge's by now
            self._account()
            self.upkeep.snapshot(self.marks, self._accounts.position)
            if self.shipper:
                self.shipper.end()
        self._metrics()
        ships = self.shipper and self.shipper.fault is None
        if ships and self.shipper.shipped < self.spool.position:
            log.warning("the object store has %s up to position %d of %d: the next start ships "
                        "the rest, so keep the folder", self.spool.folder, self.shipper.shipped,
                        self.spool.position)  # fmt: skip
        n = self.counts["received"]
        later = "; the broker holds what comes meanwhile, up to its limit"
        log.info("ended: %d message%s received, all in the spool%s", n, "" if n == 1 else "s",
                 later if self.counts["connects"] else "")
        self.spool.close()
