"""The kill test in short: each kind of kill once; `make chaos` does it twenty times."""

import pytest
from chaos import TURNS, Chaos, same_for_spark
from pipeline_tables import ingest


@pytest.mark.timeout(2400)
def test_killed_anywhere_the_tables_are_the_same(spark, tmp_path):
    campaign = Chaos(tmp_path, 6)
    try:
        # Without the plain kill of the driver: compact is one.
        campaign.run(len(TURNS) - 1,
                     lambda root: ingest(spark, campaign.spool, root, consumer="once-calm"))
    finally:
        campaign.stop()
    same_for_spark(spark, campaign.tables, tmp_path / "calm")
