"""The file that says at which broker the bridge has had a session."""

from umqtt_pipeline.bridge.session_file import SessionFile

HERE = ("broker:1883", "umqtt-bridge")


def test_it_is_known_from_then_on_of_this_broker_and_name_alone(tmp_path):
    first = SessionFile(tmp_path, *HERE)
    assert not first.known
    first.keep(["a/#"])
    assert first.known and SessionFile(tmp_path, *HERE).known
    assert not SessionFile(tmp_path, "other:1883", "umqtt-bridge").known
    assert not SessionFile(tmp_path, "broker:1883", "other").known


def test_a_file_that_does_not_say_it_is_as_none(tmp_path):
    SessionFile(tmp_path, *HERE).keep(["a/#"])
    (tmp_path / "session").write_bytes(b"\0" * 40)
    assert not SessionFile(tmp_path, *HERE).known
    (tmp_path / "session").unlink()
    (tmp_path / "session").mkdir()
    assert not SessionFile(tmp_path, *HERE).known


def test_it_says_which_filters_are_in_the_session(tmp_path):
    SessionFile(tmp_path, *HERE).keep(("a/#", "b/+"))
    held = SessionFile(tmp_path, *HERE)
    assert held.topics == ["a/#", "b/+"]
    assert SessionFile(tmp_path, "broker:1883", "other").topics == []
    held.keep(["c"])
    assert SessionFile(tmp_path, *HERE).topics == ["c"]
