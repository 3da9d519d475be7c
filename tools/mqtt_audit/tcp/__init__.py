"""Frames to streams of bytes, in order."""
