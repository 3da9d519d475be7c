"""The log in an object store: what a mark covers outlives the bridge's machine."""

import errno
import json
import shutil
import signal
from collections import Counter
from types import SimpleNamespace

import pytest
from bridge_kit import Device, start
from patience import wait_until
from pipeline_kit import NOON, QUICK, end, messages, publish, run, senml, wait_for
from umqtt_pipeline.bridge import accounts
from umqtt_pipeline.bridge.mark_file import MarkFile, record
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.bridge.peers import Peers
from umqtt_pipeline.bridge.shipping import Shipper
from umqtt_pipeline.source.data_source import Options, SpoolStreamReader
from umqtt_pipeline.spool import consumers, logs, objects, reader, shipped
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables.store import dataset

SMALL = 4096  #: bytes of a segment


def body(number, count=10):
    return b"".join(publish(senml(number * count + k)) for k in range(count))


def grow(writer, first, last):
    """Append the blocks of these numbers."""
    for number in range(first, last):
        writer.append(body(number), 10, NOON + number)


def ship(writer, place):
    """Ship all of a spool, object by object, in this thread; returns the Shipper."""
    made = Shipper(writer, place, 0)
    made._find_end()
    made.durable(writer.position)
    while made._ship():
        continue
    return made


def ship_marks(writer, shipper):
    """Ship the marks of all that is in a spool, as its bridge does."""
    marks = Marks()
    for block, raw in reader.walk(writer.folder, 0, writer.position):
        marks.feed(raw, now=block.received)
    MarkFile(writer.folder, shipped=True).save(marks, writer.position, {})
    shipper.ship_marks(1)


def log_of(writer, place):
    return f"{place}/{writer.id}"


@pytest.fixture
def writer(tmp_path):
    made = SpoolWriter(tmp_path / "spool", SMALL)
    yield made
    made.close()


def test_a_log_is_the_spool_byte_for_byte(writer, place):
    for last in (1, 2, 12, 30):
        grow(writer, last - 1, last)
        ship(writer, place)
    grow(writer, 30, 60)
    ship(writer, place)
    log = log_of(writer, place)
    assert logs.by_id([place]) == {writer.id: log}
    segments = reader.segments(writer.folder)
    assert len(segments) > 3
    _, parts = shipped.parts(log)
    raw = b"".join(objects.read(log, part.name) for part in parts)
    assert raw == b"".join(segment.path.read_bytes() for segment in segments)
    assert logs.extent(log) == (0, writer.position)
    mine = list(reader.walk(writer.folder, 0, writer.position))
    assert list(shipped.walk(log, 0, writer.position)) == mine
    block = mine[20][0]
    assert list(shipped.walk(log, block.position, block.end)) == [mine[20]]


def test_the_source_cuts_a_log_as_it_cuts_the_folder(writer, place):
    grow(writer, 0, 40)
    ship(writer, place)
    read = []
    for path in (writer.folder, place):
        stream = SpoolStreamReader(Options({"path": str(path), "maxRowsPerBatch": "77"}))
        at, found = stream.initialOffset(), []
        for _ in range(6):
            then = stream.latestOffset(at, stream.getDefaultReadLimit())
            rows = [batch for part in stream.partitions(at, then) for batch in stream.read(part)]
            found += [row for batch in rows for row in batch.to_pylist()]
            at = then
        assert stream.partitions(at, stream.latestOffset(at, stream.getDefaultReadLimit())) == []
        read.append(found)
    assert len(read[0]) == 400 and read[1] == read[0]


