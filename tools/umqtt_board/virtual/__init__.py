"""The virtual board: its folder, its power switch, its chip and its serial line."""
