"""Every kind of capture file and of frame gives the same packets; damage gives a row.

Knows: audit_kit. Must not know: how frames are found.
"""

import random
import struct

import audit_kit as kit
import pytest
from mqtt_audit import sources

IPV6 = (("2001:db8::2", 40_000), ("2001:db8::1", 1883))


def conversation(ends=(kit.CLIENT, kit.BROKER), **more):
    """CONNECT, SUBSCRIBE, a PUBLISH at QoS 1 and their answers."""
    talk = kit.Talk(*ends).open()
    talk.client(kit.connect(), **more).broker(kit.connack())
    talk.client(kit.subscribe(1, ("a/#", 1)), **more).broker(kit.suback(1, 1))
    talk.client(kit.publish("a/b", b"21.5", 1, 7), **more).broker(kit.ack(4, 7))
    return talk.close()


TYPES = ["CONNECT", "CONNACK", "SUBSCRIBE", "SUBACK", "PUBLISH", "PUBACK"]


def types(found):
    return [r["type"] for r in found["packets"]]


def read(path, tmp_path, **more):
    """The conversation, whole and without a problem."""
    found = kit.read([path], tmp_path, **more)
    assert types(found) == TYPES
    assert found["packets"][4]["topic"] == "a/b" and found["packets"][4]["payload_length"] == 4
    assert found["problems"] == []
    return found


@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_pcap(order, nano, tmp_path):
    talk = conversation()
    talk.frames = [(ns + 1234, p) for ns, p in talk.frames]
    found = read(kit.pcap(tmp_path / "t.pcap", talk.wrapped(), order, nano), tmp_path)
    first = found["packets"][0]["time"]
    assert first.microsecond == 3000 + 1  # the tables have microseconds


