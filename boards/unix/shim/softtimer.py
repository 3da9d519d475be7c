"""Timers, a clock that may jump, sliced sleep and poll, where there is no machine.Timer.

Knows: when timers are due and how to wait in slices so that their callbacks run meanwhile, as they
do inside `time.sleep` and `poll` on esp32 and rp2.  Runs unchanged on the unix MicroPython and on
CPython; whoever imports it first calls `setup()` with the real clock, sleep and poll.
Must not know: sockets, MQTT, pytest.

No thread is used: due callbacks run between the slices of a wait, or when `run_due()` is called.
Nothing here allocates once a timer or a poll object has been made.
"""

import sys

_MASK = (1 << 30) - 1  # ticks_ms has the period of the 32-bit ports; 1 << 30 is a big int there
_HALF = 1 << 29
_SLOWER = 4  # bits: a virtual clock goes at 1/16 of the real one's speed

ONE_SHOT = 0
PERIODIC = 1

timers = []  # the running ones
virtual = False  # True: waiting moves the clock instead of waiting (tests only)
_skew = 0  # ms added to the real clock
_since = 0  # real ticks when the clock became virtual
_busy = False  # a callback is running: no other may start, as under the scheduler's lock
_real_ticks = _real_sleep = _real_poll = _print_exception = None


def setup(ticks_ms, sleep_ms, poll, print_exception):
    """Give the real clock (ms, any period that 2**30 divides), sleep (ms) and poll factory."""
    global _real_ticks, _real_sleep, _real_poll, _print_exception
    _real_ticks, _real_sleep, _real_poll = ticks_ms, sleep_ms, poll
    _print_exception = print_exception


def ticks_ms():
    """Milliseconds 0..2**30-1, moved on by every `jump()`."""
    if virtual:
        # Computing counts for little: a busy machine must not look like a broker that is late.
        return (_skew + ((_real_ticks() - _since & _MASK) >> _SLOWER)) & _MASK
    return (_real_ticks() + _skew) & _MASK


def ticks_diff(end, start):
    """Signed difference of two ticks, -2**29..2**29-1."""
    return ((end - start + _HALF) & _MASK) - _HALF


def jump(ms):
    """Move the clock on by ms (0..2**29-1) at once, as a lightsleep does; no timer runs."""
    global _skew
    _skew = (_skew + ms) & _MASK


def set_virtual(on):
    """With on=True every wait ends at once and moves the clock by the time it was asked for;
    what is computed between waits moves it at 1/16 of its speed."""
    global virtual, _skew, _since
    now = ticks_ms()
    _since = _real_ticks()
    _skew = now if on else (now - _since) & _MASK
    virtual = on


def _set_busy(on):
    global _busy
    _busy = on


class Timer:
    """`machine.Timer` as esp32 and rp2 share it: id -1, soft callbacks, the timer as argument."""

    ONE_SHOT = ONE_SHOT
    PERIODIC = PERIODIC

    def __init__(self, id=-1, **kw):
        if id != -1:
            raise ValueError("Timer doesn't exist")  # what rp2 says to any other id
        self._period = self._due = 0
        self._mode = PERIODIC
        self._callback = None
        if kw:
            self.init(**kw)

    def init(self, *, mode=PERIODIC, freq=-1, period=-1, callback=None, hard=False):
        """Start, or start anew.  period in ms (>= 1), or freq in Hz."""
        if hard:
            raise ValueError("hard Timers are not implemented")  # as on esp32
        if freq != -1:
            period = int(1000 / freq)
        self.deinit()
        self._period = period if period > 0 else 1
        self._mode = mode
        self._callback = callback
        self._due = (ticks_ms() + self._period) & _MASK
        timers.append(self)

    def deinit(self):
        """Stop; harmless on one that is stopped."""
        if self in timers:
            timers.remove(self)

    def fire(self):
        """Run the callback now, as the scheduler would; False if another one is running."""
        # One "try" for each function, no "as e": the frames have to fit the stack.
        if _busy or self._callback is None:
            return False
        _set_busy(True)
        try:
            self._call()
        finally:
            _set_busy(False)
        return True

    def _call(self):
        try:
            self._callback(self)
        except Exception:  # the scheduler prints and swallows what a soft callback raises
            _print_exception(sys.exc_info()[1])

    def _expire(self, now):
        # Ticks that were missed are lost, not made up for: so it is on the chips.
        if self._mode == ONE_SHOT:
            self.deinit()
        else:
            self._due = (self._due + self._period) & _MASK
            if ticks_diff(self._due, now) <= 0:
                self._due = (now + self._period) & _MASK
        self.fire()


