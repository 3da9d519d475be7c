"""The application: a reading every interval, whatever the network does, and all of them delivered.

Knows how the parts fit together and the topics. Must not know bytes of packets or of flash, nor
what a sensor measures. Nothing here waits for long: each step does what can be done now. A
reading goes into the store first and from there to the broker, so that a missing network costs
nothing but room.
"""

import gc
import sys
from binascii import a2b_base64, hexlify, unhexlify
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

import clock
import sensors
import state
import status
import stores
import watchdog
from backoff import Backoff
from commands import Commands, Refused
from confirm import Confirm
from telemetry import Packer
from umqtt_min import MQTTClient, MQTTException, __version__
from umqtt_min.errors import STORE_FULL
from wifi import Wifi

CLOCK = (("clock", "s", 3),)
# Pauses between two steps: with nothing under way, and with messages to be acknowledged.
IDLE_MS = 20
BUSY_MS = 4
FULL_MS = 250


def log(text):
    """Print one line; whoever flashes the board follows these."""
    print("umqtt:", text)


def log_rarely(text, times):
    """Print the 1st, 2nd, 4th, 8th ... of a line that may come again and again."""
    if times & times - 1 == 0:
        log("%s (%d times)" % (text, times))


def why(error):
    """Return an exception in one line."""
    return "%s: %s" % (type(error).__name__, error)


def device_name(settings):
    """Return the name of this sensor: the settings', or one made of the chip's id."""
    if settings["device"]:
        return settings["device"]
    import machine

    return "umqtt-" + hexlify(machine.unique_id()).decode()


def ca_der(text):
    """Return the first certificate of a PEM text, or of a PEM or DER file, as DER bytes."""
    if not text.startswith("-----BEGIN"):
        with open(text, "rb") as file:
            data = file.read()
        if not data.startswith(b"-----BEGIN"):
            return data
        text = data.decode()
    # DER is what every port reads; PEM is left out of some.
    return a2b_base64("".join(text.split("-----")[2].split()))


def make_client(settings, store):
    """Return the MQTT client that the settings describe."""
    tls = settings["broker.tls"]
    return MQTTClient(
        settings["device"],
        settings["broker.host"],
        settings["broker.port"],
        settings["broker.user"] or None,
        settings["broker.password"] or None,
        settings["keepalive"],
        ssl=tls or None,
        ssl_params={"cadata": ca_der(settings["broker.ca"])} if tls else None,
        store=store,
        window=settings["window"],
        timeout=settings["connect_s"],
    )


