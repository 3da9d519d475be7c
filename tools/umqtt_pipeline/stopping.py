"""A wish to end, by SIGTERM or SIGINT. Must not know what is ended."""

import signal


class Stopped(BaseException):
    """The wish has come while there was nothing yet to stop (`Stop.at_once`)."""


class Stop:
    """Takes the signals from when it is made, which is best before anything that takes time; the
    wish may come before there is anything to stop.

    asked: whether it has come
    """

    def __init__(self):
        self.asked, self._stop = False, None
        self._listen()

    def _listen(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)

    def _signal(self, *_):
        self.asked = True
        if self._stop:
            self._stop()

    def tell(self, stop):
        """Have `stop` called, at once if the wish has come already. It may be called again."""
        self._stop = stop
        self._listen()  # Spark has put a handler of its own for SIGINT meanwhile
        if self.asked:
            stop()

    def at_once(self):
        """From now on, until `tell`, the wish ends whatever is done by Stopped, wherever it is:
        for work that may be killed at any instant. It comes once, so that a second signal does
        not end the ending."""
        raised = False

        def end():
            nonlocal raised
            if not raised:
                raised = True
                raise Stopped

        self.tell(end)
