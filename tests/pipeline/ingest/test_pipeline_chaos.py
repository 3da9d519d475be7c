"""The kill test in short: each kind of kill once; `make chaos` does it twenty times."""

import pytest
from chaos import TURNS, Chaos, same_for_spark


@pytest.mark.timeout(2400)
def test_killed_anywhere_the_tables_are_the_same(spark, tmp_path):
    campaign = Chaos(tmp_path, 6)
    try:
        campaign.run(len(TURNS) - 1)  # without the plain kill of the driver: compact is one
    finally:
        campaign.stop()
    same_for_spark(spark, campaign.tables, tmp_path / "calm")
