"""The streaming query: batches, duplicates, clocks, state, replay."""
