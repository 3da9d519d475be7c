"""Link: the connection to the broker, over Wi-Fi, as the settings want it.

Knows Wi-Fi, the MQTT client, what to log. Must not know when to try again and what to subscribe
(umqtt_min.reconnect), what is published, nor what a message means.
"""

import gc
from binascii import a2b_base64

from umqtt_min import MQTTClient
from umqtt_min.reconnect import Reconnect
from wifi import Wifi

# Of each of the client's two buffers: a piece of an update fits, with the longest topic.
BUFFER = 512
# A longer message is drained: no command is, and nobody shall make the board assemble it.
MAX_MESSAGE = 2048


def why(error):
    """Return an exception in one line."""
    return "%s: %s" % (type(error).__name__, error)


def ca_der(text):
    """Return the first certificate of a PEM text, or of a PEM or DER file, as DER bytes.

    Raises ValueError when there is none: nothing is to be gained by trying again.
    """
    try:
        if not text.startswith("-----BEGIN"):
            with open(text, "rb") as file:
                data = file.read()
            if not data.startswith(b"-----BEGIN"):
                return data
            text = data.decode()
        # DER is what every port reads; PEM is left out of some.
        return a2b_base64("".join(text.split("-----")[2].split()))
    except (OSError, ValueError, IndexError) as error:
        raise ValueError("broker.ca: no certificate and no file on this board (%s)" % error)


def make_client(settings, store, suffix=""):
    """Return the MQTT client that the settings describe.

    store   of the library, or None
    suffix  added to the client identifier: a second session of the same board
    """
    tls = settings["broker.tls"]
    params = None
    if tls:
        params = {"cadata": ca_der(settings["broker.ca"])}
        if settings["broker.cert"]:
            params["certificate"] = settings["broker.cert"]
            params["key"] = settings["broker.key"]
    return MQTTClient(
        settings["device"] + suffix,
        settings["broker.host"],
        settings["broker.port"],
        settings["broker.user"] or None,
        settings["broker.password"] or None,
        settings["keepalive"],
        ssl=tls or None,
        ssl_params=params,
        store=store,
        window=settings["window"],
        timeout=settings["connect_s"],
        buffer_size=BUFFER,
        max_message=MAX_MESSAGE,
    )


class Link(Reconnect):
    """One client, kept connected.

    settings  flat dict as settings.complete() gives it
    client    MQTTClient
    topics    list of (filter, QoS) to subscribe to
    alive     function(): the watchdog's sign of life, after each thing that may take long
    log       function(text)
    """

    def __init__(self, settings, client, topics, alive, log):
        first, most = settings["retry.first_ms"], settings["retry.max_ms"]
        Reconnect.__init__(self, client, topics, first / 1000, most / 1000, None,
                           settings["connect_s"])  # fmt: skip
        # Once per boot also into a session that is there: what is wanted may have changed.
        self.owed = bool(topics)
        self.wifi = Wifi(settings["wifi.ssid"], settings["wifi.password"], first, most, log)
        self.new = False
        self._alive = alive
        self._log = log

    def step(self):
        """Handle what has arrived, or take the next step towards a connection: True while there is
        one. `new` is True in the step that has made it. Raises what the client's callback raises.
        """
        if not self.up and not self.wifi.joined():
            return False
        was = self.up
        if Reconnect.step(self):
            self.new = not was
            if self.new:
                self._alive()
            return True
        return False

    def made(self, present):
        """See Reconnect.made()."""
        self._alive()
        self._log("connected to %s:%d, session %s, %d to send" % (
            self.client.server, self.client.port, "present" if present else "new",
            self.client.inflight()))  # fmt: skip

    def failed(self, error):
        """The connection is over, whatever it was: the board goes on, with a new one."""
        if error is not self.error:  # else step() has raised what it has told
            pause = Reconnect.failed(self, error)
            gc.collect()
            self._log("%s, next try in %d ms" % (why(error), pause))

    def leave(self, topic, payload):
        """Say goodbye on a topic (retained) and disconnect; never raises."""
        try:
            if self.client.connected:
                self.client.publish(topic, payload, True)
                self.client.disconnect()
        except Exception as error:
            self._log(why(error))
        self.up = False
