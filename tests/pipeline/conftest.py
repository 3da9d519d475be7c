"""One SparkSession for all tests of the pipeline; started when the first test asks for it."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A local session with the settings of the command line, but plans are interpreted."""
    from pipeline_kit import INTERPRETED
    from umqtt_pipeline.session import session
    from umqtt_pipeline.source import register

    made = session("pipeline-tests", extra=INTERPRETED)
    register(made)
    yield made
    made.stop()


@pytest.fixture
def broker(request):
    """A broker of this test alone, by indirect parameter (iotcore if none): it may be killed."""
    import brokers

    name = getattr(request, "param", "iotcore")
    if name == "mosquitto" and not brokers.find_mosquitto():
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    own = brokers.Broker(name)
    yield own
    own.stop()