def test_what_all_readers_are_done_with_is_removed(writer, place):
    for last in range(1, 20):
        grow(writer, last - 1, last)
        made = ship(writer, place)
    log = log_of(writer, place)
    assert shipped.trim(log) == 0, "nobody reads it yet"
    _, parts = shipped.parts(log)
    consumers.register(log, "one", parts[9].end)
    assert shipped.trim(log) == 0, "no marks of it are there"
    ship_marks(writer, made)
    consumers.register(log, "two", parts[4].end - 1)
    assert shipped.trim(log) == 4
    consumers.register(log, "two", parts[9].end + 1)
    assert shipped.trim(log) == 6
    assert shipped.parts(log) == (parts[9].end, parts[10:])
    shipped.begin_at(log, parts[2].end)  # of one who was slower
    assert shipped.begin(log) == parts[9].end
    assert [block.position for block, _ in shipped.walk(log, 0, parts[10].end)]
    with pytest.raises(SpoolError, match="was removed"):
        list(logs.blocks(log, 0, parts[10].end))
    ship(writer, place)  # nothing to do


def test_what_is_missing_or_damaged_is_told(writer, place, caplog):
    for last in range(1, 6):
        grow(writer, last - 1, last)
        ship(writer, place)
    log = log_of(writer, place)
    _, parts = shipped.parts(log)
    raw = bytearray(objects.read(log, parts[2].name))
    raw[50] ^= 1
    objects.remove(log, [parts[2].name])
    with pytest.raises(SpoolError, match="are missing in the object store"):
        logs.extent(log)
    assert len(list(logs.blocks(log, 0, writer.position, True))) == 4
    objects.create(log, parts[2].name, bytes(raw))
    shipped._cache.__init__()
    with pytest.raises(SpoolError, match="wrong check value"):
        list(shipped.walk(log, 0, writer.position))
    assert len(list(logs.blocks(log, 0, writer.position, True))) == 4
    assert "damaged: left out" in caplog.text


def test_every_byte_of_a_log_is_verified_without_tables(writer, place, monkeypatch, tmp_path):
    monkeypatch.setattr("umqtt_pipeline.bridge.shipping.OBJECT_BYTES", 2000)
    grow(writer, 0, 20)
    ship(writer, place)
    log = log_of(writer, place)
    done = run("verify", "--spool", place, "--spool", writer.folder)
    assert done.returncode == 0 and done.stdout.endswith("nothing damaged\n"), done.stdout
    _, parts = shipped.parts(log)
    assert len(parts) > 5
    for part, place_of_flip in ((parts[1], -3), (parts[4], 2)):
        raw = bytearray(objects.read(log, part.name))
        raw[place_of_flip] ^= 1
        objects.remove(log, [part.name])
        objects.create(log, part.name, bytes(raw))
    objects.remove(log, [parts[3].name])
    done = run("verify", "--spool", place)
    said = done.stdout.splitlines()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert said[0].startswith(f"{log}/{parts[1].name}: wrong check value")
    assert said[1] == f"{log}: positions {parts[3].base} to {parts[4].base} are missing"
    assert said[2].startswith(f"{log}/{parts[4].name}: ")
    assert said[3].endswith("3 damaged; RECOVERY.md says what to do")
    nothing = run("verify")
    assert nothing.returncode == 2 and "--tables or --spool" in nothing.stderr


def test_an_answer_that_was_lost_is_no_harm(writer, place):
    grow(writer, 0, 5)
    first = ship(writer, place)
    again = Shipper(writer, place, 0)
    again._find_end()
    assert again.shipped == first.shipped
    again.shipped = 0  # as if the put had not been answered
    again._ship()
    assert again.shipped == first.shipped


class Unanswered:
    """A store whose answer to a put is lost: it has the object, and the bridge does not know."""

    def __init__(self, monkeypatch):
        self.put, self._create = [], objects.create
        monkeypatch.setattr(objects, "create", self.create)

    def create(self, *told):
        made = self._create(*told)
        if not self.put:
            self.put.append(told[1])
            raise objects.Unreachable(errno.EAGAIN, "timed out", told[0])
        return made


