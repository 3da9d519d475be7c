"""Payloads to readings, in plain Python and by column. Never imports Spark.

A decoder of one's own is a function of a topic (text) and a payload (bytes) that returns a
Reading, or None for a packet that is not its own, and raises Malformed for one that is none."""

from .reading import Malformed, Reading

__all__ = ["Malformed", "Reading"]
