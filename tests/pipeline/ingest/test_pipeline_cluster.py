"""A short form of `make cluster`: everything that has a disk is lost once, and silver is exact."""

from cluster import TURNS, Campaign


def test_every_machine_is_lost_once(tmp_path):
    campaign = Campaign(tmp_path, 7)
    try:
        campaign.run(6000, 300, TURNS)
    finally:
        campaign.close()
