"""The verdict sees every way of being off by one."""

import dataclasses

import pytest
from umqtt_demo import sensorlog
from umqtt_demo.verdict import Row, compare_spark, gaps, judge

EPOCH = "00112233445566ff"
N = 10


def take(k, sequence, epoch=EPOCH):
    return "take %d %s %d %d %d\n" % (k, epoch, sequence, 200 + k, 10**12 + k)


def done(k, sequence, epoch=EPOCH):
    return "done %d %s %d\n" % (k, epoch, sequence)


def log_text(count=N):
    return "".join(take(k, k + 1) + done(k, k + 1) for k in range(1, count + 1))


def silver(count=N):
    """A clock record and `count` readings."""
    return [Row("b1", EPOCH, 1)] + [reading(k) for k in range(1, count + 1)]


def reading(k, epoch=EPOCH, sequence=None):
    return Row("b1", epoch, sequence or k + 1, ordinal=k, value={"temperature": (200 + k) / 100})


def verdict(text=None, rows=None, **more):
    log = sensorlog.parse(log_text() if text is None else text)
    return judge("b1", N, log, silver() if rows is None else rows, **more)


def test_all_there_is_right():
    result = verdict()
    assert result.ok, result.faults()
    assert (result.taken, result.rows, result.duplicates, result.gaps) == (N, N, 0, [])


@pytest.mark.parametrize("lost", [1, 5, N])
def test_one_missing_row_is_seen(lost):
    result = verdict(rows=[row for row in silver() if row.ordinal != lost])
    assert not result.ok
    assert result.missing == [(EPOCH, lost + 1)]
    assert result.gaps == ([(EPOCH, lost + 1, lost + 1)] if lost < N else [])


def test_one_row_twice_is_seen():
    rows = silver()
    result = verdict(rows=rows + [rows[4]])
    assert not result.ok and result.twice == [(EPOCH, 5)]


def test_one_clock_record_twice_is_seen():
    rows = silver()
    assert verdict(rows=rows + [rows[0]]).twice == [(EPOCH, 1)]


def test_one_row_that_was_never_taken_is_seen():
    result = verdict(rows=silver() + [Row("b1", EPOCH, N + 2, ordinal=N + 1)])
    assert not result.ok and result.extra == [(EPOCH, N + 2)]


def test_one_missing_and_one_extra_do_not_cancel():
    rows = silver()[:-1] + [Row("b1", "f" * 16, 1, ordinal=N)]
    result = verdict(rows=rows)
    assert result.rows == result.taken and not result.ok
    assert result.missing and result.extra


def test_two_readings_exchanged_are_seen():
    rows = silver()
    rows[3], rows[4] = (dataclasses.replace(rows[3], ordinal=rows[4].ordinal),
                        dataclasses.replace(rows[4], ordinal=rows[3].ordinal))
    result = verdict(rows=rows)
    assert not result.ok and len(result.wrong) == 2


def test_another_value_is_seen():
    rows = silver()
    rows[3] = dataclasses.replace(rows[3], value={"temperature": 2.04})
    result = verdict(rows=rows)
    assert not result.ok and len(result.wrong) == 1 and "203" in result.wrong[0]


def test_a_missing_clock_record_is_a_gap():
    result = verdict(rows=silver()[1:])
    assert not result.ok and result.gaps == [(EPOCH, 1, 1)]


def test_a_reading_never_taken_is_seen():
    result = verdict(text=log_text(N - 1), rows=silver(N - 1))
    assert not result.ok
    assert "9 readings taken and 0 cut off, 10 wanted" in result.faults()


CUT = "".join(take(k, k + 1) + (done(k, k + 1) if k != 5 else "") for k in range(1, N + 1))


def test_a_reading_that_was_cut_off_may_be_in_the_table():
    result = verdict(text=CUT, cuts=1)
    assert result.ok, result.faults()
    assert (result.taken, result.cut_off, result.arrived, result.rows) == (N - 1, 1, 1, N)


