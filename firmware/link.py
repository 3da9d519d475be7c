"""Link: the connection to the broker: joined, made, subscribed, and made again after a pause.

Knows Wi-Fi, the MQTT client, and when to try again. Must not know what is published nor what a
message means. No step waits longer than one attempt to connect may take.
"""

import gc
from binascii import a2b_base64

from umqtt_min import MQTTClient
from umqtt_min.backoff import Backoff
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


class Link:
    """One client, kept connected.

    settings  flat dict as settings.complete() gives it
    client    MQTTClient
    topics    list of (filter, QoS) to subscribe to
    alive     function(): the watchdog's sign of life, after each thing that may take long
    log       function(text)
    """

    def __init__(self, settings, client, topics, alive, log):
        first, most = settings["retry.first_ms"], settings["retry.max_ms"]
        self.client = client
        self.wifi = Wifi(settings["wifi.ssid"], settings["wifi.password"], first, most, log)
        self.up = False
        self.subscribed = False
        self._topics = topics
        self._timeout = settings["connect_s"]
        self._backoff = Backoff(first, most)
        self._alive = alive
        self._log = log

    def step(self):
        """Take the next step towards a connection; return True when one has just been made.

        To be called while the client is not connected. Raises what connecting raises.
        """
        if self.up:
            self.failed(OSError("connection lost, error %d" % self.client.counters.last_error))
        if not (self.wifi.joined() and self._backoff.ready()):
            return False
        self._connect()
        return True

    def _connect(self):
        client = self.client
        # If CONNACK gets lost nobody hears that the session is a new one: the next one says that
        # it is there.
        subscribed = self.subscribed
        self.subscribed = False
        present = client.connect(timeout=self._timeout)
        self._alive()
        self.up = True
        self._backoff.began()
        self._log("connected to %s:%d, session %s, %d to send" % (
            client.server, client.port, "present" if present else "new", client.inflight()))
        # Once per boot also into a session that is there: what is wanted may have changed. A new
        # session may be cut off before it has the subscription, and be "present" the next time.
        self.subscribed = present and subscribed
        if not self.subscribed:
            if self._topics:
                client.subscribe(self._topics)
                self._alive()
            self.subscribed = True

    def failed(self, error):
        """The connection is over, whatever it was: the board goes on, with a new one."""
        self.up = False
        if self.client.connected:
            self.client.disconnect()
        gc.collect()
        self._log("%s, next try in %d ms" % (why(error), self._backoff.failed()))

    def leave(self, topic, payload):
        """Say goodbye on a topic (retained) and disconnect; never raises."""
        try:
            if self.client.connected:
                self.client.publish(topic, payload, True)
                self.client.disconnect()
        except Exception as error:
            self._log(why(error))
        self.up = False