@pytest.mark.parametrize("removed", [False, True])
def test_a_put_whose_answer_was_lost_while_the_spool_grew(writer, place, monkeypatch, removed):
    """What comes again is longer. Readers may be done with the first one by then, and it is gone:
    put again, it would be no part of the log, and all behind it missing."""
    made = Shipper(writer, place, 0)
    grow(writer, 0, 2)
    made._find_end()
    made.durable(writer.position)
    lost = Unanswered(monkeypatch)
    made.start()
    wait_until(lambda: made.error, 30, "the put that is not answered")
    assert made.shipped == 0
    first = writer.position
    if removed:
        shipped.put_marks(log_of(writer, place), first, record(Marks(), first, {}, True, True))
        consumers.register(log_of(writer, place), "ingest", first)
        assert shipped.trim(log_of(writer, place)) == 1
    grow(writer, 2, 4)
    made.durable(writer.position)
    wait_until(lambda: made.shipped == writer.position or made.fault, 30, "the rest")
    made.stop()
    assert made.fault is None and lost.put
    start, parts = shipped.parts(log_of(writer, place))
    assert start == (first if removed else 0) and parts[-1].end == writer.position
    raw = b"".join(objects.read(part.place, part.name) for part in parts)
    assert raw == reader.segments(writer.folder)[0].path.read_bytes()[start:]


def test_a_put_that_comes_after_its_object_was_removed(writer, place, monkeypatch):
    """The first one arrives and is read between the look at the log and the second one."""
    made = Shipper(writer, place, 0)
    grow(writer, 0, 2)
    made._find_end()
    first = writer.position
    made.durable(first)
    Unanswered(monkeypatch)
    with pytest.raises(objects.Unreachable):
        made._ship()
    shipped.put_marks(log_of(writer, place), first, record(Marks(), first, {}, True, True))
    consumers.register(log_of(writer, place), "ingest", first)
    assert shipped.trim(log_of(writer, place)) == 1
    grow(writer, 2, 4)
    made.durable(writer.position)
    while made._ship():
        continue
    start, parts = shipped.parts(log_of(writer, place))
    assert start == first and parts[0].base == first and parts[-1].end == writer.position


def test_an_older_copy_of_the_spool_ships_nothing(writer, place, tmp_path):
    grow(writer, 0, 5)
    ship(writer, place)
    shutil.copytree(writer.folder, tmp_path / "copy")
    grow(writer, 5, 10)
    ship(writer, place)
    before = objects.listed(log_of(writer, place), None)
    copy = SpoolWriter(tmp_path / "copy", SMALL)
    try:
        with pytest.raises(SpoolError, match="an older copy of this spool"):
            ship(copy, place)  # it is shorter
        grow(copy, 105, 120)
        with pytest.raises(SpoolError, match="an older copy of this spool"):
            ship(copy, place)  # it has gone on
    finally:
        copy.close()
    assert objects.listed(log_of(writer, place), None) == before


def covered(spool):
    """Sequence numbers in the log, copies and all."""
    return sum(len(messages(raw)) for _, raw in shipped.walk(spool, 0, logs.extent(spool)[1]))


@pytest.mark.parametrize("broker", ["iotcore"], indirect=True)
def test_a_mark_waits_for_the_store_and_the_machine_may_be_lost(broker, server, place, tmp_path):
    device = Device(broker)
    try:
        bridge = bridge_at(broker, tmp_path / "here", place)
        device.take(100)
        device.confirmed()
        with server.away():
            device.take(50)
            wait_for(lambda: told(tmp_path / "here")["received"] >= 150, what="the spool")
            came = told(tmp_path / "here")["time"]
            # A mark that does not wait for the store is told with the next line of metrics.
            wait_for(lambda: told(tmp_path / "here")["time"] > came + 1, what="two more rounds")
            assert device.upto == 100, "a mark for what only this machine has"
            bridge.send_signal(signal.SIGKILL)
            bridge.wait()
            shutil.rmtree(tmp_path / "here")
        bridge = bridge_at(broker, tmp_path / "there", place)
        device.take(10)
        device.confirmed()
        assert end(bridge) == 0
    finally:
        device.close()
    assert len(shipped.spools(place)) == 2
    done = run("ingest", "--spool", place, "--tables", tmp_path / "tables", "--once", *QUICK)
    assert done.returncode == 0, done.stderr
    rows = dataset(tmp_path / "tables", "silver").to_table().to_pylist()
    assert Counter(row["sequence"] for row in rows) == Counter(range(1, 161))
    left = [shipped.parts(log)[1] for log in shipped.spools(place)]
    assert [] in left, "of the bridge that has ended all is released"