def test_a_reading_that_was_cut_off_may_be_missing():
    # The store did not get it: the next reading takes its number.
    after = [(k, k) for k in range(6, N + 1)]
    text = log_text(4) + take(5, 6) + "".join(take(*one) + done(*one) for one in after)
    rows = silver(4) + [reading(k, sequence=number) for k, number in after]
    result = verdict(text=text, rows=rows, cuts=1)
    assert result.ok, result.faults()
    assert (result.taken, result.cut_off, result.arrived, result.rows) == (N - 1, 1, 0, N - 1)


def test_only_the_reading_that_was_cut_off_may_be_missing():
    result = verdict(text=CUT, rows=[row for row in silver() if row.ordinal != 6], cuts=1)
    assert not result.ok and result.missing == [(EPOCH, 7)]


def test_no_more_readings_are_cut_off_than_the_power_went():
    assert not verdict(text=CUT).ok
    # A firmware that never says that publish() has returned, and a table without a row.
    result = verdict(text="".join(take(k, k + 1) for k in range(1, N + 1)), rows=[], cuts=2)
    assert result.faults() == ["10 readings cut off while being taken; the power was cut 2 times"]


def test_another_value_of_a_reading_that_was_cut_off_is_seen():
    rows = silver()
    rows[5] = dataclasses.replace(rows[5], value={"temperature": 9.99})
    result = verdict(text=CUT, rows=rows, cuts=1)
    assert not result.ok and len(result.wrong) == 1


def test_a_store_that_forgot_what_it_had_accepted_is_seen():
    # Reading 5 was accepted as number 6, and the store gives number 6 once more.
    after = [(k, k) for k in range(6, N + 1)]
    text = log_text(5) + "".join(take(*one) + done(*one) for one in after)
    rows = silver(4) + [reading(k, sequence=number) for k, number in after]
    faults = "; ".join(verdict(text=text, rows=rows).faults())
    assert "the store forgot a reading that it had accepted" in faults
    assert "readings not in silver: 5" in faults


def test_a_store_that_forgot_its_very_last_reading_is_seen():
    result = verdict(rows=silver(N - 1))
    assert not result.ok and result.missing == [(EPOCH, N + 1)]


def test_the_same_reading_taken_twice_is_seen():
    assert not verdict(text=log_text() + take(10, 11) + done(10, 11)).ok


def test_the_end_of_a_reading_that_was_not_begun_is_seen():
    assert verdict(text=log_text() + done(3, 99)).complaints


def test_rubbish_in_the_sensor_log_is_seen():
    assert verdict(text=log_text() + "take 11\n").complaints


def test_a_line_without_its_end_does_not_count_yet():
    assert sensorlog.parse(log_text() + "take 11 " + EPOCH).begun == N
    assert not sensorlog.parse(take(1, 2) + "done 1 %s 2" % EPOCH).taken


def test_no_log_counts_nothing(tmp_path):
    assert sensorlog.read(tmp_path / "none").begun == 0


def test_rows_of_other_devices_do_not_count():
    result = verdict(rows=silver() + [Row("b2", EPOCH, 3, ordinal=2)])
    assert result.ok, result.faults()


def test_a_new_epoch_counts_on_its_own():
    other = "f" * 16
    text = log_text(5) + "".join(take(k, k - 5, other) + done(k, k - 5, other)
                                 for k in range(6, N + 1))
    rows = silver(5) + [reading(k, other, k - 5) for k in range(6, N + 1)]
    result = verdict(text=text, rows=rows)
    assert result.ok, result.faults()


def test_duplicates_are_what_bronze_has_more():
    assert verdict(bronze=N + 1 + 3).duplicates == 3
    rows = silver()
    rows[2] = dataclasses.replace(rows[2], copies=4)
    assert verdict(rows=rows).duplicates == 3


def test_gaps_of_several_numbers():
    rows = [Row("b1", EPOCH, n) for n in (1, 4, 5, 9)]
    assert gaps(rows) == [(EPOCH, 2, 3), (EPOCH, 6, 8)]


def test_spark_and_pyarrow_must_agree():
    right = {"rows": N, "gaps": 0, "duplicates": 0}
    assert compare_spark([verdict()], {"b1": right}) == []
    for name in right:
        assert compare_spark([verdict()], {"b1": dict(right, **{name: right[name] + 1})})
    assert compare_spark([verdict()], {}) == ["b1: not in Spark's result"]
