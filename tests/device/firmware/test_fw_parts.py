"""Backoff, clock, watchdog, sensors: the firmware's small parts. Both interpreters."""

import io
import time

import clock
import umqtt_min.backoff as backoff
import watchdog
from sensors import chip, make, simulated
from umqtt_min.backoff import Backoff


class Ticks:
    """Stands for ticks_ms in the modules given; advance() is the only thing that moves it."""

    def __init__(self, *modules):
        self.now = (1 << 30) - 1000  # wraps soon
        self._saved = [(module, module.ticks_ms) for module in modules]
        for module in modules:
            module.ticks_ms = self.read

    def read(self):
        return self.now

    def advance(self, ms):
        self.now = (self.now + ms) % (1 << 30)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        for module, function in self._saved:
            module.ticks_ms = function


def test_pauses_are_random_within_a_bound_that_doubles():
    with Ticks(backoff):
        for bound, n in ((100, 1), (200, 2), (400, 3), (800, 4), (1000, 5), (1000, 6)):
            seen = []
            for _ in range(200):
                retry = Backoff(100, 1000)
                for _ in range(n):
                    pause = retry.failed()
                seen.append(pause)
            assert max(seen) <= bound
            assert max(seen) > bound * 3 // 4 and min(seen) < bound // 4, (bound, seen)


def test_ready_only_after_the_pause():
    with Ticks(backoff) as ticks:
        retry = Backoff(30000, 60000)
        assert retry.ready()
        pause = retry.failed()
        while not pause:
            pause = retry.failed()
        assert not retry.ready()
        ticks.advance(pause - 1)
        assert not retry.ready()
        ticks.advance(1)
        assert retry.ready()


def test_only_a_connection_that_lasted_starts_over():
    with Ticks(backoff) as ticks:
        retry = Backoff(100, 60000)
        for _ in range(5):
            retry.failed()
        assert retry._bound == 3200
        retry.began()
        ticks.advance(10)
        retry.failed()
        assert retry._bound == 6400, "a connection that was kicked at once counted"
        retry.began()
        ticks.advance(6400)
        retry.failed()
        assert retry._bound == 200


class FakeTime:
    """The time module with a ticks_ms that is set by hand."""

    def __init__(self, ticks):
        self.ticks_ms = ticks.read
        self.ticks_diff = time.ticks_diff


def test_uptime_goes_on_over_the_wrap_of_ticks():
    ticks = Ticks()
    ticks.now = (1 << 30) - 1500
    saved, clock.time = clock.time, FakeTime(ticks)
    try:
        up = clock.Uptime()
        ticks.now = (1 << 30) - 1
        up.update()
        assert (up.s, up.ms) == (1, 499)
        ticks.now = 0
        up.update()
        assert (up.s, up.ms) == (1, 500)
        ticks.now = 86400000 * 5
        up.update()
        assert (up.s, up.ms) == (86400 * 5 + 1, 500)
    finally:
        clock.time = saved


