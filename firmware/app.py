"""The application: a reading every interval, whatever the network does, and all of them delivered.

Knows how the parts fit together and the topics. Must not know bytes of packets or of flash, nor
what a sensor measures. Nothing here waits for long: each step does what can be done now. A
reading goes into the store first and from there to the broker, so that a missing network costs
nothing but room.
"""

import gc
import sys
from binascii import hexlify
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

import clock
import loader
import resets
import sensors
import status
import stores
import watchdog
from confirm import Confirm, unsealer
from console import log, log_rarely, stopped
from link import Link, make_client, why
from remote import Remote
from telemetry import Packer
from umqtt_min import MQTTException, __version__
from umqtt_min.port import const

CLOCK = (("clock", "s", 3),)
_STORE_FULL = const(20)  # as in umqtt_min/errors.py
# Pauses between two steps: with nothing under way, and with messages to be acknowledged.
_IDLE_MS = const(20)
_BUSY_MS = const(4)
_FULL_MS = const(250)
# A program that has run for so long does not crash at its start: the row of crashes is over.
_LASTED_S = const(600)


def device_name(settings):
    """Return the name of this sensor: the settings', or one made of the chip's id."""
    if settings["device"]:
        return settings["device"]
    import machine

    return "umqtt-" + hexlify(machine.unique_id()).decode()


