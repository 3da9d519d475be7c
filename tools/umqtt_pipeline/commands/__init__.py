"""The commands of `umqtt-pipeline`, in the order of the data. Knows which modules have them."""

from . import results, services, upkeep, warm_up
from .group import main

__all__ = ("main", "results", "services", "upkeep", "warm_up")