class App:
    """One sensor.

    settings  flat dict as settings.complete() gives it
    Raises ValueError when the settings ask for what this board has not.
    """

    def __init__(self, settings):
        self.settings = settings
        settings["device"] = device_name(settings)
        self.uptime = clock.Uptime()
        self.cause = status.reset_cause()
        self.interval = settings["interval_ms"]
        self.full = self.late = self.sensor_errors = self.store_errors = self.troubles = 0
        self._make_store()
        self._make_topics()
        self._make_record()
        self._make_commands()
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
                                   settings["retention"], log)
        log("%s boot %d after %s, epoch %s, next number %d, %d stored" % (
            settings["device"], store.boot, self.cause, self.epoch, store.seq, store.live))

    def _make_topics(self):
        base = "fleet/%s/%s/" % (self.settings["group"], self.settings["device"])
        self._telemetry = (base + "telemetry").encode()
        self._status = (base + "status").encode()
        self._ack = (base + "ack").encode()
        self._cmd = (base + "cmd/").encode()
        self.client.set_last_will(self._status, status.OFFLINE, retain=True, qos=1)

    def _make_record(self):
        store, device = self.store, self.settings["device"]
        self._packer = Packer(device, store.epoch, store.boot, self.sensor.fields)
        self._clock = Packer(device, store.epoch, store.boot, CLOCK)
        self._pending = 0  # length of a packed reading that the store has not taken yet
        self._due = self._retry = ticks_ms()
        self._last = self.settings["readings"]
        self._finished = False
        self._first = store.next(0) or store.seq  # to be acknowledged first; 0: it was

    def _make_commands(self):
        self.commands = None
        self._todo = []
        key = self.settings["command_key"]
        self._state = {}
        try:
            self._state = state.load()
        except state.StateError as error:
            log("%s: commands stay off, their counter is lost" % error)
            key = ""
        if key:
            self.commands = Commands(unhexlify(key), self._state.get("count", 0), self._keep)
        # An interval that came by command holds until the settings' own is changed.
        if self._state.get("interval_was") == self.interval:
            self.interval = self._state["interval_ms"]

    def _make_links(self):
        s = self.settings
        first, most = s["retry.first_ms"], s["retry.max_ms"]
        self._wifi = Wifi(s["wifi.ssid"], s["wifi.password"], first, most, log)
        self._backoff = Backoff(first, most)
        self._ntp = Backoff(1000, 600000)
        self._timed = self._up = self._subscribed = False
        self._report_at = ticks_ms()
        self._dog = watchdog.start(s["watchdog_s"])

    # The loop

    def run(self):
        """Work for ever; ends with KeyboardInterrupt only."""
        try:
            while True:
                self.step()
                sleep_ms(self._pause())
        except KeyboardInterrupt:
            self._dog.console()
            log("stopped at the console")
            self._leave()
            raise

    def step(self):
        """Do what can be done now. Raises nothing but KeyboardInterrupt and SystemExit."""
        self._dog.alive()
        self.uptime.update()
        try:
            self._read()
            self._tell_time()
        except Exception as error:
            self._troubled(error)
        try:
            if self.client.connected:
                self._online()
            else:
                self._offline()
        except Exception as error:
            self._failed(error)

    def _pause(self):
        if self._pending:
            return IDLE_MS
        pause = BUSY_MS if self._up and self.client.inflight else IDLE_MS
        left = ticks_diff(self._due, ticks_ms())
        return max(0, min(pause, left)) if self._wants() else pause

    # Readings

    def _wants(self):
        return not self._last or self.sensor.taken < self._last

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
            if self.sensor.taken == self._last:
                log("reading %d taken, the last" % self._last)

    def _put(self, payload):
        # Whether the store has it: told by its counter, not by how the call ended.
        seq = self.store.seq
        try:
            self.client.publish(self._telemetry, payload, False, self.settings["qos"], False)
        except MQTTException as error:
            if error.reason == STORE_FULL:
                self._is_full()
            elif self.store.seq == seq:
                raise
        except OSError as error:
            if self.store.seq == seq:
                self.store_errors += 1
                log_rarely("store: " + why(error), self.store_errors)
                self._retry = ticks_add(ticks_ms(), 1000)
        return self.store.seq > seq

    def _is_full(self):
        if self.settings["full"] == "release" and self.store.held:
            self.confirm.give_up(max(1, self.store.held // 8))
            return
        self.full += 1
        log_rarely("store is full: no reading until there is room", self.full)
        self._retry = ticks_add(ticks_ms(), FULL_MS)

    # Time

    def _tell_time(self):
        if self._timed or self._pending:
            return
        if clock.is_set():
            self._put_time()
        elif self.settings["ntp"] and self._ntp.ready() and self._wifi.joined():
            try:
                clock.ask(self.settings["ntp"])
            except Exception as error:
                log("ntp: %s, next try in %d ms" % (why(error), self._ntp.failed()))

    def _put_time(self):
        if ticks_diff(ticks_ms(), self._retry) < 0:
            return
        up, store = self.uptime, self.store
        up.update()
        length = self._clock.pack(store.seq, store.low, up.s, up.ms, (clock.unix_ms(),))
        self._timed = self._put(self._clock.view(length))

    # The connection

    def _offline(self):
        if self._up:
            self._failed(OSError("connection lost, error %d" % self.client.counters.last_error))
        if self._wifi.joined() and self._backoff.ready():
            self._connect()

    def _connect(self):
        s, client = self.settings, self.client
        present = client.connect(timeout=s["connect_s"])
        self._up = True
        self._backoff.began()
        log("connected to %s:%d, session %s, %d to send" % (
            s["broker.host"], s["broker.port"], "present" if present else "new", client.inflight))
        # Once per boot also into a session that is there: what is wanted may have changed. A new
        # session may be cut off before it has the subscription, and be "present" the next time.
        if not present:
            self._subscribed = False
        if not self._subscribed:
            self._subscribe()
        if self.confirm:
            self.confirm.connected()
        self._report()

    def _subscribe(self):
        topics = []
        if self.confirm:
            topics.append((self._ack, 1))
        if self.commands:
            topics.append((self._cmd + b"+", 1))
        if topics:
            self.client.subscribe(topics)
        self._subscribed = True

    def _online(self):
        self.client.check_msg()
        if self.confirm:
            self.confirm.step()
        if self._first and self.client.counters.acked:
            log("first publish acknowledged seq=%d" % self._first)
            self._first = 0
        if self._todo:
            self._obey(*self._todo.pop(0))
        seconds = self.settings["report_s"]
        if seconds and ticks_diff(ticks_ms(), self._report_at) >= seconds * 1000:
            self._report()
        if not self._wants() and not self._finished and not self.store.live:
            self._finished = True
            log("all delivered: %d readings, next number %d" % (self._last, self.store.seq))

    def _report(self):
        self._report_at = ticks_ms()
        self.client.publish(self._status, status.report(self, __version__, self.epoch), True)

    def _troubled(self, error):
        # Something that has nothing to do with the network; the next step tries again.
        self.troubles += 1
        log_rarely(why(error), self.troubles)
        gc.collect()

    def _failed(self, error):
        # Whatever it was: the board goes on, with a new connection.
        self._up = False
        if self.client.connected:
            self.client.disconnect()
        gc.collect()
        log("%s, next try in %d ms" % (why(error), self._backoff.failed()))

    def _leave(self):
        try:
            if self.client.connected:
                self.client.publish(self._status, status.OFFLINE, True)
                self.client.disconnect()
        except Exception as error:
            log(why(error))

    # Messages

    def _message(self, topic, payload):
        # The client's callback: takes note, acts in the next step.
        if topic == self._ack:
            if self.confirm:
                self.confirm.received(payload)
        elif self.commands and topic.startswith(self._cmd):
            name = topic[len(self._cmd) :].decode()
            try:
                self._todo.append((name, self.commands.check(topic, payload)))
            except (Refused, OSError) as error:
                log("command %s refused: %s" % (name, error))

    def _keep(self, count):
        self._state["count"] = count
        state.save(self._state)

    def _obey(self, name, body):
        if name == "interval":
            self._set_interval(body.get("interval_ms"))
        elif name == "report":
            self._report()
        elif name == "restart":
            log("restart by command")
            self._leave()
            import machine

            machine.reset()
        else:
            log("command %s: unknown" % name)

    def _set_interval(self, ms):
        import settings

        if settings.validate({"broker.host": "-", "interval_ms": ms}):
            log("command interval: interval_ms: expected %s" % settings.expected("interval_ms"))
            return
        self._state["interval_was"] = self.settings["interval_ms"]
        self._state["interval_ms"] = ms
        state.save(self._state)
        self.interval = ms
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
        app = App(flat)
    except ValueError as error:
        log("settings: %s" % error)
        return
    app.run()