@pytest.mark.parametrize("ends", [(kit.CLIENT, kit.BROKER), IPV6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("link", sorted(kit.LINKS))
def test_link_types(link, ends, tmp_path):
    path = kit.pcap(tmp_path / "t.pcap", conversation(ends).wrapped(link), link=link)
    found = read(path, tmp_path)
    shown = "[2001:db8::1]:1883" if ends == IPV6 else "10.0.0.1:1883"
    assert found["connections"][0]["broker"] == shown


@pytest.mark.parametrize("tags", [[(0x8100, 5)], [(0x88A8, 2), (0x8100, 5)]])
def test_vlan(tags, tmp_path):
    frames = [(ns, kit.ethernet(p, tags)) for ns, p in conversation().frames]
    read(kit.pcap(tmp_path / "t.pcap", frames), tmp_path)


def pppoe(packet, tags=(), session=7, compressed=False):
    """An Ethernet frame of a PPPoE session (RFC 2516)."""
    kind = 0x0057 if packet[0] >> 4 == 6 else 0x0021
    inside = (bytes([kind]) if compressed else struct.pack(">H", kind)) + packet
    head = struct.pack(">BBHH", 0x11, 0, session, len(inside))
    return kit.ethernet(head + inside, (*tags, (0x8864, 0)))[: 14 + 4 * len(tags)] + head + inside


@pytest.mark.parametrize("tags", [[], [(0x8100, 5)]], ids=["bare", "VLAN"])
@pytest.mark.parametrize("ends", [(kit.CLIENT, kit.BROKER), IPV6], ids=["IPv4", "IPv6"])
def test_sessions_of_pppoe(ends, tags, tmp_path):
    """With the frames that negotiate it, which are no IP."""
    frames = [(ns, pppoe(p, tags)) for ns, p in conversation(ends).frames]
    lcp = frames[0][1].replace(b"\x00\x57" if ends == IPV6 else b"\x00\x21", b"\xc0\x21", 1)
    read(kit.pcap(tmp_path / "t.pcap", [(frames[0][0], lcp), *frames]), tmp_path)


@pytest.mark.parametrize("ends", [(kit.CLIENT, kit.BROKER), IPV6], ids=["IPv4", "IPv6"])
def test_pppoe_with_a_protocol_field_of_one_byte(ends, tmp_path):
    frames = [(ns, pppoe(p, compressed=True)) for ns, p in conversation(ends).frames]
    read(kit.pcap(tmp_path / "t.pcap", frames), tmp_path)


@pytest.mark.parametrize("reads", [True, False], ids=["one is read", "none is read"])
def test_frames_that_are_not_read_are_told(reads, tmp_path, caplog):
    """By the tables and by the lines: frames of MPLS. Beside frames that are read ARP is not."""
    frames = [(ns, f[:12] + b"\x88\x47" + f[14:]) for ns, f in conversation().wrapped()]
    datagram = bytearray(conversation().wrapped()[0][1])
    datagram[23] = 17  # UDP
    others = [frames[0][1][:12] + b"\x08\x06" + bytes(46), bytes(datagram)] * reads
    path = kit.pcap(tmp_path / "t.pcap", frames + [(frames[-1][0], f) for f in others])
    which = ("frames are not read that may have others inside" if reads else
             "none of the frames can be read")  # fmt: skip
    told = [("EtherType", len(frames), f"{which}: EtherType 0x8847 ({len(frames)})")]
    rows = []
    sources.lines([path], lambda table, found: rows.extend(
        found.to_pylist() if table == "problems" else ()), (1883,))  # fmt: skip
    for found in (rows, kit.read([path], tmp_path)["problems"]):
        assert [(p["problem"], p["count"], p["what"]) for p in found] == told
    assert sum("0x8847" in said for said in caplog.messages) == 2 * len(told)


def summed(packet):
    """The packet with the checksum of its TCP segment."""
    head = packet[:36] + b"\0\0" + packet[38:]
    pseudo = head[12:20] + struct.pack(">HH", 6, len(head) - 20) + head[20:]
    pseudo += bytes(len(pseudo) % 2)
    total = sum(struct.unpack(f">{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head[:36] + struct.pack(">H", total ^ 0xFFFF) + head[38:]


def in_lan(talk, *lans, since=0):
    """The frames as a switch gives them: lans(way) of each, the later ones `since` ns later."""
    return [(ns + k * since, kit.ethernet(summed(p), lan(p[12:16] != b"\x0a\0\0\2")))
            for ns, p in talk.frames for k, lan in enumerate(lans)]  # fmt: skip


NO_LAN, LAN, OTHER_LAN = [], [(0x8100, 10)], [(0x8100, 20)]
INNER = [(0x88A8, 2), (0x8100, 10)]


@pytest.mark.parametrize("one,other", [(LAN, OTHER_LAN), (NO_LAN, LAN), (LAN, INNER)])
@pytest.mark.parametrize("isn", [(1000, 5000), (900_000_000, 70_000)])
def test_the_same_endpoints_in_two_lans_are_two_connections(one, other, isn, tmp_path):
    """Also if TCP's numbers happen to be the same; else in pieces of the file and in two files."""
    talks = [kit.Talk(isn=n).open() for n in ((1000, 5000), isn)]
    for number, (talk, name) in enumerate(zip(talks, ("one", "other"))):
        talk.client(kit.connect(name)).broker(kit.connack())
        for k in range(1, 9):
            talk.client(kit.publish(name, b"%d" % number, 1, k)).broker(kit.ack(4, k))
        talk.client(kit.DISCONNECT).close()
    frames = sorted((f for talk, tags in zip(talks, (one, other))
                     for f in in_lan(talk, lambda _, tags=tags: tags)), key=lambda f: f[0])
    path = kit.pcap(tmp_path / "t.pcap", frames)
    halves = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(
        (frames[:25], frames[25:]))]  # fmt: skip
    cut = [([path], 700), (halves, None)] * (isn[0] != 1000)
    for paths, size in [([path], None), *cut]:
        found = kit.read(paths, tmp_path, part_size=size)
        assert found["violations"] == []
        ends = {c["client_id"]: (c["client_packets"], c["broker_packets"], c["why"])
                for c in found["connections"]}  # fmt: skip
        assert ends == {n: (10, 9, "client sent DISCONNECT") for n in ("one", "other")}


@pytest.mark.parametrize("lans", [
    [lambda way: LAN if way else NO_LAN], [lambda way: NO_LAN if way else LAN],
    [lambda way: LAN if way else OTHER_LAN], [lambda _: LAN, lambda _: NO_LAN],
    [lambda way: LAN if way else NO_LAN, lambda way: NO_LAN if way else LAN]])  # fmt: skip
@pytest.mark.parametrize("since", [0, 7])
def test_a_mirror_port_may_tag_one_direction_or_give_each_frame_twice(lans, since, tmp_path):
    """That is one connection."""
    frames = in_lan(conversation().client(kit.DISCONNECT), *lans, since=1000)[since:]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert len(found["connections"]) == 1 and found["violations"] == []
    assert since or types(found) == [*TYPES, "DISCONNECT"]


@pytest.mark.parametrize("pad,told", [(None, []), (0, ["bad header"]), (0xAA, ["bad header"])])
def test_a_length_of_0_is_that_of_the_frame_unless_this_may_be_filled_up(pad, told, tmp_path):
    """As of segments that a network card is to cut, which are long, and never filled up."""
    frames = []
    for ns, packet in conversation().frames:
        frame = kit.ethernet(packet[:2] + b"\0\0" + packet[4:])[: 14 + len(packet)]
        frames.append((ns, frame + bytes([pad or 0]) * (0 if pad is None else 60 - len(frame))))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert found["violations"] == [] and "CONNECT" in types(found)
    assert {p["problem"] for p in found["problems"]} & {"bad header"} == set(told)
    if pad is None:
        assert types(found) == TYPES


@pytest.mark.parametrize("magic,extra,told", [
    (0xA1B2CD34, 8, "modified pcap"), (0xA1B2C3D4, 4, "Nokia")])  # fmt: skip
@pytest.mark.parametrize("order", ["<", ">"])
def test_relatives_of_pcap_are_named(order, magic, extra, told, tmp_path):
    from mqtt_audit.capture.files import NotACapture
    from mqtt_audit.capture.files import magic as kind
    from mqtt_audit.following import Following

    raw = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65_535, 1)
    for ns, frame in conversation().wrapped():
        sizes = len(frame), len(frame)
        raw += struct.pack(order + "IIII", ns // 10**9, 0, *sizes) + bytes(extra) + frame
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(NotACapture, match=f"t: is a .*{told}.*editcap"):
        kind(tmp_path / "t")
    with pytest.raises(NotACapture, match=f"t: is a .*{told}.*editcap"):
        Following(print).capture("t", [raw])


def test_ip_options_and_extension_headers(tmp_path):
    # Router alert; hop-by-hop options, then destination options, then TCP.
    four = conversation(options=b"\x94\x04\0\0").wrapped(101)
    read(kit.pcap(tmp_path / "4.pcap", four, link=101), tmp_path)
    headers = b"\x00" + b"\x3c\x00\x01\x04\0\0\0\0" + b"\x06\x00\x01\x04\0\0\0\0"
    six = conversation(IPV6, extension=headers).wrapped(101)
    read(kit.pcap(tmp_path / "6.pcap", six, link=101), tmp_path)


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_sections_interfaces_and_resolutions(order, tmp_path):
    """Two sections of different byte order; interfaces of other link types and resolutions."""
    talk = conversation()
    other = ">" if order == "<" else "<"
    half = len(talk.frames) // 2
    blocks = [kit.section(order), kit.interface(order, 1), kit.interface(order, 101, 9)]
    for k, (ns, p) in enumerate(talk.frames[:half]):
        ethernet = k % 2 == 0
        frame = kit.ethernet(p) if ethernet else p
        blocks.append(kit.enhanced(order, k % 2, ns // 1000 if ethernet else ns, frame))
    # 2^-20 s, counted from ten seconds before the capture.
    start = kit.START // 10**9 - 10
    blocks += [kit.section(other), kit.interface(other, 113, 0x80 | 20, start)]
    for ns, p in talk.frames[half:]:
        units = ((ns - start * 10**9) << 20) // 10**9
        blocks.append(kit.enhanced(other, 0, units, kit.cooked(p)))
    path = tmp_path / "t.pcapng"
    path.write_bytes(b"".join(blocks))
    found = read(path, tmp_path)
    base = kit.START // 1000
    got = [int(r["time"].timestamp() * 1e6 + 0.5) - base for r in found["packets"]]
    assert all(abs(us - 1000 * (k + 3)) <= 1 for k, us in enumerate(got))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("offset", [-3600, -1, 0, 3600])
def test_an_interface_may_have_times_before_or_behind_the_clocks(offset, order, tmp_path):
    """if_tsoffset is signed."""
    path = tmp_path / "t.pcapng"
    head = kit.section(order) + kit.interface(order, resolution=9, offset=offset)
    path.write_bytes(head + b"".join(
        kit.enhanced(order, 0, ns - offset * 10**9, f) for ns, f in conversation().wrapped()))
    (conn,) = read(path, tmp_path)["connections"]
    assert int(conn["first"].timestamp() * 1000 + 0.5) == kit.START // 10**6


def test_another_port_is_found_by_its_connect_and_other_traffic_left_alone(tmp_path):
    far = (("10.0.0.3", 5000), ("10.0.0.1", 2883))
    web = kit.Talk(("10.0.0.4", 5000), ("10.0.0.9", 80)).open().client(b"GET / HTTP/1.1\r\n\r\n")
    frames = sorted(conversation(far).wrapped() + web.wrapped(), key=lambda f: f[0])
    found = read(kit.pcap(tmp_path / "t.pcap", frames), tmp_path)
    assert [c["broker"] for c in found["connections"]] == ["10.0.0.1:2883"]
    # Without the CONNECT its packets show it.
    later = conversation(far).wrapped()[4:]
    path = kit.pcap(tmp_path / "l.pcap", later)
    assert types(kit.read([path], tmp_path)) == TYPES[1:]
    assert types(kit.read([path], tmp_path, ports=(2883,))) == TYPES[1:]


def said(found):
    return [(p["problem"], p["count"]) for p in found["problems"]]


def of_kind(found, name):
    return [p for p in found["problems"] if p["problem"] == name]


def test_tls_and_http_on_the_port_are_said(tmp_path):
    tls = kit.Talk().open().client(b"\x16\x03\x01\x02\x00" + bytes(400)).broker(bytes(99))
    web = kit.Talk(("10.0.0.3", 1)).open().client(b"GET /mqtt HTTP/1.1\r\n\r\n").broker(b"HTTP")
    found = kit.read([kit.pcap(tmp_path / "t.pcap", tls.wrapped() + web.wrapped())], tmp_path)
    assert [c["protocol"] for c in found["connections"]] == ["TLS", "HTTP"]
    assert [s[0] for s in said(found)] == ["TLS", "HTTP"] and found["packets"] == []


def test_fragments_are_said(tmp_path):
    talk = conversation()
    ns, p = talk.frames[3]
    talk.frames[3] = ns, p[:6] + b"\x20\x00" + p[8:]  # more fragments
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path)
    assert [(p["frame"], p["count"]) for p in of_kind(found, "fragment")] == [(4, 1)]


def test_what_the_capture_cut_off_is_said_and_the_rest_read(tmp_path):
    talk = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    talk.client(kit.publish("a/b", bytes(1000), 1, 5)).client(kit.publish("a/c", b"x"))
    path = kit.pcap(tmp_path / "t.pcap", talk.wrapped(), snap=100)
    found = kit.read([path], tmp_path)
    assert [(r["topic"], r["packet_id"], r["damaged"]) for r in found["packets"][2:]] == [
        ("a/b", 5, True), ("a/c", None, False)]  # fmt: skip
    # Ethernet, IP and TCP are 54 of the 100 bytes.
    bytes_ = len(kit.publish("a/b", bytes(1000), 1, 5)) - 46
    assert sorted(said(found)) == [("snapped", 1), ("snapped", bytes_)]  # frames, bytes


def test_a_file_that_ends_in_a_frame(tmp_path):
    path = kit.pcap(tmp_path / "t.pcap", conversation().wrapped())
    path.write_bytes(path.read_bytes()[:-11])
    found = kit.read([path], tmp_path)
    assert types(found) == TYPES and [s[0] for s in said(found)] == ["cut"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_damaged_record_costs_only_itself(order, tmp_path):
    talk = conversation()
    for k in range(20):
        talk.client(kit.publish("a/b", b"%d" % k))
    path = kit.pcap(tmp_path / "t.pcap", talk.wrapped(), order)
    raw = bytearray(path.read_bytes())
    at = 24
    for _ in range(12):
        at += 16 + struct.unpack_from(order + "I", raw, at + 8)[0]
    raw[at + 8 : at + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(raw)
    found = kit.read([path], tmp_path)
    assert [p["offset"] for p in of_kind(found, "damaged")] == [at]
    assert types(found)[:6] == TYPES and types(found).count("PUBLISH") == 20  # record 13 was a FIN


def hurt(choice, sound):
    """Bytes of a file changed, cut out and put in anywhere."""
    raw = bytearray(sound)
    for _ in range(choice.randrange(1, 12)):
        at = choice.randrange(28, len(raw))
        how = choice.randrange(4)
        if how == 0:
            raw[at] = choice.randrange(256)
        elif how == 1:
            raw[at : at + 4] = choice.randbytes(4)
        elif how == 2:
            del raw[at : at + choice.randrange(1, 50)]
        else:
            raw[at:at] = choice.randbytes(choice.randrange(1, 50))
    return raw


def long_one(path, choice, form, ends=(kit.CLIENT, kit.BROKER)):
    """A file with the conversation and 30 messages."""
    talk = conversation(ends)
    for k in range(30):
        talk.client(kit.publish("a/b", bytes(choice.randrange(200)), 1, k + 1))
        talk.broker(kit.ack(4, k + 1))
    if form == "pcap":
        return kit.pcap(path, talk.wrapped())
    path.write_bytes(kit.section() + kit.interface() + b"".join(
        kit.enhanced("<", 0, ns // 1000, f) for ns, f in talk.wrapped()))  # fmt: skip
    return path


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_hostile_files_end_in_rows(form, tmp_path):
    """Always tables, whatever is in the file."""
    choice = random.Random(form)
    path = long_one(tmp_path / f"t.{form}", choice, form)
    sound = path.read_bytes()
    problems = 0
    for _ in range(100):
        path.write_bytes(hurt(choice, sound))
        found = kit.read([path], tmp_path)
        problems += len(found["problems"])
        assert len(found["packets"]) <= 200
    assert problems > 100


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_a_file_cut_into_parts_gives_the_same(form, tmp_path, monkeypatch):
    """A large file is read in parts by several cores: no row may tell, whatever is damaged."""
    from mqtt_audit import worker
    from mqtt_audit.capture import files

    monkeypatch.setattr(files, "PIECE", 5)  # frames
    choice = random.Random(form)
    ports = choice.sample(range(2000, 3000), 2)
    path = long_one(tmp_path / f"t.{form}", choice, form,
                    (("10.0.0.7", ports[0]), ("10.0.0.1", ports[1])))  # fmt: skip
    sound = path.read_bytes()
    for k in range(10):
        path.write_bytes(hurt(choice, sound) if k else sound)
        once, parts = (
            {name: sorted(map(repr, rows)) for name, rows in kit.read(
                [path], tmp_path, part_size=size).items()} for size in (None, 400))  # fmt: skip
        assert parts == once
    assert len(worker.cut(0, path, "", 400, tmp_path / "tables")["parts"]) > 3
    assert len(once["packets"]) and len(once["problems"])
