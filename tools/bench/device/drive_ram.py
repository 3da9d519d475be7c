"""umqtt_min with RAMStore: QoS 1 and 2 survive a lost connection."""

import drive_umqtt_min as plain

OPS = plain.OPS + ("window",)
do = plain.do
receive = plain.receive


def load():
    plain.load("RAMStore")


def connect(host, port, name):
    return plain.connect(host, port, name, plain._names["store"](size=8192))
