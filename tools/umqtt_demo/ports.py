"""TCP ports for the demo's servers.

Knows how to find a free port on this machine. Must not know what will listen on it.
"""

import random
import socket

# Below Linux's ephemeral range (from 32768): a client that keeps calling a port of that range
# while its server is down is sooner or later given the port itself and connects to itself.
LOWEST, HIGHEST = 20000, 32000


def is_free(port, host="127.0.0.1"):
    """Whether a server could bind `port` (1..65535) on `host` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def listens(port, host="127.0.0.1"):
    """Whether a server accepts connections on `port`.

    What waits for a server asks this and not is_free(), which listens there for an instant: a
    server that starts in that instant would find its port in use.
    """
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port(host="127.0.0.1"):
    """A port between 20000 and 32000 that nobody listens on. Raises OSError if there is none."""
    draw = random.SystemRandom()
    for _ in range(200):
        port = draw.randrange(LOWEST, HIGHEST)
        if is_free(port, host):
            return port
    raise OSError("no free TCP port between %d and %d on %s" % (LOWEST, HIGHEST, host))