def bridge_at(broker, machine, place, *more):
    """A bridge with a disk of its own."""
    machine.mkdir()
    return start(broker, machine / "spool", "--ship", place, "--ship-interval", 0.1,
                 "--segment-bytes", SMALL, *more)  # fmt: skip


def told(machine):
    """The metrics of the bridge of a machine."""
    return json.loads((machine / "metrics.json").read_text())


@pytest.mark.parametrize("broker", ["iotcore"], indirect=True)
def test_the_spool_keeps_what_is_not_shipped_and_no_more(broker, server, place, tmp_path):
    spool = tmp_path / "here" / "spool"
    device = Device(broker)
    try:
        bridge = bridge_at(broker, tmp_path / "here", place)
        device.take(300)
        device.confirmed()
        wait_until(lambda: len(reader.segments(spool)) == 1, 60, "segments that are deleted")
        with server.away():
            device.take(300)
            wait_for(lambda: reader.durable(spool) > 3 * SMALL and len(reader.segments(spool)) > 3,
                     what="segments that are kept")  # fmt: skip
        device.confirmed()
        assert end(bridge) == 0
    finally:
        device.close()
    (log,) = shipped.spools(place)
    assert covered(log) >= 600
    done = run("ingest", "--spool", spool, "--tables", tmp_path / "tables", "--once", *QUICK)
    assert done.returncode != 0 and "The object store has all: --spool" in done.stderr
    assert set(consumers.positions(spool)) == {"ship"}, "nothing is kept for who is refused"


def test_a_full_spool_does_not_wait_for_the_interval_and_neither_does_the_end(writer, place):
    made = Shipper(writer, place, 3600)
    made.start()
    for way in (lambda: None, made.hurry, made.stop):
        grow(writer, 0, 3)
        made.durable(writer.position)
        way()
        wait_until(lambda: made.shipped == writer.position, 30, "what is shipped")
    assert not made._thread.is_alive()


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_bridges_that_share_a_subscription_share_no_disk(broker, place, tmp_path):
    """A mark covers what both have, and is told to its end without a reading sent twice."""
    more = ("--topic", "$share/site/fleet/+/+/telemetry", "--peer", place)
    device = Device(broker)
    try:
        bridges = [bridge_at(broker, tmp_path / name, place, *more, "--client-id", name)
                   for name in ("one", "two")]  # fmt: skip
        for _ in range(20):
            device.take(10).wait_for_publish(60)
        wait_for(lambda: device.upto == 200, what="the whole mark")
        assert [end(bridge) for bridge in bridges] == [0, 0]
        counts = [told(tmp_path / name)["received"] for name in ("one", "two")]
        assert sum(counts) == 200 and all(counts), "each has had some"
        third = bridge_at(broker, tmp_path / "three", place, *more, "--client-id", "one")
        device.marks.clear()
        device.take(1)
        device.confirmed()
        assert end(third) == 0
        assert device.marks[-1]["upto"] == 201 and not device.marks[-1]["missing"]
    finally:
        device.close()


@pytest.mark.parametrize("ships", [True, False])
def test_a_peer_on_a_disk_counts_as_far_as_it_has_shipped(writer, place, ships, caplog):
    """Else the other bridge's marks cover what is lost with this one's machine."""
    marks, peers = Marks(), Peers([str(writer.folder)], "0123456789abcdef", ships=ships)

    def upto():
        peers.feed(marks)
        return [mark.upto for mark in marks.marks.values()]

    writer.append(b"".join(publish(senml(n)) for n in range(1, 11)), 10, NOON)
    made = Shipper(writer, place, 0)
    made._find_end()
    assert upto() == []
    made.durable(writer.position)
    assert made._ship() and upto() == []
    made.keep()
    writer.append(publish(senml(11)), 1, NOON)
    assert upto() == [10] and "does not ship" not in caplog.text
    assert marks.due, "the other bridge may have told its mark before it knew what is here"
    (writer.folder / "consumers" / "ship.json").unlink()  # it does not ship any more
    assert upto() == ([10] if ships else [11])
    assert ("does not ship, and this bridge does" in caplog.text) == ships


