"""What the tests of flashing share. Must not know what a test asserts."""

import pytest
from umqtt_board.errors import BoardError
from umqtt_board.flash import install, steps

SETTINGS = {"broker.host": "127.0.0.1", "broker.port": 1, "device": "one"}


def flash(board, settings=SETTINGS, **options):
    """Flashes a virtual board; returns its Report."""
    return steps.flash("unix", board.port, settings, **options)


def operations_of_an_update(board):
    """How many flash operations it takes, and how many are left when new files come into force."""
    force, left = install._put_in_force, []

    def noted(*arguments):
        left.append(board.cut_left())
        return force(*arguments)

    board.cut_after(100_000)
    install._put_in_force = noted
    try:
        flash(board)
    finally:
        install._put_in_force = force
    total, before_force = 100_000 - board.cut_left(), 100_000 - left[0]
    board.cut_after(None)
    return total, before_force


def cut_flash(board, measured, part, of):
    """Flash a board that loses its power in that part of the work: "aside", while new files are
    written, or "force", while they are put in force; of: how far in it, 0 to 1. measured: a board
    of the same state, which is flashed whole."""
    total, force = operations_of_an_update(measured)
    board.cut_after(round(force * of) if part == "aside"
                    else force + round((total - 1 - force) * of))  # fmt: skip
    with pytest.raises(BoardError, match="was lost while"):
        flash(board)
    board.cut_after(None)
