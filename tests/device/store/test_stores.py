"""What every store promises, the one in RAM and the journal on each kind of medium, one promise a
test: the checks of store_kit.py with each place of places.py. What only one of them does is in
test_ram_store.py and test_journal.py.

Knows: the kit.  Must not know: slots, the bytes of a record.
"""

# heap: 4M
# deadline: 240

import store_kit
from harness import raises
from places import STORES
from store_kit import each
from umqtt_min.store.flash import FlashStore
from umqtt_min.store.ram import RAMStore


def test_it_has_all_that_the_contract_names():
    each((store_kit.it_has_all_that_the_contract_names,), STORES)


def test_an_empty_one_has_nothing():
    each((store_kit.an_empty_one_has_nothing,), STORES)


def test_a_message_is_read_back_in_pieces():
    each((store_kit.a_message_is_read_back_in_pieces,), STORES)


def test_what_is_no_live_number_is_no_error():
    each((store_kit.what_is_no_live_number_is_no_error,), STORES)


def test_numbers_go_on_over_reboots():
    each((store_kit.numbers_go_on_over_reboots,), STORES)


def test_no_number_comes_twice_after_the_newest_is_gone():
    each((store_kit.no_number_comes_twice_after_the_newest_is_gone,), STORES)


def test_next_goes_on_from_a_number_that_is_gone():
    each((store_kit.next_goes_on_from_a_number_that_is_gone,), STORES)


def test_states_survive_a_reboot():
    each((store_kit.states_survive_a_reboot,), STORES)


def test_a_new_session_queues_what_is_not_held():
    each((store_kit.a_new_session_queues_what_is_not_held,), STORES)


def test_held_messages_are_asked_for_again():
    each((store_kit.held_messages_are_asked_for_again,), STORES)


def test_confirm_releases_what_is_held_and_later_what_was_not_yet_done():
    each((store_kit.confirm_releases_what_is_held_and_later_what_was_not_yet_done,), STORES)


def test_full_it_refuses_and_takes_again_what_acknowledgements_free():
    each((store_kit.full_it_refuses_and_takes_again_what_acknowledgements_free,), STORES)


def test_acknowledgements_find_room_in_a_full_one_in_any_order():
    each((store_kit.acknowledgements_find_room_in_a_full_one_in_any_order,), STORES)


def test_what_no_store_could_take_is_a_value_error():
    each((store_kit.what_no_store_could_take_is_a_value_error,), STORES)


def test_drop_oldest_takes_everything_and_counts():
    each((store_kit.drop_oldest_takes_everything_and_counts,), STORES)


def test_latest_keeps_one_of_each_topic():
    each((store_kit.latest_keeps_one_of_each_topic,), STORES)


def test_latest_leaves_alone_what_may_have_been_sent():
    each((store_kit.latest_leaves_alone_what_may_have_been_sent,), STORES)


def test_latest_leaves_alone_what_is_released():
    each((store_kit.latest_leaves_alone_what_is_released,), STORES)


def test_latest_gives_up_the_oldest_when_too_many_topics_fill_it():
    each((store_kit.latest_gives_up_the_oldest_when_too_many_topics_fill_it,), STORES)


def test_messages_that_are_too_old_are_dropped_and_counted():
    each((store_kit.messages_that_are_too_old_are_dropped_and_counted,), STORES)


def test_what_is_given_up_is_counted():
    each((store_kit.what_is_given_up_is_counted,), STORES)


def test_closed_it_refuses_and_opened_again_it_has_all():
    each((store_kit.closed_it_refuses_and_opened_again_it_has_all,), STORES)


def test_random_operations_agree_with_a_model():
    each((store_kit.random_operations_agree_with_a_model,), STORES)


def test_each_check_of_the_kit_has_its_test():
    for check in store_kit.STORE:
        assert "test_" + check.__name__ in globals(), check.__name__


def test_a_store_is_of_its_class():
    places = dict(STORES)
    ram, flash = places["RAMStore"]()(), places["FlashStore, pages"]()()
    assert isinstance(ram, RAMStore) and not isinstance(ram, FlashStore)
    assert isinstance(flash, FlashStore) and not isinstance(flash, RAMStore)


def test_arguments_that_are_wrong_are_refused_with_reasons():
    for options, text in (
        ({"inbound": 0}, "inbound"),
        ({"policy": 3}, "policy"),
        ({"max_age": 5}, "clock"),
        ({"messages": -1}, "messages"),
    ):
        for name, new in STORES:
            assert text in str(raises(ValueError, lambda: new(**options)())), name  # noqa: B023
