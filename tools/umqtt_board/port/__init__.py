"""The serial port: which one it is, what is on the other end, what it says."""
