"""The client with RAMStore: redelivery over reconnects; nothing survives a reset.

Knows: the scenarios every store has to pass.  Must not know: the journal's format.
"""
# heap: 4M
# deadline: 120

import store_scenarios as scenarios
from umqtt_min import RAMStore

medium = []


def fresh():
    """Forget the store."""
    del medium[:]


def open_store():
    """The same store again: RAM survives a new client, not a reset."""
    if not medium:
        medium.append(RAMStore(8192))
    return medium[0]


def test_everything_once():
    fresh()
    scenarios.everything_once(open_store)


def test_many():
    fresh()
    scenarios.many(open_store)


def test_offline_then_a_new_client():
    fresh()
    scenarios.offline_then_reboot(open_store)


def test_cuts():
    scenarios.cuts(open_store, fresh, False)


def test_incoming_once():
    fresh()
    scenarios.incoming_once(open_store)
