"""What every medium promises, the library's and a third party's, one promise a test: the checks of
store_kit.py with each place of places.py. Then what the journal makes of a medium that fails.

Knows: the kit, the Store interface.  Must not know: the bytes of a record.
"""

# heap: 4M
# deadline: 120

import store_kit
from places import MEDIA, DictMedium
from store_kit import each
from umqtt_min.store.journal import Journal


def test_it_has_a_geometry():
    each((store_kit.it_has_a_geometry,), MEDIA)


def test_an_erased_segment_reads_as_blank():
    each((store_kit.an_erased_segment_reads_as_blank,), MEDIA)


def test_what_was_programmed_is_read_and_nothing_else_changes():
    each((store_kit.what_was_programmed_is_read_and_nothing_else_changes,), MEDIA)


def test_every_segment_is_erased_and_programmed_to_its_end():
    each((store_kit.every_segment_is_erased_and_programmed_to_its_end,), MEDIA)


def test_padding_changes_nothing():
    each((store_kit.padding_changes_nothing,), MEDIA)


def test_the_bytes_are_the_mediums_own():
    each((store_kit.the_bytes_are_the_mediums_own,), MEDIA)


def test_it_is_there_after_closing_and_opening():
    each((store_kit.it_is_there_after_closing_and_opening,), MEDIA)


def test_what_was_programmed_outlives_the_power():
    each((store_kit.what_was_programmed_outlives_the_power,), MEDIA)


def test_erasing_one_segment_leaves_the_others():
    each((store_kit.erasing_one_segment_leaves_the_others,), MEDIA)


def test_each_check_of_the_kit_has_its_test():
    for check in store_kit.MEDIUM:
        assert "test_" + check.__name__ in globals(), check.__name__


class Cut(Exception):
    """The power is cut."""


class Failing(DictMedium):
    """The power goes before the operation after `left` others; no page is programmed twice."""

    left = -1

    def __init__(self, memory, done, page, once):
        DictMedium.__init__(self, memory, page, once)
        self.done = done  # pages that were programmed

    def program(self, segment, off, view):
        if self.once:
            assert (segment, off) not in self.done, "a page is programmed twice"
        self.tick()
        self.done[segment, off] = True
        DictMedium.program(self, segment, off, view)

    def erase(self, segment):
        self.tick()
        DictMedium.erase(self, segment)
        for page in list(self.done):
            if page[0] == segment:
                del self.done[page]

    def tick(self):
        self.left -= 1
        if self.left == -1:
            raise Cut()


def test_no_cut_loses_a_message():
    for page, once in ((1, False), (256, False), (256, True)):
        for cut in range(1, 40):
            memory, done = {}, {}
            medium = Failing(memory, done, page, once)
            medium.left = cut
            stored = []
            try:
                store = Journal(medium, inbound=4, messages=100)
                store.open()
                while True:
                    stored.append(store.put(7, 2, b"t", bytes(100)))
                    if len(stored) % 2 == 0:
                        store.done(stored[-1])
            except Cut:
                pass
            store = Journal(Failing(memory, done, page, once), inbound=4, messages=100)
            store.open()
            for seq in stored[:-1]:
                assert bool(store.find(seq)) == (seq % 2 == 1), (page, once, cut, seq)
