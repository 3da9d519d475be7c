"""A wish to end, by SIGTERM or SIGINT, from the first line on. Must not know what is ended.

Imports nothing that takes time: it listens before anything else is loaded.
"""

import os
import signal
import time

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _say(text):
    """Write to standard error, where no other writing that the signal interrupts is disturbed."""
    try:
        os.write(2, text.encode())
    except OSError:
        pass  # nobody reads it any more; the status says the same


class Stop:
    """What a signal does. As long as nothing is named that could be brought to an end (`tell`),
    it ends the process where it is: all that is done here may be killed at any time. Nothing is
    raised, since who calls Python back, or imports a module, may swallow what is raised there.

    status: exit status of a process that is ended so; None: 128 + signal, and a sentence
    asked: whether a signal came after `tell`
    """

    def __init__(self, status=None):
        self.asked, self.status = False, status
        self._stop, self._leave = None, []

    def listen(self):
        """Take the signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self._signal)

    def over(self):
        """The exit status is known: let nothing change it any more."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _signal(self, number, _):
        if self._stop:
            if not self.asked:
                _say(f"{time.strftime('%H:%M:%S')} umqtt.stop: {signal.Signals(number).name}: "
                     "ending after what is under way\n")  # fmt: skip
            self.asked = True
            self._stop()
        else:
            self.over()
            self._end(number)

    def _end(self, number):
        for leave in self._leave:
            leave()
        status = self.status
        if status is None:
            status = 128 + number
            _say(f"Error: ended by {signal.Signals(number).name} before it was done; nothing is "
                 "lost, start it again\n")  # fmt: skip
        os._exit(status)

    def leave(self, what):
        """Have `what` called before a signal ends the process where it is. It must not raise."""
        self._leave.append(what)

    def tell(self, stop):
        """Have `stop` called by a signal, instead of an end where the process is."""
        self._stop = stop