def run_due():
    """Run the callbacks that are due, each at most once; returns ms until the next (-1: none)."""
    if _busy or not timers:
        return -1
    now = ticks_ms()
    left = -1
    i = len(timers)
    while i > 0:
        i -= 1
        if i >= len(timers):  # a callback stopped a timer
            continue
        timer = timers[i]
        if ticks_diff(timer._due, now) <= 0:
            timer._expire(now)
        d = ticks_diff(timer._due, now)
        if d > 0 and (left < 0 or d < left):
            left = d
    return left


def _pass(ms):
    # Let ms go by: by waiting, or by moving the clock.
    if virtual:
        jump(ms)
    else:
        _real_sleep(ms)


def sleep_ms(ms):
    """Sleep in slices that end when a timer is due."""
    start = ticks_ms()
    while True:
        due = run_due()
        left = ms - ticks_diff(ticks_ms(), start)
        if left <= 0:
            if ms <= 0:
                _pass(0)
            return
        # A zero slice would never move a virtual clock.
        _pass(left if due < 0 or due > left else (due or 1))


class Poll:
    """`select.poll()` in slices.

    Objects with a method `ready(mask) -> events` (in-memory streams of the tests) are asked, all
    others go to the real poll.
    """

    def __init__(self):
        self._poll = _real_poll()
        self._real = 0
        self._objects = []  # [object, events]: what ipoll() hands out
        self._masks = []  # of each of them

    def _find(self, obj):
        for i in range(len(self._objects)):
            if self._objects[i][0] is obj:
                return i
        return -1

    def register(self, obj, eventmask=5):
        """Watch obj for eventmask; a second call changes the mask."""
        if not hasattr(obj, "ready"):
            self._poll.register(obj, eventmask)
            self._real += 1
            return
        i = self._find(obj)
        if i >= 0:
            self._masks[i] = eventmask
        else:
            self._objects.append([obj, 0])
            self._masks.append(eventmask)

    def modify(self, obj, eventmask):
        """Change the mask of a registered object."""
        if hasattr(obj, "ready"):
            self._masks[self._find(obj)] = eventmask
        else:
            self._poll.modify(obj, eventmask)

    def unregister(self, obj):
        """Watch obj no longer."""
        if hasattr(obj, "ready"):
            i = self._find(obj)
            self._objects.pop(i)
            self._masks.pop(i)
        else:
            self._poll.unregister(obj)
            self._real -= 1

    def _asked(self):
        # Ask the in-memory objects; one that is ready is the answer, none is the usual case.
        found = None
        for i in range(len(self._objects)):
            entry = self._objects[i]
            entry[1] = entry[0].ready(self._masks[i])
            if entry[1]:
                found = entry
        return found

    def ipoll(self, timeout=-1, flags=0):
        """As MicroPython's: an iterable of (object, events, ...)."""
        start = ticks_ms()
        while True:
            due = run_due()
            if self._asked():
                return self._ready_objects()
            spent = ticks_diff(ticks_ms(), start)
            left = 0 if timeout == 0 else (1000 if timeout < 0 else timeout - spent)
            if left <= 0:
                return self._poll.ipoll(0) if self._real else ()
            slice_ms = left if due < 0 or due > left else (due or 1)
            if self._wait(slice_ms):
                return self._poll.ipoll(0)

    def _ready_objects(self):
        # One object is the usual case and its list is made once.
        if len(self._objects) == 1:
            return self._objects
        return [e for e in self._objects if e[1]]

    def _wait(self, ms):
        # True when a real descriptor is ready.  In-memory objects only change in callbacks.
        if not self._real:
            _pass(ms)
            return False
        for _ in self._poll.ipoll(0 if virtual else ms):
            return True
        if virtual:
            jump(ms)
        return False

    def poll(self, timeout=-1):
        """As MicroPython's: a list."""
        return [(e[0], e[1]) for e in self.ipoll(timeout)]