def test_marks_of_a_run_without_ship_wait_until_peers_have_shipped_what_they_count(
        writer, tmp_path, caplog):  # fmt: skip
    """Else they cover what only the other machine's disk has. To begin them anew would not do:
    what was below them is settled, and nobody sends it again."""
    peer = SpoolWriter(tmp_path / "peer", SMALL)
    peer.append(publish(senml(2)), 1, NOON)
    shipper = SimpleNamespace(shipped=writer.position)

    def begun():
        """(the accounts of a bridge that ships, its marks, its peers)."""
        file, marks = MarkFile(writer.folder, shipped=True), Marks()
        marks, position, seen = accounts.restore(writer, marks, file, with_rest=False)
        peers = Peers([str(peer.folder)], writer.id, seen, ships=True)
        made = accounts.ShippedAccounts(writer, marks, position, shipper, peers, file, seen)
        made.settle()
        return made, marks, peers, file

    marks = Marks()
    marks.feed(publish(senml(2)), now=NOON)
    MarkFile(writer.folder).save(marks, writer.position, {peer.id: peer.position})
    for done in (None, peer.position - 1):
        if done:
            consumers.register(peer.folder, "ship", done)
        made, marks, peers, file = begun()
        assert len(marks.marks) == 1 and not made.may_tell
        file.save(marks, writer.position, peers.positions)  # and after a restart it is the same
    assert "none is told until it is shipped so far" in caplog.text
    shutil.move(peer.folder, tmp_path / "away")
    assert not begun()[0].may_tell, "it may come back"
    SpoolWriter(tmp_path / "peer", SMALL).close()
    made, marks, *_ = begun()
    assert made.may_tell and "no peer has the spools" in caplog.text
    (mark,) = marks.marks.values()
    assert [*mark.starts] == [2], "another mark may have covered it: nobody sends it again"
    shutil.rmtree(tmp_path / "peer")
    shutil.move(tmp_path / "away", peer.folder)
    made, marks, peers, file = begun()
    consumers.register(peer.folder, "ship", peer.position)
    made.settle()
    assert made.may_tell and len(marks.marks) == 1
    file.save(marks, writer.position, peers.positions)
    (peer.folder / "consumers" / "ship.json").unlink()
    assert begun()[0].may_tell
    peer.close()


def fed(place, own="0123456789abcdef", seen=()):
    """The marks of a bridge that begins with this place as its peer, and what it has read."""
    marks, peers = Marks(), Peers([place], own, seen)

    def listed():
        peers.feed(marks)
        return peers.far[0].listed

    wait_until(listed, 30, "the list of the logs")
    peers.feed(marks)
    return marks, peers.positions


@pytest.mark.parametrize("seen", [False, True], ids=["new", "old"])
def test_marks_of_what_ingest_has_removed_come_from_the_log(writer, place, seen, caplog):
    """A bridge elsewhere, for a machine that is lost, or one that was away: of devices without
    `low` nobody else knows what they need not send again."""
    writer.append(publish(senml(1)), 1, NOON)
    made, began = ship(writer, place), writer.position
    for number in (2, 3, 5, 6):
        writer.append(publish(senml(number)), 1, NOON)
        made = ship(writer, place)
    log = log_of(writer, place)
    consumers.register(log, "ingest", writer.position)
    ship_marks(writer, made)
    assert shipped.trim(log) == 5
    writer.append(publish(senml(7)), 1, NOON)
    ship(writer, place)
    marks, positions = fed(place, seen={writer.id: began} if seen else ())
    (mark,) = marks.marks.values()
    assert (mark.upto, [*mark.starts], [*mark.ends]) == (3, [5], [7]) and marks.due
    assert positions[writer.id] == writer.position
    assert "know nothing" not in caplog.text


