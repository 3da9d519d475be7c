"""How long a test waits for what must come: as long as a machine with much else to do may need.

Knows deadlines, and the virtual board's waiting.  Must not know: what is waited for.

A deadline here bounds a hang; no test may depend on something being quick.
"""

import time

from umqtt_board.virtual.board import VirtualBoard

PATIENCE = 4  # a machine with much else to do may take so many times longer


def wait_until(condition, seconds, what):
    """Wait until the function returns something true, and return that."""
    deadline = time.monotonic() + PATIENCE * seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"within {PATIENCE * seconds:g} s not: {what}")
        time.sleep(0.02)


class PatientBoard(VirtualBoard):
    """A virtual board whose words are waited for as patiently as all else."""

    def wait_for(self, pattern, timeout=20.0, since=0):
        """As VirtualBoard.wait_for(), for PATIENCE times as long."""
        return super().wait_for(pattern, PATIENCE * timeout, since)
