"""The client with each store: what is stored survives cut links and reboots, in RAM a new client.

Knows: the scenarios that every store has to pass, places.py.
Must not know: which stores there are, the journal's format.
"""
# heap: 4M
# deadline: 240

import store_scenarios as scenarios
from places import STORES


class Place:
    """One place for a store; fresh() makes it new."""

    def __init__(self, new):
        self._new = new
        self.fresh()

    def fresh(self):
        self._power_on = self._new()

    def open_store(self):
        return self._power_on()


def each(scenario, kinds=STORES):
    for name, new in kinds:
        try:
            scenario(Place(new))
        except BaseException:
            print("with", name)
            raise


def test_everything_once():
    each(lambda place: scenarios.everything_once(place.open_store))


def test_many():
    each(lambda place: scenarios.many(place.open_store, 200))


def test_offline_then_reboot():
    each(lambda place: scenarios.offline_then_reboot(place.open_store))


def test_link_cuts():
    each(lambda place: scenarios.cuts(place.open_store, place.fresh, False, step=11))


def test_link_cuts_and_reboots():
    each(lambda place: scenarios.cuts(place.open_store, place.fresh, True, step=9))


def test_link_cuts_at_each_byte():
    place = Place(dict(STORES)["RAMStore"])
    scenarios.cuts(place.open_store, place.fresh, False)


def test_incoming_once():
    each(lambda place: scenarios.incoming_once(place.open_store))


def test_dup_only_on_what_may_have_been_sent():
    each(lambda place: scenarios.dup_only_on_what_may_have_been_sent(place.open_store),
         [kind for kind in STORES if kind[0] != "RAMStore"])  # which no reboot survives
