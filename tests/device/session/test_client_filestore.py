"""The client with FileStore: what is in the files survives a reboot.

Knows: the scenarios every store has to pass.  Must not know: the journal's format, the files.
"""
# heap: 4M
# deadline: 240

import store_scenarios as scenarios
from umqtt_min import FileStore

folder = [0]


def fresh():
    """A folder that does not exist yet (in the folder of this run)."""
    folder[0] += 1


def open_store():
    """The store as it is after a reboot."""
    return FileStore("journal-%d" % folder[0])


def test_everything_once():
    fresh()
    scenarios.everything_once(open_store)


def test_many():
    fresh()
    scenarios.many(open_store, 200)


def test_offline_then_reboot():
    fresh()
    scenarios.offline_then_reboot(open_store)


def test_link_cuts_and_reboots():
    scenarios.cuts(open_store, fresh, True, step=9)


def test_incoming_once():
    fresh()
    scenarios.incoming_once(open_store)


def test_dup_only_on_what_may_have_been_sent():
    fresh()
    scenarios.dup_only_on_what_may_have_been_sent(open_store)
