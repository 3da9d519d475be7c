"""What Spark's Java says: to the user, or aside where it is no use to anybody.

Spark of another test in this process may say something meanwhile: only this line is looked for.
"""

import pytest
from umqtt_runtime.java_process import Java, NotStarted


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A Spark that says a line and ends."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))


def test_what_it_says_is_passed_on(broken, capfd):
    with pytest.raises(NotStarted, match="with status 3; what it said stands above"):
        Java().start({})
    assert "no room\n" in capfd.readouterr().err


def test_what_it_says_is_kept_aside_if_wanted(broken, capfd):
    java = Java()
    java.aside = []
    with pytest.raises(NotStarted, match="with status 3"):
        java.start({})
    assert java.aside == [b"no room\n"] and "no room" not in capfd.readouterr().err
