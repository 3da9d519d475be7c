"""Payloads to readings, in plain Python and by column. Never imports Spark."""
