"""Puts the firmware and the device library on the path of the firmware's CPython tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("firmware", "lib"):
    path = str(ROOT / folder)
    if path not in sys.path:
        sys.path.insert(0, path)
