"""Releases: what an offline key signs, and the key."""
