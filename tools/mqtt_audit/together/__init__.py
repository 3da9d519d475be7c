"""Captures that hold the same connections at the same time, read as one."""
