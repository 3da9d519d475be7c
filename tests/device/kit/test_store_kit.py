"""The kit of the stores finds what breaks the contracts: a medium and a store for each rule, which
keep all the others.

Knows: store_kit.py, DictMedium, RAMStore.  Must not know: the library's other media.
"""

# heap: 4M

import store_kit
from places import DictMedium, in_dict, ram
from umqtt_min.store.ram import RAMStore


def found(check, place):
    """Whether a check finds the fault."""
    try:
        check(place)
    except Exception:
        return True
    return False


class Forgets(DictMedium):
    """Nothing outlives the power."""

    def __init__(self, memory, page, once):
        DictMedium.__init__(self, {}, page, once)


class Overwrites(DictMedium):
    """Padding is written, too."""

    def program(self, segment, off, view):
        whole = self.memory.setdefault(segment, bytearray(b"\xff" * self.size))
        whole[off : off + len(view)] = view


class ErasesAll(DictMedium):
    def erase(self, segment):
        self.memory.clear()


class KeepsTheView(DictMedium):
    """A segment that was programmed once only is the caller's buffer."""

    def program(self, segment, off, view):
        DictMedium.program(self, segment, off, view)
        self.memory[segment, off] = view

    def read(self, segment, off, buf):
        kept = self.memory.get((segment, off))
        if kept:
            n = min(len(buf), len(kept))
            buf[:n] = kept[:n]
        else:
            DictMedium.read(self, segment, off, buf)


class Blurs(DictMedium):
    """The last byte of a program is lost."""

    def program(self, segment, off, view):
        DictMedium.program(self, segment, off, view)
        self.memory[segment][off + len(view) - 1] = 255


class ErasesNotTheLast(DictMedium):
    def erase(self, segment):
        if segment < self.count - 1:
            DictMedium.erase(self, segment)


class Small(DictMedium):
    count = 3


def test_a_medium_that_breaks_a_rule_is_found():
    for kind, check in (
        (Forgets, store_kit.what_was_programmed_outlives_the_power),
        (Overwrites, store_kit.padding_changes_nothing),
        (ErasesAll, store_kit.erasing_one_segment_leaves_the_others),
        (KeepsTheView, store_kit.the_bytes_are_the_mediums_own),
        (Blurs, store_kit.what_was_programmed_is_read_and_nothing_else_changes),
        (ErasesNotTheLast, store_kit.every_segment_is_erased_and_programmed_to_its_end),
        (Small, store_kit.it_has_a_geometry),
    ):
        assert found(check, in_dict(256, kind=kind)), kind
        assert not found(check, in_dict(256)), check.__name__


class GivesNumbersAgain(RAMStore):
    def close(self):
        RAMStore.close(self)
        if not self.live:
            self.seq = self.low = 1


class GivesTheNewestAgain(RAMStore):
    def close(self):
        RAMStore.close(self)
        while self.seq > 1 and not self.find(self.seq - 1):
            self.seq -= 1


class Skips(RAMStore):
    def next(self, seq):
        return RAMStore.next(self, seq if not seq or self.find(seq) else seq + 1)


class ReplacesWhatIsReleased(RAMStore):
    def rec(self, seq):
        if self.policy != 2:
            RAMStore.rec(self, seq)


class KeepsTheSession(RAMStore):
    def session(self, key):
        self.key = bytes(key)


class CountsNothing(RAMStore):
    def drop(self, seq):
        self.done(seq)


class RefusesNothing(RAMStore):
    def put(self, pid, flags, topic, payload):
        if not self._opened:
            self.open()
        return RAMStore.put(self, pid, flags, topic, payload)


class ForgetsIdentifiers(RAMStore):
    def in_has(self, pid):
        return False


def test_a_store_that_breaks_a_rule_is_found():
    for kind, check in (
        (GivesNumbersAgain, store_kit.numbers_go_on_over_reboots),
        (GivesTheNewestAgain, store_kit.no_number_comes_twice_after_the_newest_is_gone),
        (Skips, store_kit.next_goes_on_from_a_number_that_is_gone),
        (ReplacesWhatIsReleased, store_kit.latest_leaves_alone_what_is_released),
        (KeepsTheSession, store_kit.a_new_session_queues_what_is_not_held),
        (CountsNothing, store_kit.what_is_given_up_is_counted),
        (RefusesNothing, store_kit.closed_it_refuses_and_opened_again_it_has_all),
        (ForgetsIdentifiers, store_kit.states_survive_a_reboot),
    ):

        def new(kind=kind, **options):
            store = kind(**options)
            return lambda: store

        assert found(check, new), kind
        assert not found(check, ram), check.__name__
