"""The fleet's certificates and access lists at a real mosquitto: every needed way works, every
forbidden one fails. One thief of a board's key, one who has none, and one of another fleet."""

import shutil
import signal
import ssl

import brokers
import paho.mqtt.client as mqtt
import pytest
from bench import Subscriber
from patience import wait_until
from test_signed_marks import board_cli, bridge, home  # noqa: F401
from umqtt_board.identity import access
from umqtt_board.ota import keys

BOARDS = (("g", "a"), ("g", "b"), ("h", "a"))
LEVELS = ("telemetry", "status", "ota", "ack", "cmd/interval", "cmd/ota", "cmd/piece")
TOPICS = [f"fleet/{group}/{device}/{level}" for group, device in (*BOARDS, ("g", "-all"))
          for level in LEVELS] + ["fleet/g/new/telemetry", "elsewhere"]  # fmt: skip
USERS = ("bridge", "operator", "g/a", "h/a")


def may_publish(user, topic):
    """Whether the page says that this user may."""
    parts = topic.split("/")
    if parts[0] != "fleet" or len(parts) < 4:
        return False
    if user == "bridge":
        return parts[3] == "ack"
    if user == "operator":
        return parts[3] == "cmd"
    return "/".join(parts[1:3]) == user and parts[3] in ("telemetry", "status", "ota")


def may_receive(user, topic):
    parts = topic.split("/")
    if parts[0] != "fleet" or len(parts) < 4:
        return False
    if user == "bridge":
        return parts[3] == "telemetry"
    if user == "operator":
        return parts[3] in ("status", "ota")
    own = "/".join(parts[1:3])
    group = user.partition("/")[0]
    return own == user and parts[3] in ("ack", "cmd") or (
        own == f"{group}/-all" and parts[3] == "cmd")


@pytest.fixture
def fleet(home, tmp_path):  # noqa: F811
    """The folder that `umqtt-board identity` has written for BOARDS."""
    for group, device in BOARDS:
        keys.give({"device": device, "group": group, "broker.host": "localhost"}, device)
    out = tmp_path / "identity"
    assert board_cli("identity", "--out", out, "--host", "localhost") == 0
    return out


class Guarded(brokers.Broker):
    """A mosquitto with a listener as mosquitto.conf of the fleet has it; a user `observer` with a
    password-less listener of its own sees and says everything."""

    def __init__(self, folder):
        self.guarded = brokers.free_port()
        # mosquitto, begun by root, must be able to read what is root's alone.
        listener = (folder / "mosquitto.conf").read_text().replace("8883", str(self.guarded))
        super().__init__("mosquitto", "allow_anonymous false\n" + listener)

    def _command(self):
        command = super()._command()
        config = self.folder / "mosquitto.conf"
        # Each listener its own rules: the plain one is the observer's, without any.
        config.write_text("per_listener_settings true\n" + config.read_text().replace(
            "allow_anonymous false\n", ""))
        return command


@pytest.fixture
def guarded(fleet):
    if not brokers.find_mosquitto():
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
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


def test_everybody_publishes_what_is_theirs_and_nothing_else(guarded, fleet):
    with Client(guarded.port) as observer:
        observer.subscribe("#")
        for user in USERS:
            for topic in TOPICS:
                with Client(guarded.guarded, fleet, user) as client:
                    client.publish(topic, user)
        observer.publish("end", "")
        wait_until(lambda: ("end", b"") in observer.got, 10, "the end")
        assert sorted(observer.got[:-1]) == sorted(
            (topic, user.encode()) for user in USERS for topic in TOPICS
            if may_publish(user, topic))  # fmt: skip


def test_everybody_receives_what_is_theirs_and_nothing_else(guarded, fleet):
    heard = {}
    clients = [Client(guarded.guarded, fleet, user) for user in USERS]
    for client in clients:
        client.subscribe("#", "$share/x/fleet/#", *TOPICS)
    with Client(guarded.port) as observer:
        for topic in TOPICS:
            observer.publish(topic, topic)
        for user, client in zip(USERS, clients):
            last = [topic for topic in TOPICS if may_receive(user, topic)]
            wait_until(lambda: set(last) <= {t for t, _ in client.got}, 10, f"{last} at {user}")  # noqa: B023
            heard[user] = {topic for topic, _ in client.got}
            client.__exit__()
    assert heard == {user: {topic for topic in TOPICS if may_receive(user, topic)}
                     for user in USERS}  # fmt: skip


