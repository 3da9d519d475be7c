"""The page on a fleet."""
