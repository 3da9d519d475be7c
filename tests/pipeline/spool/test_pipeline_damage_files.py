"""The small files of a spool, lost or damaged: what can be made again is, what cannot is said."""

import shutil

import damage_kit
import pytest
from damage_kit import PAYLOADS, batch, bridge, flip, refused
from pipeline_kit import NOON, publish
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


def test_spool_json_is_written_again_with_the_same_id(folder, caplog):
    path = folder / "spool.json"
    name = reader.spool_id(folder)
    path.unlink()
    assert batch(folder) == PAYLOADS and "spool.json is missing" in caplog.text
    assert "spool.json was missing" in bridge(folder)
    assert reader.spool_id(folder) == name and path.exists() and bridge(folder) == ""


def test_a_spool_whose_id_nobody_knows(folder):
    """With a new one each reader would begin anew, and ask for what is deleted."""
    (folder / "spool.json").unlink()
    (folder / "deleted").unlink()
    said = refused(folder)
    assert "spool.json is missing, though there are segments" in said
    with pytest.raises(SpoolError, match="spool.json is missing, though"):
        batch(folder)
    (folder / "spool.json").write_text('{"version": 1, "id": "00112233445566aa"}')  # as it says
    assert batch(folder) == PAYLOADS and "deleted is missing" in bridge(folder)


@pytest.mark.parametrize("where", range(40))
def test_a_flipped_byte_of_spool_json_makes_no_other_spool(folder, where):
    name = reader.spool_id(folder)
    flip(folder / "spool.json", where)
    try:
        assert reader.spool_id(folder) == name
    except SpoolError as error:
        assert "spool.json" in str(error) and "spool.json" in refused(folder)


def test_a_folder_that_was_never_finished_is_new(tmp_path):
    """Killed after each file of a new spool: no note, and the same folder serves."""
    SpoolWriter(tmp_path / "made").close()
    order = [f"{0:020d}.seg", "durable", "deleted", "spool.json"]
    for count in range(len(order)):
        folder = tmp_path / str(count)
        folder.mkdir()
        for name in order[:count]:
            shutil.copy(tmp_path / "made" / name, folder / name)
        writer = SpoolWriter(folder)
        writer.append(publish(PAYLOADS[0]), 1, NOON)
        writer.close()
        assert batch(folder) == PAYLOADS[:1] and count == 3 or not writer.notes


def test_everything_but_its_name_is_gone(folder):
    for path in (*(s.path for s in reader.segments(folder)), folder / "durable"):
        path.unlink()
    assert "durable is missing" in refused(folder)
    with pytest.raises(SpoolError, match="durable is missing"):
        batch(folder)


def test_a_flipped_digit_of_a_readers_position_deletes_nothing(folder):
    consumers.register(folder, "r", 10)
    path = folder / "consumers" / "r.json"
    path.write_text(path.read_text().replace("10", "90"))
    assert "r.json is damaged" in bridge(folder)
    assert consumers.positions(folder) == {"r": 0}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "id": "a"}',
                                  '{"version": 1, "id": 5}'])  # fmt: skip
def test_a_damaged_spool_json_is_said_in_words(folder, text):
    (folder / "spool.json").write_text(text)
    said = refused(folder)
    assert "does not say version and id: remove it" in said and "Error" not in said
    (folder / "deleted").unlink()
    said = refused(folder)
    assert "does not say version and id: put it back" in said and "16 hex digits" in said
    with pytest.raises(SpoolError, match="put it back; if nobody has it, write one"):
        batch(folder)


def test_a_lost_deleted_is_said_though_nothing_was_deleted(folder):
    (folder / "deleted").unlink()
    assert "deleted is missing or damaged: it is made again; the spool begins" in bridge(folder)
    assert bridge(folder) == ""


def test_lost_readers_are_said_if_there_were_some(folder):
    """Without what was deleted on their account nobody knows that there were."""
    assert bridge(folder) == ""
    consumers.register(folder, "r", reader.segments(folder)[1].base)
    writer = SpoolWriter(folder)
    assert writer.trim(writer.position) == 1
    writer.close()
    assert bridge(folder) == ""
    shutil.rmtree(folder / "consumers")
    assert "consumers has no reader, though one was done" in bridge(folder)
    consumers.register(folder, "r", 0)
    assert bridge(folder) == ""