@pytest.mark.parametrize("at", [40, -3])
def test_nothing_is_removed_that_only_damaged_marks_cover(writer, place, at, caplog):
    grow(writer, 0, 3)
    made, log = ship(writer, place), log_of(writer, place)
    ship_marks(writer, made)
    name = f"marks/{writer.position:020d}"
    raw = bytearray(objects.read(log, name))
    raw[at] ^= 1
    objects.remove(log, [name])
    objects.create(log, name, bytes(raw))
    consumers.register(log, "ingest", writer.position)
    assert shipped.trim(log) == 0 and f"{name} is damaged" in caplog.text
    objects.remove(log, [name])
    made._find_end()
    made.ship_marks(1)
    assert shipped.trim(log) == 1


def test_damaged_marks_of_a_log_are_told(writer, place, caplog):
    grow(writer, 0, 3)
    made = ship(writer, place)
    ship_marks(writer, made)
    log, name = log_of(writer, place), f"marks/{writer.position:020d}"
    consumers.register(log, "ingest", writer.position)
    shipped.trim(log)
    assert run("verify", "--spool", place).returncode == 0
    raw = bytearray(objects.read(log, name))
    raw[40] ^= 1
    objects.remove(log, [name])
    objects.create(log, name, bytes(raw))
    done = run("verify", "--spool", place)
    assert done.returncode == 1 and f"{log}/{name} is damaged" in done.stdout
    marks, positions = fed(place)
    assert not marks.marks and "is damaged" in caplog.text and "know nothing" in caplog.text


def test_marks_of_a_log_of_which_the_last_ones_are_damaged_count_as_far_as_they_are_whole(
        writer, place, caplog):  # fmt: skip
    grow(writer, 0, 3)
    marks, file = Marks(), MarkFile(writer.folder, shipped=True)
    for block, raw in reader.walk(writer.folder, 0, writer.position):
        marks.feed(raw, now=block.received)
        file.save(marks, block.end, {})
    made, log = ship(writer, place), log_of(writer, place)
    made.ship_marks(1)
    consumers.register(log, "ingest", writer.position)
    assert shipped.trim(log) == 1
    raw = bytearray(objects.read(log, f"marks/{writer.position:020d}"))
    raw[-3] ^= 1
    objects.remove(log, [f"marks/{writer.position:020d}"])
    shipped.put_marks(log, writer.position, bytes(raw))
    marks, positions = fed(place)
    (mark,) = marks.marks.values()
    assert mark.upto == 19 and positions[writer.id] == writer.position
    assert "is damaged" in caplog.text and "know nothing" in caplog.text
    assert run("verify", "--spool", place).returncode == 1


def test_a_store_that_is_away_is_told_once_and_so_is_its_return(place, monkeypatch, caplog):
    caplog.set_level("INFO")
    tries = []

    def away(prefix):
        tries.append(prefix)
        raise objects.Unreachable(errno.EAGAIN, f"no answer for {len(tries)} s", prefix)

    with monkeypatch.context() as context:
        context.setattr(shipped, "logs", away)
        peers = Peers([place], "0123456789abcdef")
        peers.far[0].interval = 0.01
        peers.feed(Marks())
        wait_until(lambda: len(tries) > 3, 60, "some tries")
        assert caplog.text.count("no answer for") == 1
    wait_until(lambda: "answers again" in caplog.text, 60, "its return")