def test_unix_time():
    assert clock.is_set()
    assert abs(clock.unix_ms() // 1000 - clock.BASE - int(time.time())) <= 2


class Hardware:
    """machine with a watchdog and a timer whose callback is called by hand."""

    def __init__(self):
        self.fed = 0
        self.callback = None

    def WDT(self, timeout):
        self.timeout = timeout
        return self

    def feed(self):
        self.fed += 1

    def Timer(self, number):
        assert number == -1
        return self

    def init(self, period, mode, callback):
        assert period * 4 <= self.timeout
        self.callback = callback


class Machine:
    """The module machine of a chip."""

    def __init__(self, hardware):
        self._hardware = hardware
        self.WDT = hardware.WDT
        self.Timer = TimerClass(hardware)


class TimerClass:
    PERIODIC = 1

    def __init__(self, hardware):
        self._hardware = hardware

    def __call__(self, number):
        return self._hardware.Timer(number)


def with_watchdog(test):
    hardware = Hardware()
    ticks = Ticks(watchdog)
    saved, watchdog.machine = watchdog.machine, Machine(hardware)
    watchdog._dog = None
    try:
        test(hardware, ticks)
    finally:
        ticks.__exit__()
        watchdog.machine = saved
        watchdog._dog = None


def test_watchdog_is_fed_only_while_the_main_loop_lives():
    def test(hardware, ticks):
        dog = watchdog.start(10)
        for _ in range(30):
            ticks.advance(1000)
            dog.alive()
            hardware.callback(None)
        assert hardware.fed == 30
        for _ in range(30):
            ticks.advance(1000)
            hardware.callback(None)
        assert hardware.fed == 39

    with_watchdog(test)


def test_watchdog_rides_out_a_send_that_stalls_for_ten_seconds():
    # rp2's lwIP may hold a non-blocking send that long; timers run meanwhile.
    def test(hardware, ticks):
        watchdog.start(120)
        for i in range(10):
            ticks.advance(1000)
            hardware.callback(None)
            assert hardware.fed == i + 1

    with_watchdog(test)


def test_watchdog_waits_for_the_console():
    def test(hardware, ticks):
        dog = watchdog.start(10)
        dog.console()
        ticks.advance(600000)
        hardware.callback(None)
        assert hardware.fed == 1
        ticks.advance(600000)
        hardware.callback(None)
        assert hardware.fed == 1

    with_watchdog(test)


def test_no_watchdog_when_it_is_off():
    def test(hardware, ticks):
        dog = watchdog.start(0)
        assert hardware.callback is None and not dog.running

    with_watchdog(test)


def test_watchdog_started_at_boot_is_the_one_that_the_application_gets():
    def test(hardware, ticks):
        first = watchdog.start(watchdog.CONSOLE_S)
        assert watchdog.start(10) is first
        assert first.limit_ms == 10000
        watchdog.start(0)  # switched off in the settings: what runs is fed for ever
        ticks.advance(500000)
        hardware.callback(None)
        assert hardware.fed == 1

    with_watchdog(test)


def test_curves_are_plausible_and_repeatable():
    for seed in (0, 1, 77, 30000):
        values = [simulated.temperature(seed, k) for k in range(1, 3000)]
        assert values == [simulated.temperature(seed, k) for k in range(1, 3000)]
        assert 1700 < min(values) < 1800 and 2400 < max(values) < 2500, (min(values), max(values))
        steps = [abs(values[i] - values[i - 1]) for i in range(1, len(values))]
        assert max(steps) < 40
        damp = [simulated.humidity(seed, k) for k in range(1, 3000)]
        assert 400 < min(damp) and max(damp) < 700
    assert [simulated.temperature(1, k) for k in range(50)] != [
        simulated.temperature(2, k) for k in range(50)
    ]


def test_curves_stay_small_ints():
    # 2**30 is where a chip begins to allocate; the factors stay below it for every input.
    for k in (1, 719, 720, 1439, 1 << 20, (1 << 30) - 1):
        for seed in (0, (1 << 30) - 1):
            assert 0 <= simulated.noise(seed, k) < 1 << 15
            assert 1500 < simulated.temperature(seed, k) < 2700


def test_rp2_temperature_by_the_datasheet():
    # V = 0.706 V is 27 degrees; 1.721 mV a degree, colder above
    for volts, centi in ((0.706, 2700), (0.706 + 0.01721, 1700), (0.706 - 0.01721, 3700)):
        raw = int(volts / 3.3 * 65535)
        assert abs(chip.rp2_centi(raw) - centi) < 15, (volts, chip.rp2_centi(raw))
    assert 65535 * 5035 < 1 << 30


def refusal(settings):
    try:
        make(settings)
    except ValueError as error:
        return str(error)
    raise AssertionError("accepted")


def test_sensor_that_is_not_there_is_named():
    assert "no driver 'geiger'" in refusal({"sensor": "geiger"})
    assert "esp32 and rp2" in refusal({"sensor": "chip"})


def test_auto_is_the_simulated_sensor_off_a_chip():
    sensor = make({"sensor": "auto", "device": "a"})
    sensor.sample()
    assert len(sensor.values) == len(sensor.fields) == 3


class Store:
    """The two numbers of a store that the simulated sensor's count goes by."""

    def __init__(self, seq, epoch=b"\x01" * 8):
        self.seq = seq
        self.epoch = epoch


class Log(io.BytesIO):
    """A sensor_log: whatever is written goes to its end, as into a file opened with "a"."""

    def write(self, data):
        self.seek(0, 2)
        return super().write(data)


OURS = "01" * 8


def started(text, seq, epoch=b"\x01" * 8):
    """(log, sensor) after a start with this log so far, and this store."""
    log = Log()
    log.write(text.encode())
    sensor = simulated.SimulatedSensor(1, log)
    sensor.begin(Store(seq, epoch))
    return log, sensor


def take(k, seq):
    return "take %d %s %d 2100 1\n" % (k, OURS, seq)


def done(k, seq):
    return "done %d %s %d\n" % (k, OURS, seq)


def test_a_count_is_given_to_one_reading_only_whatever_the_store_says():
    # Cut off while 2 was being taken: whether the store has it or not, 3 comes next.
    before = take(1, 1) + done(1, 1) + take(2, 2)
    for seq in (1, 2, 3, 100):
        log, sensor = started(before, seq)
        assert sensor.taken == 2 and log.getvalue() == before.encode()
        sensor.sample()
        assert sensor.values[2] == 3
    # A journal that was lost, and with it the reading: taken it was.
    log, sensor = started(before, 1, b"\x02" * 8)
    assert sensor.taken == 2


def test_what_was_accepted_is_written_when_it_was():
    log, sensor = started(take(1, 4) + done(1, 4), 5)
    sensor.sample()
    sensor.taking(Store(5))
    assert log.getvalue().count(b"done") == 1 and sensor.taken == 1
    sensor.stored()
    assert log.getvalue().endswith(done(2, 5).encode()) and sensor.taken == 2


def test_first_start_counts_from_one():
    log, sensor = started("", 1)
    assert sensor.taken == 0 and log.getvalue() == b""
    sensor.sample()
    sensor.taking(Store(5))
    sensor.stored()
    assert log.getvalue().split()[:4] == [b"take", b"1", OURS.encode(), b"5"]
    assert sensor.taken == 1


def test_line_that_was_cut_off_does_not_count():
    log, sensor = started(take(1, 1) + done(1, 1) + "take 2 01", 2)
    assert sensor.taken == 1
    sensor.sample()
    sensor.taking(Store(2))
    assert log.getvalue().split(b"\n")[3].startswith(b"take 2 " + OURS.encode())
