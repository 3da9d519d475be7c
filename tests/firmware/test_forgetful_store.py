"""The demo's verdict does not believe the store that it judges: one that forgets turns it red.

Knows the virtual board's flash image, and that the journal lies behind the file system.
Must not know records nor segments: what was there before a reading is put back as a whole.
"""

from bench import Subscriber, taken
from patience import wait_until

COUNT = 12


def journal(board):
    """The journal region of the board's flash, as it is now."""
    return board.flash_image.read_bytes()[board.config["filesystem"] :]


def put_back(board, region):
    """Put an earlier journal region into the flash of a board without power."""
    with open(board.flash_image, "r+b") as image:
        image.seek(board.config["filesystem"])
        image.write(region)


def accepted(board):
    """How many readings publish() has accepted."""
    return len(taken(board).taken)


def between_two_readings(board, least):
    """The journal as it is between two readings, and how many it holds."""
    while True:
        wait_until(lambda: accepted(board) >= least, 30, "readings")
        count, region = taken(board), journal(board)
        if taken(board) == count and not count.cut_off:
            return region, len(count.taken)


def without_network(boards, link):
    """A board that has stored some readings and sent none, cut off; and the journal before the
    last of them."""
    link.down()
    board = boards.make(link.port, readings=COUNT, interval_ms=400)
    board.power_on()
    region, held = between_two_readings(board, 4)
    wait_until(lambda: accepted(board) > held, 30, "one more reading")
    board.cut()
    return board, region


def delivered(board, broker, link):
    """The demo's verdict once the board has its power and its network again."""
    with Subscriber(broker.port) as subscriber:
        link.up()
        board.power_on()
        board.wait_for(f"all delivered: {COUNT} readings", 60)
        wait_until(lambda: any(r.ordinal == COUNT for r in subscriber.readings), 30, "the last")
        return subscriber.verdict(board, COUNT)


def test_a_store_that_forgets_its_last_record_turns_the_verdict_red(boards, broker, link):
    board, region = without_network(boards, link)
    put_back(board, region)
    faults = "; ".join(delivered(board, broker, link).faults())
    assert "the store forgot a reading that it had accepted" in faults, faults
    assert "readings not in silver" in faults, faults


def test_a_store_that_keeps_it_does_not(boards, broker, link):
    board, region = without_network(boards, link)
    assert journal(board) != region
    verdict = delivered(board, broker, link)
    assert verdict.ok, verdict.faults()