def test_who_has_no_certificate_of_this_fleet_is_nobody(guarded, fleet, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    other = tmp_path / "other"
    assert board_cli("identity", "--out", other, "--board", "g/a", "--host", "localhost") == 0
    for user, pair in ((None, None), ("g/a", files(other, "g/a")), (
            "broker", (str(fleet / "broker.pem"), str(fleet / "broker-key.pem")))):  # fmt: skip
        with pytest.raises(OSError), Client(guarded.guarded, fleet, user, pair):
            pass


def test_a_board_that_is_not_in_the_lists_may_nothing(guarded, fleet):
    """It has a certificate, and the broker's lists are of before."""
    lists = (fleet / "mosquitto.acl").read_text()
    assert board_cli("identity", "--out", fleet, "--board", "g/new") == 0
    assert (fleet / "mosquitto.acl").read_text() != lists

    def tried():
        with Client(guarded.guarded, fleet, "g/new") as client:
            client.publish("fleet/g/new/telemetry", "early")
        return len(observer.got) > 1

    with Client(guarded.port) as observer:
        observer.subscribe("#")
        tried()
        observer.publish("end", "")
        wait_until(lambda: observer.got, 10, "the end")
        assert observer.got == [("end", b"")]
        guarded.process.send_signal(signal.SIGHUP)  # it reads the lists again
        wait_until(tried, 10, "its right")


def test_what_is_good_stays_and_a_new_authority_leaves_no_gap(guarded, fleet, capsys):
    before = {path: path.read_bytes() for path in fleet.rglob("*") if path.is_file()}
    assert board_cli("identity", "--out", fleet, "--host", "localhost") == 0
    assert "0 certificates made, 6 kept" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in fleet.rglob("*") if path.is_file()}
    old = files(shutil.copytree(fleet, fleet.parent / "old"), "g/a")
    assert board_cli("identity", "--out", fleet, "--host", "localhost", "--new-authority") == 0
    assert "5 certificates made, 1 kept" in capsys.readouterr().out
    assert (fleet / "fleet-ca.pem").read_text().count("BEGIN CERTIFICATE") == 2
    guarded.kill()
    guarded.start()  # it takes the bundle
    for pair in (old, files(fleet, "g/a")):
        with Client(guarded.guarded, fleet, "g/a", pair):
            pass
    (fleet / "fleet-ca.pem").write_bytes((keys.authorities_folder() / "fleet-2.pem")
                                         .read_bytes())  # fmt: skip
    guarded.kill()
    guarded.start()
    with Client(guarded.guarded, fleet, "g/a"):
        pass
    with pytest.raises(OSError), Client(guarded.guarded, fleet, "g/a", old):
        pass


def test_keys_are_their_owners_alone(fleet):
    for folder in (fleet, keys.authorities_folder()):
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.rglob("*.pem"):
            assert path.stat().st_mode & 0o777 == 0o600, path
    assert not list(fleet.rglob("*ca-key*"))


def test_rules_for_emqx_say_the_same(fleet):
    text = (fleet / "emqx-acl.conf").read_text()
    assert text.rstrip().endswith("{deny, all}.")
    for one in access.fleet(BOARDS):
        for action, topics in (("publish", one.publish), ("subscribe", one.subscribe)):
            named = ", ".join(f'"{topic}"' for topic in topics)
            assert f'{{allow, {{username, "{one.user}"}}, {action}, [{named}]}}.\n' in text


def test_no_board_no_files(home, tmp_path, capsys):  # noqa: F811
    assert board_cli("identity", "--out", tmp_path / "x") == 2
    assert "no key for any board" in capsys.readouterr().err and not (tmp_path / "x").exists()
    assert board_cli("identity", "--out", tmp_path / "x", "--board", "g/a#") == 2


def test_the_whole_chain_with_certificates(boards, guarded, fleet, bridge, tmp_path, capsys):  # noqa: F811
    """A board, the real bridge and the operator's command, each as itself."""
    pair = [open(path).read() for path in files(fleet, "g/a")]
    ca = (fleet / "broker-ca.pem").read_text()
    key = keys.load("g", "a").key
    bridge("--broker", f"localhost:{guarded.guarded}", "--ca", fleet / "broker-ca.pem",
           "--cert", files(fleet, "bridge")[0], "--key", files(fleet, "bridge")[1],
           "--topic", "fleet/g/+/telemetry", "--topic", "fleet/h/+/telemetry")  # fmt: skip
    board = boards.make(guarded.guarded, "a", group="g", command_key=key, confirm="pipeline",
                        readings=20, broker={
                            "host": "localhost", "port": guarded.guarded, "ca": ca,
                            "cert": pair[0], "key": pair[1]})  # fmt: skip
    with Subscriber(guarded.port) as seen:
        board.power_on()
        board.wait_for("all delivered: 20 readings", 60)
        seen.await_readings(20)
        status = board_cli("command", "--device", "a", "--group", "g", "--broker",
                           f"localhost:{guarded.guarded}", "--ca", fleet / "broker-ca.pem",
                           "--cert", files(fleet, "operator")[0],
                           "--key", files(fleet, "operator")[1], "interval", "2")  # fmt: skip
        assert status == 0, capsys.readouterr()
    board.wait_for("interval 2000 ms by command", 10)
