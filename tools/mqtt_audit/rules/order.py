"""Codes of the rules (statements.py) that are judged by the order of both sides' packets."""

ORDER = (29, 30, 31, 32, 33, 34, 35, 43, 51, 54, 56, 57, 64, 65, 93, 103, 115, 116, 117,
         128, 136)  # fmt: skip
