"""Access lists: who may publish and subscribe where, for the brokers' own files.

Knows the topics of boards, bridge and operator (firmware/SECURITY.md) and the forms of the files.
Must not know certificates, nor where a file lies.
"""

import re
from dataclasses import dataclass

BRIDGE, OPERATOR = "bridge", "operator"  # no board is called so: theirs are GROUP/DEVICE
ALL = "-all"


@dataclass(frozen=True)
class Rights:
    """What one user may do. user: the common name of its certificate; publish, subscribe: topic
    filters. All else is denied."""

    user: str
    publish: tuple
    subscribe: tuple


def user(group, device):
    """The user name of a board."""
    return f"{group}/{device}"


def board(group, device):
    """Rights of a board: it publishes below its own name alone."""
    own = f"fleet/{group}/{device}"
    return Rights(
        user(group, device),
        (f"{own}/telemetry", f"{own}/status", f"{own}/ota"),
        (f"{own}/cmd/+", f"fleet/{group}/{ALL}/cmd/+", f"{own}/ack"),
    )


def fleet(boards):
    """Rights of everybody. boards: (group, device) pairs; bridge and operator have rights in
    their groups alone."""
    groups = sorted({group for group, _ in boards})
    of = [f"fleet/{group}/+" for group in groups]
    bridge = Rights(BRIDGE, tuple(f"{one}/ack" for one in of),
                    tuple(f"{one}/telemetry" for one in of))
    operator = Rights(OPERATOR, tuple(f"{one}/cmd/+" for one in of),
                      tuple(f"{one}/{what}" for one in of for what in ("status", "ota")))
    return [bridge, operator, *(board(*each) for each in sorted(boards))]


def mosquitto(rights):
    """The text for mosquitto's acl_file."""
    lines = ["# Written by `umqtt-board identity`. Who is not in it may do nothing."]
    for one in rights:
        lines += ["", f"user {one.user}"]
        lines += [f"topic write {topic}" for topic in one.publish]
        lines += [f"topic read {topic}" for topic in one.subscribe]
    return "\n".join(lines) + "\n"


def mosquitto_listener(folder):
    """The text for mosquitto.conf: a listener for all of them; folder: where the files lie."""
    return f"""\
# Written by `umqtt-board identity`: a listener that knows everybody by a certificate.
listener 8883
cafile {folder}/fleet-ca.pem
certfile {folder}/broker.pem
keyfile {folder}/broker-key.pem
require_certificate true
use_identity_as_username true
acl_file {folder}/mosquitto.acl
"""


def folder_of(listener):
    """The folder that a text of mosquitto_listener() names, None for another text."""
    found = re.search(r"^acl_file (.+)/mosquitto\.acl$", listener, re.MULTILINE)
    return found and found[1]


def emqx(rights):
    """The text for EMQX's file of rules (authorization, type file; peer_cert_as_username = cn)."""
    lines = ["%% Written by `umqtt-board identity`. Who is not in it may do nothing."]
    for one in rights:
        for action, topics in (("publish", one.publish), ("subscribe", one.subscribe)):
            if topics:
                named = ", ".join(f'"{topic}"' for topic in topics)
                lines.append(f'{{allow, {{username, "{one.user}"}}, {action}, [{named}]}}.')
    return "\n".join([*lines, "{deny, all}."]) + "\n"
