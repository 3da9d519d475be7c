"""Messages as views of the receive buffer, for set_view_callback().

Knows: how a message is handed out without a copy. Loaded by those who ask for it.
"""

_CALLBACK = 2  # as in client.py


def hand(client, p, end, op):
    """Hand out the message whose topic is buf[p:end]; its payload ends at rx.next."""
    topic = client._rx.rungs[0][p:end]
    if topic != client._heard:
        client._hear(topic)
    if op & 6:
        end += 2
    p = client._rx.rungs[0][end : client._rx.next]
    client.counters.received += 1
    call(client, topic, p, op & 15, 0)


def call(client, topic, payload, flags, left):
    """Call the application with one message, or one piece of it."""
    client._busy = _CALLBACK
    client._views(topic, payload, flags, left)
    client._called()
