"""A board's settings: asked for, checked, written."""