class App:
    """One sensor.

    settings  flat dict as settings.complete() gives it
    Raises ValueError when the settings ask for what this board has not.
    """

    def __init__(self, settings):
        self.settings = settings
        settings["device"] = device_name(settings)
        self.uptime = clock.Uptime()
        self.cause = resets.cause()
        self.full = self.late = self.sensor_errors = self.store_errors = self.troubles = 0
        self._make_store()
        self._make_topics()
        self._make_record()
        self._make_links()

    def _make_store(self):
        settings = self.settings
        hold = settings["confirm"] == "pipeline"
        self.store = store = stores.make(
            settings["store"], hold, log, settings["retention"] if hold else 0
        )
        store.open()
        self.epoch = hexlify(store.epoch).decode()
        self.sensor = sensors.make(settings)
        self.sensor.begin(store)
        self.client = make_client(settings, store)
        self.client.set_callback(self._message)
        self.confirm = None
        if hold:
            self.confirm = Confirm(self.client, store, settings["stall_s"],
                                   settings["retention"], log, unsealer(settings))
        elif store.held:
            # No mark will come for them: they would be in the way for ever.
            log("%d readings were held for a mark: published again, for the broker alone"
                % self.client.republish(store.low, store.seq - 1))  # fmt: skip
        log("%s boot %d after %s, epoch %s, next number %d, %d stored" % (
            settings["device"], store.boot, self.cause, self.epoch, store.seq, store.live))

    def _make_topics(self):
        self._base = "fleet/%s/%s/" % (self.settings["group"], self.settings["device"])
        self._telemetry = (self._base + "telemetry").encode()
        self._status = (self._base + "status").encode()
        self._ack = (self._base + "ack").encode()
        self.client.set_last_will(self._status, status.OFFLINE, retain=True, qos=1)

    def _make_record(self):
        store, device = self.store, self.settings["device"]
        sign = None
        if self.settings["telemetry"] == "signed":
            from signing import signer

            sign = signer(self.settings)
        self._packer = Packer(device, store.epoch, store.boot, self.sensor.fields, sign)
        self._clock = Packer(device, store.epoch, store.boot, CLOCK, sign)
        self._pending = 0  # length of a packed reading that the store has not taken yet
        self._due = self._retry = ticks_ms()
        self._last = self.settings["readings"]
        self._finished = False
        self._first = store.next(0) or store.seq  # to be acknowledged first; 0: it was

    def _make_links(self):
        s = self.settings
        self.remote = Remote(s, {"interval": self._set_interval, "report": self._report},
                             self._send, self._restart, log, self.uptime)  # fmt: skip
        self._dog = watchdog.start(s["watchdog_s"])
        topics = self.remote.topics
        if self.confirm:
            topics.append((self._ack, 1))
        self.link = Link(s, self.client, topics, self._dog.alive, log)
        self._ntp = clock.TimeServer(s["ntp"], log)
        self._timed = False
        self._report_at = ticks_ms()

    @property
    def interval(self):
        """Milliseconds between two readings: the settings', or what a command has set."""
        return self.remote.interval

    # The loop

    def run(self):
        """Work for ever; ends with KeyboardInterrupt, and with deep sleep where that is wanted."""
        try:
            if self.settings["deep_sleep"]:
                import sleeper

                sleeper.Waking(self).run()
            while True:
                self.step()
                sleep_ms(self.pause())
        except KeyboardInterrupt:
            stopped(self._dog)
            self.leave()
            raise

    def step(self):
        """Do what can be done now. Raises nothing but KeyboardInterrupt and SystemExit."""
        self._dog.alive()
        self.uptime.update()
        if self.uptime.s >= _LASTED_S and resets.row():
            resets.lasted()
        try:
            self._read()
            self._tell_time()
        except Exception as error:
            self._troubled(error)
        try:
            if self.link.step():
                if self.link.new:
                    self._connected()
                self._online()
        except Exception as error:
            self.remote.failed(error)
            self.link.failed(error)

    def pause(self):
        """Return how many milliseconds may pass before the next step."""
        if self._pending:
            return _IDLE_MS
        pause = _BUSY_MS if self.link.up and self.client.inflight() else _IDLE_MS
        left = ticks_diff(self._due, ticks_ms())
        return max(0, min(pause, left)) if self._wants() else pause

    # Readings

    def _wants(self):
        return not self._last or self.sensor.taken < self._last

    def take_one(self):
        """Take one more reading and then none, where the settings do not end them earlier."""
        one = self.sensor.taken + 1
        self._last = min(one, self._last) if self._last else one
        # Taken at once: `late` counts intervals that passed awake.
        self._due = ticks_ms()

    @property
    def idle(self):
        """True when all that there is to do now is done: measured, told the time, delivered."""
        measured = not self._wants() or self.sensor_errors
        timed = self._timed or self._ntp.idle
        return measured and timed and not self._pending and not self.client.inflight()

    def _read(self):
        now = ticks_ms()
        if self._pending:
            if ticks_diff(now, self._retry) >= 0:
                self._put_reading()
        elif ticks_diff(now, self._due) >= 0 and self._wants():
            self._schedule(now)
            self._take()

    def _schedule(self, now):
        self._due = ticks_add(self._due, self.interval)
        if ticks_diff(now, self._due) >= 0:
            # One or more are missed: go on from now rather than take them all at once.
            self.late += 1
            self._due = ticks_add(now, self.interval)

    def _take(self):
        sensor, store = self.sensor, self.store
        try:
            sensor.sample()
            self._pending = self._packer.pack(
                store.seq, store.low, self.uptime.s, self.uptime.ms, sensor.values
            )
        except Exception as error:
            # Of whatever kind: a driver is somebody else's code.
            self.sensor_errors += 1
            log_rarely("sensor: " + why(error), self.sensor_errors)
            return
        sensor.taking(store)
        self._put_reading()

    def _put_reading(self):
        # The number in the record stays right for as long as it takes: nothing else is put.
        if self._put(self._packer.view(self._pending)):
            self._pending = 0
            self.sensor.stored()
            if self.sensor.taken == self.settings["readings"]:
                log("reading %d taken, the last" % self.sensor.taken)

    def _put(self, payload):
        # Whether it is accepted: what publish() returned from is. Where it raised, the counter of
        # the store tells, and never the other way round: the sensor's count must not rest on it.
        seq = self.store.seq
        try:
            self.client.publish(self._telemetry, payload, False, self.settings["qos"], False)
        except MQTTException as error:
            if error.reason == _STORE_FULL:
                self._is_full()
            elif self.store.seq == seq:
                raise
        except OSError as error:
            if self.store.seq == seq:
                self.store_errors += 1
                log_rarely("store: " + why(error), self.store_errors)
                self._retry = ticks_add(ticks_ms(), 1000)
        else:
            return True
        return self.store.seq > seq

    def _is_full(self):
        if self.settings["full"] == "release" and self.store.held:
            self.confirm.give_up(max(1, self.store.held // 8))
            return
        self.full += 1
        log_rarely("store is full: no reading until there is room", self.full)
        self._retry = ticks_add(ticks_ms(), _FULL_MS)

    # Time

    def _tell_time(self):
        if self._timed or self._pending:
            return
        if self._ntp.step(self.link.wifi.joined):
            self._put_time()

    def _put_time(self):
        if ticks_diff(ticks_ms(), self._retry) < 0:
            return
        up, store = self.uptime, self.store
        up.update()
        length = self._clock.pack(store.seq, store.low, up.s, up.ms, (clock.unix_ms(),))
        self._timed = self._put(self._clock.view(length))

    # The connection

    def _connected(self):
        if self.confirm:
            self.confirm.connected()
        self.remote.connected()
        self._report()
        self._dog.alive()

    def _online(self):
        if self.confirm:
            self.confirm.step()
        if self._first and self.client.counters.acked:
            self._acknowledged()
        self.remote.step()
        seconds = self.settings["report_s"]
        if seconds and ticks_diff(ticks_ms(), self._report_at) >= seconds * 1000:
            self._report()
        if not (self._finished or self._wants() or self.store.live):
            self._finished = True
            if self._last == self.settings["readings"]:
                log("all delivered: %d readings, next number %d" % (self._last, self.store.seq))

    def _acknowledged(self):
        # The whole way works: what an update has to show, unless somebody else is to say so.
        if self.settings["update.trial"] == "reading" and loader.healthy():
            log("update is healthy, and stays")
            self._report()
        log("first publish acknowledged seq=%d" % self._first)
        self._first = 0

    def _report(self, body=None):
        self._report_at = ticks_ms()
        said = status.report(self, __version__, self.epoch)
        self.client.publish(self._status, self.remote.sealed(b"status", said), True)

    def _troubled(self, error):
        # Something that has nothing to do with the network; the next step tries again.
        self.troubles += 1
        self.remote.failed(error)
        log_rarely(why(error), self.troubles)
        gc.collect()

    def leave(self, payload=status.OFFLINE):
        """Say on .../status that the board goes, and disconnect; never raises."""
        self.link.leave(self._status, payload)

    # Messages

    def _message(self, topic, payload):
        # The client's callback: takes note, acts in the next step.
        if topic != self._ack:
            self.remote.received(topic, payload)
        elif self.confirm:
            self.confirm.received(payload)

    def _send(self, level, payload):
        self.client.publish(self._base.encode() + level, payload)

    def _restart(self, why):
        log("restart by " + why)
        resets.asked(why)
        self.leave()
        import machine

        machine.reset()

    def _set_interval(self, body):
        import settings

        ms = body.get("interval_ms")
        wrong = settings.validate({"broker.host": "-", "interval_ms": ms})
        expected = settings.expected("interval_ms")
        # Its words would take the room that an update needs.
        del sys.modules["settings"], settings
        gc.collect()
        if wrong:
            log("command interval: interval_ms: expected %s" % expected)
            return
        try:
            self.remote.keep_interval(ms)
        except OSError as error:
            log("command interval: cannot be kept: %s" % why(error))
            return
        self._due = ticks_ms()
        log("interval %d ms by command" % ms)
        self._report()


def main():
    """Start the firmware; returns only when the settings cannot be used."""
    import settings

    try:
        flat = settings.load()
    except settings.SettingsError as error:
        for line in str(error).split("\n"):
            log("settings: " + line)
        return
    # The schema with its words is some kilobytes that are not needed again.
    del sys.modules["settings"], settings
    gc.collect()
    try:
        program = safe_mode(flat) or App(flat)
    except ValueError as error:
        log("settings: %s" % error)
        return
    program.run()


def safe_mode(settings):
    """Return the safe mode if this board has crashed too often in a row, else None.

    Never without a command key: nothing could tell the board to leave it.
    """
    most = settings["safe_after"]
    if not most or resets.row() < most or not settings["command_key"]:
        return None
    import safe

    settings["device"] = device_name(settings)
    return safe.Safe(settings, "%d crashes in a row" % resets.row())
