"""Decodes payloads to readings, in plain Python and by column. Never imports Spark.

A user's decoder is a function of a topic (text) and a payload (bytes). It returns a Reading, or
None for a packet of another decoder. It raises Malformed for a packet that is no reading."""

from .reading import Malformed, Reading

__all__ = ["Malformed", "Reading"]
