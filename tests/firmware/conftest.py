"""What the firmware's tests on CPython share: the search path, and boards with the firmware."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/device/kit", "tests/firmware", "firmware", "lib"):
    path = str(ROOT / folder)
    if path not in sys.path:
        sys.path.insert(0, path)

from board_fixtures import (  # noqa: E402, F401
    boards,
    bridge,
    broker,
    exact_broker,
    exact_link,
    firmware_image,
    home,
    link,
)
from bundle_kit import key, release  # noqa: E402, F401
from identity_kit import fleet, guarded  # noqa: E402, F401
from keys_kit import locked, words  # noqa: E402, F401
