"""Safe mode: what a board does that has crashed too often in a row.

Knows the link, the commands and updates. Must not know sensors, stores nor readings: whatever it
is that crashes, none of it is loaded. The board says on .../status that it is in safe mode and
why, and waits for an update or a command "restart"; both end the row of crashes. It connects under
a client identifier of its own (NAME-safe), so that the broker keeps the session of the sensor.
"""

from time import sleep_ms, ticks_diff, ticks_ms

import clock
import resets
import status
import watchdog
from console import log, stopped
from link import Link, make_client
from remote import Remote
from umqtt_min import __version__

_PAUSE_MS = 20


class Safe:
    """One board in safe mode.

    settings  flat dict as settings.complete() gives it, with the device's name
    why       one line for the status report
    """

    def __init__(self, settings, why):
        self.settings = settings
        self._why = why
        base = "fleet/%s/%s/" % (settings["group"], settings["device"])
        self._base = base.encode()
        self._status = self._base + b"status"
        self.client = make_client(settings, None, "-safe")
        self.client.set_last_will(self._status, status.OFFLINE, retain=True, qos=1)
        self.client.set_callback(self._message)
        self._uptime = clock.Uptime()
        self.remote = Remote(settings, {"report": self._report}, self._send, self._restart, log,
                             self._uptime)  # fmt: skip
        self._dog = watchdog.start(settings["watchdog_s"])
        self.link = Link(settings, self.client, self.remote.topics, self._dog.alive, log)
        self._ntp = clock.TimeServer(settings["ntp"], log)
        self._report_at = ticks_ms()
        log("safe mode: %s; waiting for an update or the command restart" % why)

    def run(self):
        """Wait for ever; ends with KeyboardInterrupt only."""
        try:
            while True:
                self.step()
                sleep_ms(_PAUSE_MS)
        except KeyboardInterrupt:
            stopped(self._dog)
            self.link.leave(self._status, status.OFFLINE)
            raise

    def step(self):
        """Do what can be done now. Raises nothing but KeyboardInterrupt and SystemExit."""
        self._dog.alive()
        self._uptime.update()
        try:
            # Without the time no certificate is valid yet, and nobody could mend the board.
            self._ntp.step(self.link.wifi.joined)
            if self.link.step():
                if self.link.new:
                    self.remote.connected()
                    self._report()
                self._online()
        except Exception as error:
            self.remote.failed(error)
            self.link.failed(error)

    def _online(self):
        self.remote.step()
        seconds = self.settings["report_s"]
        if seconds and ticks_diff(ticks_ms(), self._report_at) >= seconds * 1000:
            self._report()

    def _report(self, body=None):
        self._report_at = ticks_ms()
        data = status.common(self.settings, self.remote, __version__)
        data["safe"] = self._why
        self.client.publish(self._status, self.remote.sealed(b"status", data), True)

    def _message(self, topic, payload):
        self.remote.received(topic, payload)

    def _send(self, level, payload):
        self.client.publish(self._base + level, payload)

    def _restart(self, why):
        log("restart by " + why)
        resets.asked(why)
        self.link.leave(self._status, status.OFFLINE)
        import machine

        machine.reset()
