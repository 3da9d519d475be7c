"""What the tests of flashing share. Must not know what a test asserts."""

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
