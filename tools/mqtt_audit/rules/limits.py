"""How long somebody may be silent; for compiled loops and for whole columns.

Knows: the keep alive, what brokers do. Must not know: packets, connections.
"""

import numpy as np

SECOND = 1_000_000_000
#: How much later than after one and a half times the keep alive a broker may close: ns, or parts
#: of the keep alive (numerator, denominator), whichever is longer. Brokers look for silent clients
#: now and then only, mosquitto every 6 s, RabbitMQ and VerneMQ every 3/4 of the keep alive. In the
#: ns are two seconds for a FIN that was lost before the capture, which TCP sends again three times
#: in this time.
CLOSE_GRACE, CLOSE_PARTS = 10 * SECOND, (3, 4)


def closing(allowed, rtt):
    """After what silence of a client a broker has closed, in ns. allowed: the keep alive, rtt: the
    round trip of TCP's handshake, both in ns."""
    later = np.maximum(CLOSE_GRACE, allowed * CLOSE_PARTS[0] // CLOSE_PARTS[1])
    return allowed * 3 // 2 + later + rtt
