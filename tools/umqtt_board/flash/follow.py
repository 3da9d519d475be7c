"""The step that watches a board start until its first message is acknowledged.

Knows: the lines that the firmware prints then, and which of them mean that waiting is no use.
Must not know: MQTT, how a port is read.
"""

import re
import time

from umqtt_board import plain
from umqtt_board.errors import BoardError

# A line of the firmware's own, whole: not one in which somebody else's words stand.
ACKNOWLEDGED = re.compile(r"umqtt: first publish acknowledged seq=\d+")
BANNER = ("MicroPython ", 'Type "help()"')
PROMPT = ">>> "  # main.py has ended
CRASHED = "umqtt: the program has ended, starting again"
TIMEOUT_S = 90

# What the firmware's log says, how often it may before we give up, and what to change.
# A broker or a network that was just starting deserves another try; a refused login does not.
HOPELESS = (
    (r"MQTTException: \[[45]\]", 1,
     "the broker refuses the login: see to broker.user and broker.password"),
    (r"MQTTException: \[2\]", 1,
     "the broker refuses the client id: give another device = ..."),
    (r"MQTTException: \[1\]", 1,
     "the broker does not speak MQTT 3.1.1: give another broker.host"),
    (r"OSError: \[Errno \d+\] ECONNREFUSED", 2,
     "nothing listens there: start the broker, or see to broker.host and broker.port"),
    (r"OSError: \[Errno \d+\] (EHOSTUNREACH|ENETUNREACH)|OSError: (\[Errno )?11[38]\b", 3,
     "that address cannot be reached: see to broker.host"),
    (r"OSError: (\[Errno )?(-2|-202|-6)\b|addrinfo error", 2,
     "that name is not known: see to broker.host"),
    (r"MQTTException: \[22\]", 3,
     "the broker hangs up. If it asks for a certificate, it may not know the authority of "
     "broker.cert, or broker.key is another one's; else see to broker.port and broker.tls (is it "
     "a TLS port?)"),
    (r"MQTTException: \[17\].*CONNACK", 2,
     "what listens there does not answer as an MQTT broker: see to broker.host, broker.port and "
     "broker.tls"),
    (r"umqtt: OSError: (\[Errno )?110\b", 3,
     "nothing answers at that address: see to broker.host, broker.port, and a firewall between"),
    (r"ValueError: invalid cert\b", 2,
     "a certificate is none that it can read: see to broker.ca and broker.cert"),
    (r"ValueError: invalid key\b", 2, "its key is none that it can read: see to broker.key"),
    (r"certificate|mbedtls|MBEDTLS|X509|SSL", 3,
     "the TLS connection fails: see to broker.ca, broker.tls and broker.host"),
    (r"wifi not joined", 3,
     "the network cannot be joined: see to wifi.ssid and wifi.password"),
    (r"umqtt: settings: ", 1, "the firmware refuses its settings: put them right"),
)  # fmt: skip


class Verdict:
    """Reads the board's lines; says when waiting on is no use."""

    def __init__(self):
        self._seen = [0] * len(HOPELESS)

    def advice(self, line):
        """Return what to do about `line` once it has come too often, None otherwise."""
        for n, (pattern, limit, advice) in enumerate(HOPELESS):
            if re.search(pattern, line):
                self._seen[n] += 1
                return advice if self._seen[n] >= limit else None
        return None


def follow(device, show, timeout=TIMEOUT_S):
    """Reset the board and show what it prints, line by line, until the first acknowledgement.

    `show` is given each line. Raises BoardError as soon as a line says that waiting is no use
    and what to change, when the program ends, and after `timeout` seconds.
    """
    device.doing = "starting"
    device.hard_reset(keep_open=True)
    deadline = time.monotonic() + timeout
    pending, said, verdict = "", [], Verdict()
    while time.monotonic() < deadline:
        pending += device.read().decode(errors="replace")
        *lines, pending = pending.replace("\r\n", "\n").split("\n")
        lines = [plain.line(line) for line in lines]
        for line in lines:
            if line.strip() and not line.startswith(BANNER):
                said = [*said[-3:], line]
                show(line)
            if ACKNOWLEDGED.fullmatch(line):
                return
            _give_up_on(device, line, verdict.advice(line))
        if pending.startswith(PROMPT) or any(CRASHED in line for line in lines):
            raise BoardError(
                f"The board on {device.port} is installed, but its program has ended. What it "
                f"said before: {' / '.join(said)}"
            )
    raise BoardError(
        f"The board on {device.port} is installed, but no publish was acknowledged within "
        f"{timeout} s. Its last line: {said[-1] if said else 'none'}. See to the broker "
        "and the settings; `make logs` shows more."
    )


def _give_up_on(device, line, advice):
    if advice:
        raise BoardError(
            f"The board on {device.port} is installed and running, but {advice} in settings.toml, "
            f"then flash again. It says: {line.strip()}"
        )
