"""Wi-Fi: joins the network and joins it again, without ever waiting for it.

Knows network.WLAN. Must not know MQTT. A port without the module `network` (the virtual board) is
taken to be on a network already. Not called network.py: a module of that name is built in.
"""

from time import ticks_diff, ticks_ms

from umqtt_min.backoff import Backoff

try:
    import network
except ImportError:
    network = None

# A join that has neither worked nor failed by then is begun again.
JOIN_MS = 20000


class Wifi:
    """One station interface.

    ssid, password      network; ssid "" leaves the interface alone and counts as joined
    first_ms, max_ms    see Backoff
    log                 function(text)
    """

    def __init__(self, ssid, password, first_ms, max_ms, log):
        self._ssid = ssid
        self._password = password
        self._log = log
        self._backoff = Backoff(first_ms, max_ms)
        self._began = None
        self._up = False
        self.joins = 0
        self._wlan = None
        if network and ssid:
            self._wlan = network.WLAN(network.STA_IF)
            self._wlan.active(True)
            self._tune()

    def joined(self):
        """Tell whether the network is there; takes the next step towards it if not."""
        if self._wlan is None:
            return True
        if self._wlan.isconnected():
            self._note_up()
            return True
        self._step()
        return False

    def _tune(self):
        # esp32's own endless retry would fight with the pauses here; ports without it say so.
        try:
            self._wlan.config(reconnects=0)
        except (ValueError, OSError):
            pass

    def _note_up(self):
        if not self._up:
            self._up = True
            self._began = None
            self.joins += 1
            self._backoff.began()
            self._log("wifi joined as %s" % self._wlan.ifconfig()[0])

    def _step(self):
        if self._up:
            self._up = False
            self._log("wifi lost")
            self._backoff.failed()
        try:
            if self._began is not None:
                self._await()
            elif self._backoff.ready():
                self._join()
        except OSError as error:
            self._began = None
            self._log("wifi: %s, next try in %d ms" % (error, self._backoff.failed()))

    def _await(self):
        # Below zero and the 200s are the ports' codes for refused; the rest is still under way.
        status = self._wlan.status()
        if 0 <= status < 200 or status >= 1000:
            if ticks_diff(ticks_ms(), self._began) < JOIN_MS:
                return
        self._began = None
        self._wlan.disconnect()
        self._log("wifi not joined (status %d), next try in %d ms"
                  % (status, self._backoff.failed()))

    def _join(self):
        self._began = ticks_ms()
        self._wlan.connect(self._ssid, self._password or None)
