"""A client over several connections, and what the audit tells of them as tables and as lines."""

import audit_kit as kit
import pyarrow.parquet as pq

PUB, DUP = kit.publish("a", b"x", 1, 7), kit.publish("a", b"x", 1, 7, dup=True)

PUB2, PUBACK = kit.publish("a", b"x", 2, 7), kit.ack(4, 7)

VERSIONS = {4: "MQTT", 3: "MQIsdp", 2: "MQIpdp"}


class Device:
    """Connections of one client, each with a port of its own; `accused`: [(its SYN, frame of the
    PUBLISH, statement, sender)]."""

    number = 0

    def __init__(self, name, after):
        self.name, self.now = name, after
        self.talks, self.accused = [], []

    def open(self, present=1, flags=0, level=4, named=True):
        Device.number += 1
        talk = kit.Talk(("10.2.0.1", 30_000 + Device.number), start=self.now).open()
        hello = kit.connect(self.name, flags=flags, name=VERSIONS[level], level=level)
        if named:
            talk.client(hello)
        else:
            talk.seq[0] += len(hello)
        self.talks.append(talk.broker(kit.connack(0, present)))
        return talk

    def over(self, talk, close=True):
        self.now = (talk.close() if close else talk).now

    def blame(self, talk, statement="MQTT-3.3.1-1", sender="client"):
        """The last frame breaks a rule."""
        self.accused.append((talk.frames[0], talk.frames[-1], statement, sender))

    def pair(self, first=PUB, again=PUB, answer=b"", lost=b"", way=0, blamed=None, **second):
        """Two connections: a message, what answers it or what the capture lacks of that, and the
        message again, with an answer to it."""
        level = second.get("level", 4)
        talk = self.open(0, level=level).segment(way, first)
        if answer:
            talk.segment(1 - way, answer)
        talk.seq[1 - way] += len(lost)
        self.over(talk)
        talk = self.open(**second).segment(way, again)
        if blamed:
            self.blame(talk, blamed, ("client", "broker")[way])
        self.over(talk.segment(1 - way, kit.ack(5, 7) if again == PUB2 else PUBACK))


def rows(folder, table):
    return pq.read_table(folder / table).to_pylist()


def as_lines(folder):
    """The violations that lines of JSON have, of the captures whose tables are in `folder`."""
    from mqtt_audit import sources

    found = []

    def sink(table, made):
        found.extend(made.to_pylist() if table == "violations" else [])

    sources.lines([str(p) for p in sorted(folder.parent.glob("*.pcap"))], sink, (1883,))
    return found


def told(found):
    return sorted((v["client_id"], v["protocol"], v["statement"], v["sender"], v["frame"],
                   v["what"]) for v in found)  # fmt: skip
