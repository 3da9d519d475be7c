"""Guard: the lowest security version that this board takes; it never goes down.

Knows one number in two files, and that a set which has passed its trial counts like them. Must not
know how a set is checked (release.py) nor which one runs (trial.py). In memory only while it is
asked. Not part of a set.

The pointer is written first, as a trial ends, and the two files after it, one by one. A cut in
between loses nothing: what counts is the highest of the three, and the next start puts the others
right. `make flash` leaves the files alone.
"""

import loader
import state


def _path(number):
    # Beside the folder of the sets, for that one is removed by the cable.
    return "%s.floor%d" % (loader.ROOT, number)


def _copies():
    # The number in each file: 0 without a file, -1 where it cannot be read.
    found = []
    for number in (1, 2):
        try:
            value = state.load(_path(number)).get("security", 0)
        except state.StateError:
            value = -1
        found.append(value if isinstance(value, int) else -1)
    return found


def _lowest(copies):
    found = loader.pointer()
    own = 0 if loader.on_trial(found) else found.get("security", 0)
    lowest = max(own, copies[0], copies[1])
    if lowest <= 0 and -1 in copies:
        raise state.StateError("the lowest security version cannot be read")
    return lowest


def floor():
    """Return the lowest security version that is accepted, 0: any.

    Raises state.StateError when it was lost: then none may be accepted.
    """
    return _lowest(_copies())


def settle():
    """Put both files right; to be called at each start and when a trial has ended."""
    copies = _copies()
    try:
        lowest = _lowest(copies)
        for number in (1, 2):
            if copies[number - 1] != lowest:
                state.save({"security": lowest}, _path(number))
    except (ValueError, OSError) as error:
        # Not a reason to keep the board from its work: floor() knows it all the same.
        print("umqtt: %s" % error)


def allows(found):
    """Tell whether the set of a pointer may come back.

    found  as of loader.pointer(); slot 0 has the version of the release.py that the cable put
    """
    try:
        lowest = floor()
    except ValueError:
        return False
    if lowest and not found["slot"]:
        import sys

        import release

        del sys.modules["release"]
        return release.SECURITY >= lowest
    return found.get("security", 0) >= lowest
