"""The keep-alive's hardware timer.

Knows: machine.Timer of esp32 and rp2. Never does: write in the middle of a packet. Loaded by
connect() of a client with a keep-alive, unless it was given timer=False.
"""


def start(client):
    """Eight times per keep-alive, 20 times a second at most. The sender keeps the timer by its
    method and that the client: rp2 collects a timer that nobody holds."""
    if client.timer is None:
        try:
            from machine import Timer

            client.timer = Timer(-1)
        except (ImportError, AttributeError):
            client.timer = False  # a port without timers: the application's calls do it
            return
    client.timer.init(period=max(client.keepalive * 125, 50), callback=client.tick)
    client._tx.stop = client.timer.deinit
