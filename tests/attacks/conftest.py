"""What the tests of attacks use of the other rooms: their kits, boards, brokers and the bridge."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/device/kit", "tests/boards", "tests/pipeline", "tests/firmware", "firmware",
               "lib"):  # fmt: skip
    path = str(ROOT / folder)
    if path not in sys.path:
        sys.path.insert(0, path)

from bare_fixtures import board, make_board, mpremote, put  # noqa: E402, F401
from board_fixtures import boards, bridge, broker, firmware_image, home, link  # noqa: E402, F401
from bundle_kit import key, release  # noqa: E402, F401
from fetch_kit import get, server  # noqa: E402, F401
from identity_kit import fleet, guarded  # noqa: E402, F401
from signed_readings import signers  # noqa: E402, F401
