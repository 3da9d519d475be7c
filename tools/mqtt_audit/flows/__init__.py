"""Packets to QoS 1 and 2 exchanges, in one file and over several."""
