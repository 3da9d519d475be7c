"""Store: the interface to the messages that a client keeps. RAMStore and Journal (on a Medium:
medium.py) implement it, and so may a class of yours. No board needs this file.

Knows: the contract.  Must not know: any store.

tests/device/kit/store_kit.py checks any store against it, yours as well.

**Durable** data survives a power cut from the moment that the method returns. A cut while it
runs leaves all of it or nothing. For RAMStore read "until the reset".

**Errors.** Every method that writes may raise StoreFull if a file system has no room, and OSError
EIO if the medium takes nothing more. Then nothing has happened, and the caller may try again.
Before open() put() raises OSError, and nothing else may be called. Methods raise no other errors
than those named.

**One caller at a time**: the client makes sure of that, interrupts included. After open() no
method allocates. A store that does allocate works, but it fragments the heap of its board.
"""


class Store:
    """Outgoing messages of QoS 1 and 2, by sequence number, and the state of one MQTT session."""

    # Set by whoever makes it.
    policy = 0  # RAISE, DROP_OLDEST or LATEST: see __init__.py
    max_age = 0  # seconds after which expire() drops a message; 0: never
    hold = False  # True: done() holds a message until confirm() covers it

    # Set by the client.
    user = None  # the client that has it: two must not
    begun = None  # with LATEST: a function for the number up to which sending has begun, or None

    # Of the store as a whole; durable are those with a D.
    epoch = b""  # D  8 random bytes, drawn when the store was first made
    boot = 0  # D  counts the times that it was opened
    key = b""  # D  the latest session()
    seq = 1  # D  the next sequence number: never one that was given before, in this epoch
    sent = 0  # D  the latest mark()
    confirmed = 0  # D  the highest confirm()
    last_pid = 0  # D  packet identifier of the newest message, 0 if there never was one
    low = 1  # the oldest live number; seq if there is none
    live = 0  # how many messages are live: stored, and not gone
    held = 0  # how many of them are held
    dropped = 0  # how many were given up since it was made: see drop()
    skipped = 0  # bytes that open() could not read
    programs = programmed = erases = 0  # operations, bytes, segments: how the flash wears

    # Of the message that find() found.
    pid = 0  # its packet identifier
    flags = 0  # qos << 1 | retain
    state = 0  # QUEUED, RELEASED, HELD or AGAIN: see __init__.py

    def open(self):
        """Make the stored messages available. Does nothing if the store is open already.

        Never fails because of a power cut. Raises OSError if it can write nothing, ValueError if
        the store was made with other arguments and these do not fit.
        """

    def close(self):
        """Release open files and memory; all data is durable already. open() may follow."""

    def free(self):
        """Bytes that messages may still fill: an estimate."""

    # Messages. A number that is not live is no error: nothing happens.

    def put(self, pid, flags, topic, payload):
        """Store a message, QUEUED; durable. Returns its sequence number.

        pid: packet identifier, 1 to 65535. flags: qos << 1 | retain. topic, payload: bytes-like;
        the caller may reuse them afterwards.
        With max_age it calls expire() first. With DROP_OLDEST and LATEST it drops the oldest
        messages until there is room; with LATEST also all QUEUED ones of this topic above begun().
        Raises StoreFull with RAISE, ValueError for a message that would not fit an empty store.
        """

    def next(self, seq):
        """The smallest live number above seq that is not HELD; 0 if there is none."""

    def find(self, seq):
        """Look up a message: length of its body, 0 if it is not live. Sets pid, flags, state."""

    def read(self, pos, buf, n):
        """Put bytes pos to pos + n of the body last found into buf[0:n]; the rest of buf may be
        overwritten. Body: length of the topic (2), topic, packet identifier (2), payload; numbers
        most significant byte first. Good until the next call that writes."""

    def mark(self, seq):
        """Record that messages up to seq may have been sent; durable. seq may be ahead of the
        stored messages: one mark serves a window. Does nothing if it is not above `sent`."""

    def rec(self, seq):
        """Record that PUBREC came: the message is RELEASED; durable."""

    def done(self, seq):
        """Record the last acknowledgement: the message is gone, or HELD with hold= and above
        `confirmed`; durable."""

    def drop(self, seq):
        """Give up a message: it is gone, and counted in `dropped`; durable."""

    def expire(self):
        """With max_age: drop what is older, oldest first; durable. Ages may begin anew with
        open()."""

    # Held messages.

    def confirm(self, seq):
        """Record that the pipeline has all up to seq; durable. HELD and AGAIN messages are gone,
        others go when they are done. Numbers that were not given yet stay unconfirmed. Returns
        how many messages went."""

    def again(self, first, last):
        """HELD messages from first to last are AGAIN; returns how many. Not durable: after open()
        they are HELD. Raises nothing: it writes nothing."""

    def sending(self, seq):
        """A message that was AGAIN goes out, as QUEUED. Not durable."""

    # The session.

    def session(self, key):
        """Begin a new session: all that are not held are QUEUED, `sent` is 0, incoming identifiers
        are forgotten; durable. Raises ValueError for a key of more than 32 bytes."""

    def in_add(self, pid):
        """Record that an incoming QoS 2 message was delivered; does nothing the second time.
        Durable, for at least `inbound` identifiers."""

    def in_has(self, pid):
        """Whether it was delivered, and not released since."""

    def in_del(self, pid):
        """Record that PUBREL came; durable. Does nothing for an unknown identifier."""
