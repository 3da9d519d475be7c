"""How each fault is made: one generator per kind.

Knows the parts of the site and what to do to them, step by step. Must not know when a fault is
due nor what the outcome should be. A generator yields (condition, seconds): go on as soon as the
condition holds, or when the time is over; the value of the yield says whether it held. Several
run side by side; only `board` looks more often than the director's turn.
"""

import time

from . import plan

# A broker that dies takes at least so many messages with it per board, if they come in time.
IN_MEMORY = 2
CONNECT_S = 20.0
# Spark's first batch after a start, on a slow machine.
SPARK_S = 90.0


def pause(seconds):
    """To be yielded: nothing to wait for but time."""
    return lambda: False, seconds


class Faults:
    """Makes the faults of a plan at a site and tells them to a timeline."""

    def __init__(self, site, timeline):
        self.site = site
        self.tell = timeline
        self._busy = set()

    def make(self, fault):
        """The generator of a plan.Fault."""
        return getattr(self, fault.kind)(fault)

    def holds(self, name):
        """Whether a fault has this part in its hands: "bridge", "spark", "broker", a Sensor or a
        Link."""
        return name in self._busy

    def _free(self, *names):
        return (lambda: not self._busy.intersection(names)), 300

    # -- one board ---------------------------------------------------------------------------

    def board(self, fault):
        """Power cut right after a reading was begun; back later with the flash as it was."""
        sensor = self.site.sensors[fault.target]
        interval = self.site.options.interval_ms / 1000
        yield self._free(sensor)
        self._busy.add(sensor)
        self._catch_reading(sensor, 2 * interval + 1)
        # Most of what can go wrong goes wrong in the first milliseconds.
        time.sleep(min(2.0, fault.share ** 4 * interval))
        sensor.cut()
        taken = sensor.log.begun
        away = self.tell.away(fault, plan.BOARD, sensor.name,
                              "%s loses power (SIGKILL) at reading %d" % (sensor.name, taken))
        yield pause(fault.seconds)
        sensor.power_on()
        self._busy.discard(sensor)
        self.tell.back(away, "%s has power again" % sensor.name)

    @staticmethod
    def _catch_reading(sensor, seconds):
        # Not by way of the director's turn: this is about single milliseconds.
        deadline = time.monotonic() + seconds
        count = sensor.log.begun
        while sensor.log.begun == count and time.monotonic() < deadline:
            time.sleep(0.001)

    def link(self, fault):
        """The next PUBLISH goes through in part, then the link is gone for a while."""
        return self._cut_link(fault, False, "in the middle of a packet")

    def ack(self, fault):
        """The same inside PUBACK or PUBREC: the broker has the reading, the board can't know."""
        return self._cut_link(fault, True, "in the middle of an acknowledgement, which the board "
                              "never gets")

    def _cut_link(self, fault, answer, where):
        sensor = self.site.sensors[fault.target]
        link = sensor.link
        yield self._free(link)
        self._busy.add(link)
        link.cut(in_packet=fault.share, answer=answer, then_down=True)
        inside = yield (lambda: link.wait_cut(0)), 15
        if not inside:
            link.disarm()
            link.down()
            where = "while nothing was being sent"
        away = self.tell.away(fault, plan.LINK, sensor.name,
                              "link of %s cut %s" % (sensor.name, where))
        yield pause(fault.seconds)
        link.up()
        self._busy.discard(link)
        self.tell.back(away, "link of %s is up" % sensor.name)

    # -- the servers --------------------------------------------------------------------------

    def _bridge_back(self, away):
        began = time.time()
        self.site.bridge.start()
        yield (lambda: self.site.bridge_connected(began)), CONNECT_S
        self.tell.back(away, "bridge is back")

    def bridge(self, fault):
        """SIGKILL, back later with its spool as it was."""
        yield self._free("bridge", "broker")
        self._busy.add("bridge")
        self.site.bridge.kill()
        away = self.tell.away(fault, plan.BRIDGE, "", "bridge killed (SIGKILL)")
        yield pause(fault.seconds)
        yield from self._bridge_back(away)
        self._busy.discard("bridge")

    def spark(self, fault):
        """SIGKILL of Python, the JVM and the workers; back later with its checkpoint as it was."""
        yield self._free("spark")
        self._busy.add("spark")
        self.site.spark.kill()
        away = self.tell.away(fault, plan.SPARK, "", "Spark killed (SIGKILL)")
        yield pause(fault.seconds)
        began = time.time()
        self.site.spark.start()
        yield (lambda: self.site.spark_works(began)), SPARK_S
        self.tell.back(away, "Spark writes tables again")
        self._busy.discard("spark")

    def broker(self, fault):
        """The bridge away, boards go on publishing, the broker takes it all with it."""
        yield self._free("bridge", "broker")
        self._busy.update(("bridge", "broker"))
        try:
            yield from (self._way_to_broker(fault) if self.site.broker.external
                        else self._broker_dies(fault))
        finally:
            self._busy.difference_update(("bridge", "broker"))

    def _broker_dies(self, fault):
        site = self.site
        site.bridge.kill()
        bridge_away = self.tell.away(fault, plan.BRIDGE, "",
                                     "bridge killed, so that messages gather in the broker")
        before = self._accepted()
        enough = IN_MEMORY * len(site.sensors)
        yield (lambda: self._accepted() - before >= enough), 10
        site.broker.kill()
        lost = self._accepted() - before
        away = self.tell.away(fault, plan.BROKER, "",
                              "broker killed (SIGKILL) with %d messages in its memory that it had "
                              "acknowledged and the bridge has not had" % lost)
        yield pause(fault.seconds)
        site.broker.start()
        self.tell.back(away, "broker is back, its memory empty,")
        yield from self._bridge_back(bridge_away)

    def _accepted(self):
        return sum(sensor.link.accepted for sensor in self.site.sensors)

    def _way_to_broker(self, fault):
        links = [sensor.link for sensor in self.site.sensors] + [self.site.bridge_link]
        for link in links:
            link.down()
        away = self.tell.away(fault, plan.BROKER, "",
                              "the way to the broker is cut for all (it is not ours to kill)")
        yield pause(fault.seconds)
        for link in links:
            link.up()
        self.tell.back(away, "the way to the broker is open")


class Running:
    """Drives one generator: call step() as often as you like until it says False."""

    def __init__(self, generator):
        self._generator = generator
        self._condition, self._deadline = None, 0.0
        self._advance(None)

    def _advance(self, held):
        try:
            self._condition, seconds = self._generator.send(held)
            self._deadline = time.monotonic() + seconds
        except StopIteration:
            self._generator = None

    def step(self):
        """Go on if it is time to; whether there is more to do."""
        if self._generator is not None:
            held = bool(self._condition())
            if held or time.monotonic() >= self._deadline:
                self._advance(held)
        return self._generator is not None
