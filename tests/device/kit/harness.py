"""What the client's tests share: a client wired to a strict broker, on a clock that does not wait.

Knows: StrictBroker, Network, MQTTClient's arguments.  Must not know: what is tested.
"""

import softtimer
from broker_stream import Network
from strict_broker import StrictBroker, check_all
from umqtt_min import MQTTClient
from umqtt_min.errors import MQTTException


class Bench:
    """A strict broker, a network and a client that collects what it receives."""

    def __init__(self, broker=None, virtual=True, **options):
        check_all()  # an earlier bench of the same test: looked at now, and its memory freed
        softtimer.set_virtual(virtual)
        self.broker = broker or StrictBroker()
        # A client without a store forgets what was not acknowledged.
        self.broker.resume_required = "store" in options
        self.net = Network(self.broker)
        self.got = []
        self.make(**options)

    def make(self, **options):
        """A new client, as after a restart of the device."""
        settings = {"client_id": b"dev", "server": "broker", "keepalive": 60, "timer": False}
        settings["timeout"] = 5
        settings.update(options)
        self.client = MQTTClient(connector=self.net, **settings)
        self.client.set_callback(self._received)
        return self.client

    def _received(self, topic, msg):
        self.got.append((bytes(topic), bytes(msg)))

    def disturb(self, act):
        """Have a message wait, with QoS 1, whose callback takes it and then calls `act`; the
        callback of any message after it only takes it."""

        def callback(topic, msg):
            self._received(topic, msg)
            if len(self.got) == 1:
                act()

        self.client.set_callback(callback)
        self.broker.publish(b"t", b"x", 1)

    @property
    def conn(self):
        """The broker's side of the latest connection."""
        return self.net.stream.conn

    def connect(self, clean=None):
        """Connect; returns Session Present."""
        return self.client.connect(clean)

    def subscribe(self, topic=b"t", qos=2):
        """Connect, subscribe and forget the packets so far."""
        self.connect()
        self.client.subscribe(topic, qos)
        del self.broker.packets[:]
        return self

    def pump(self, times=20):
        """check_msg() that many times."""
        for _ in range(times):
            self.client.check_msg()

    def kinds(self):
        """Types of the packets that came from clients."""
        return [p.type for p in self.broker.packets]


def thrower(error):
    """A function that raises `error`."""

    def throw():
        raise error

    return throw


def raises(kind, function, *args, **kw):
    """The exception of that kind which function must raise."""
    try:
        function(*args, **kw)
    except kind as e:
        return e
    raise AssertionError("%r did not raise %r" % (function, kind))


def reason(function, *args, **kw):
    """The reason of the MQTTException which function must raise."""
    return raises(MQTTException, function, *args, **kw).reason