def test_who_reads_the_logs_beside_a_new_one_reads_that_too(writer, place, tmp_path):
    """An ingest may be down when a bridge begins; what it needs is kept for it."""
    grow(writer, 0, 2)
    made = ship(writer, place)
    old = log_of(writer, place)
    consumers.claim(old, "second", "two", bool)
    consumers.register(old, "second", writer.position)
    new = SpoolWriter(tmp_path / "new", SMALL)
    try:
        grow(new, 0, 2)
        made = ship(new, place)
        ship_marks(new, made)
        log = log_of(new, place)
        consumers.register(log, "first", new.position, tables="one")
        for killed in (True, False):  # before the log says that it has all readers
            assert shipped.trim(log) == 0 and consumers.positions(log)["second"] == 0
            shipped._introduced.clear()
            if killed:
                objects.remove(log, ["consumers/second.json", "readers/known"])
        with pytest.raises(SpoolError, match="works for the tables in two"):
            consumers.check(log, "second", "three", lambda _: True)
        (path,) = [each for each in consumers._files(log) if each.stem == "second"]
        objects.remove(log, [path.name])
        assert shipped.trim(log) == 1 and set(consumers.positions(log)) == {"first"}, "given up"
    finally:
        new.close()


def test_marks_of_more_than_is_shipped_are_not_shipped(writer, place):
    grow(writer, 0, 3)
    made = ship(writer, place)
    end = writer.position
    grow(writer, 3, 4)
    ship_marks(writer, made)
    assert shipped.marked(log_of(writer, place)) == (0, 0)
    MarkFile(writer.folder).save(Marks(), end, {"0123456789abcdef": 7})  # of a run without --ship
    made.ship_marks(1)
    assert shipped.marked(log_of(writer, place)) == (0, 0)
    MarkFile(writer.folder, shipped=True).save(Marks(), end, {"0123456789abcdef": 7})
    made.ship_marks(1)
    assert shipped.marked(log_of(writer, place))[0] == end


@pytest.mark.parametrize("broker", ["iotcore"], indirect=True)
def test_a_bridge_for_a_lost_one_tells_marks_of_what_ingest_has_removed(broker, place, tmp_path):
    device = Device(broker, lows=False)
    try:
        bridge = bridge_at(broker, tmp_path / "here", place, "--peer", place)
        for _ in range(6):
            device.take(50)
            device.confirmed()
        wait_until(lambda: any(shipped.marked(log)[0] for log in shipped.spools(place)), 60,
                   "marks in the store")  # fmt: skip
        (log,) = shipped.spools(place)
        bridge.send_signal(signal.SIGKILL)
        bridge.wait()
        shutil.rmtree(tmp_path / "here")
        consumers.register(log, "ingest", shipped.extent(log)[1])
        assert shipped.trim(log) > 0
        bridge = bridge_at(broker, tmp_path / "there", place, "--peer", place)
        device.take(2)
        device.confirmed()
        assert end(bridge) == 0
    finally:
        device.close()


def test_what_else_is_below_the_place_stops_nobody(writer, place, caplog):
    """Tables for instance, or the logs of another fleet."""
    grow(writer, 0, 3)
    ship(writer, place)
    objects.create(f"{place}/fleet/silver", "part", b"x")
    assert shipped.spools(place) == [log_of(writer, place)] == list(logs.by_id([place]).values())
    assert f"{place}/fleet is no log of a bridge" in caplog.text


def test_places_that_cannot_be(place, tmp_path):
    for words, said in (
        (("bridge", "--broker", "localhost:1", "--spool", tmp_path / "a", "--ship", "b"),
         "b is no place in an object store"),
        (("ingest", "--spool", f"{place}/none", "--tables", tmp_path / "t", "--once"),
         "no bridge has shipped there"),
        (("ingest", "--spool", "s3://UPPER/x", "--tables", tmp_path / "t"), "BUCKET/PREFIX"),
        (("ingest", "--spool", place, "--tables", tmp_path / "t", "--work", "w"), "--work"),
    ):  # fmt: skip
        done = run(*words)
        assert done.returncode == 2 and said in " ".join(done.stderr.split()), done.stderr
        assert "Traceback" not in done.stderr


def test_keys_that_nobody_gave_are_named(monkeypatch):
    """obstore then asks a service that only machines of a cloud have."""
    error = OSError("PUT http://169.254.169.254/latest/api/token: connection refused")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert "AWS_ACCESS_KEY_ID" in str(objects.unreachable(error, "s3://readings"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    assert "AWS_ACCESS_KEY_ID" not in str(objects.unreachable(error, "s3://readings"))
