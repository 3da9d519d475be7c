"""The device that most tests of the bridge have."""

import pytest
from bridge_kit import Device


@pytest.fixture
def device(broker):
    made = Device(broker)
    yield made
    made.close()
