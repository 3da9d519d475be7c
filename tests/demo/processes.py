"""Of processes, what the demo's tests ask: whether one runs."""


def alive(pid):
    """True while it runs; one that has ended and is not yet waited for does not."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
