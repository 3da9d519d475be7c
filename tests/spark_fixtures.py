"""Fixtures of the tests that start Spark, or programs that do: one session, and none left over.

Must not know what is tested.
"""

import pytest


@pytest.fixture(scope="session")
def spark():
    """A local session with the settings of the command line, but plans are interpreted."""
    from pipeline_kit import INTERPRETED
    from umqtt_pipeline.source.data_source import register
    from umqtt_runtime.session import session

    made = session("tests", extra=INTERPRETED)
    register(made)
    yield made
    made.stop()


@pytest.fixture
def none_left_running():
    """What a failing test has left running would load the machine for all that follow."""
    yield
    from pipeline_kit import end_all

    end_all()
