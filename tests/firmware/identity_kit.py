"""A fleet's certificates and access lists at a real mosquitto, and clients that show one.

Knows what `umqtt-board identity` writes. Must not know what a test is about.
"""

import ssl

import brokers
import paho.mqtt.client as mqtt
import pytest
from patience import wait_until
from umqtt_board.ota import giving
from update_kit import board_cli

BOARDS = (("g", "a"), ("g", "b"), ("h", "a"))


@pytest.fixture
def fleet(home, tmp_path):
    """The folder that `umqtt-board identity` has written for BOARDS."""
    for group, device in BOARDS:
        giving.give({"device": device, "group": group, "broker.host": "localhost"}, device)
    out = tmp_path / "identity"
    assert board_cli("identity", "--out", out, "--host", "localhost") == 0
    return out


class Guarded(brokers.Broker):
    """A mosquitto with a listener as mosquitto.conf of the fleet has it; a user `observer` with a
    password-less listener of its own sees and says everything."""

    def __init__(self, folder):
        self.guarded = brokers.free_port()
        # mosquitto, begun by root, must be able to read what is root's alone.
        listener = (folder / "broker" / "mosquitto.conf").read_text()
        listener = listener.replace("8883", str(self.guarded))
        super().__init__("mosquitto", "allow_anonymous false\n" + listener)

    def start(self):
        super().start()
        brokers.wait_port(self.guarded, self.process)  # it opens one after the other

    def _command(self):
        command = super()._command()
        config = self.folder / "mosquitto.conf"
        # Each listener its own rules: the plain one is the observer's, without any.
        config.write_text("per_listener_settings true\n" + config.read_text().replace(
            "allow_anonymous false\n", ""))
        return command


@pytest.fixture
def guarded(fleet):
    brokers.need_mosquitto()
    own = Guarded(fleet)
    yield own
    own.stop()


def files(fleet, user):
    path = fleet / ("boards/" + user if "/" in user else user)
    return f"{path}.pem", f"{path}-key.pem"


class Client:
    """A client that keeps what it gets; user: whose certificate it shows, None: none."""

    def __init__(self, port, fleet=None, user=None, pair=None):
        self.got = []
        self.ready = []
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, clean_session=True,
                                  reconnect_on_failure=False)  # fmt: skip
        if fleet:
            context = ssl.create_default_context(cafile=fleet / "broker-ca.pem")
            if user:
                context.load_cert_chain(*(pair or files(fleet, user)))
            self.client.tls_set_context(context)
        self.client.on_connect = lambda *_: self.ready.append("connected")
        self.client.on_disconnect = lambda *_: self.ready.append("gone")
        self.client.on_subscribe = lambda *_: self.ready.append("subscribed")
        self.client.on_message = lambda _, __, message: self.got.append(
            (message.topic, bytes(message.payload)))  # fmt: skip
        self.client.connect("localhost" if fleet else "127.0.0.1", port)
        self.client.loop_start()
        wait_until(lambda: self.ready, 10, f"an answer to {user}")
        if self.ready[0] != "connected":
            self.__exit__()
            raise ConnectionError(f"{user} is not let in")

    def subscribe(self, *filters):
        self.client.subscribe([(one, 1) for one in filters])
        wait_until(lambda: "subscribed" in self.ready, 10, "SUBACK")

    def publish(self, topic, text):
        # mosquitto ends the connection of who publishes what is not theirs.
        sent = self.client.publish(topic, text, 1)
        wait_until(lambda: "gone" in self.ready or sent.rc == 0 and sent.is_published(), 10,
                   "PUBACK or an end")  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()
