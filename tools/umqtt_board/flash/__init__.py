"""From a bare chip to a sensor that reports: each step of it in a module."""
