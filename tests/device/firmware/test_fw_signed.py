"""Signed updates: what a board with keys takes, and that it refuses all else before it touches its
flash. Both interpreters, plain files."""
# heap: 2M
# deadline: 60

import os
import sys

import loader
import release
import rsa
import signed as signed_module
from ota_kit import Set, files
from rsa_vectors import MODULUS, VECTORS
from signed_kit import BYTES, FIRST, PROJECT, SPARE, STRANGER, signed
from signed_kit import manifest as text_of
from updated import Board

NOW = 1800000000
TRUSTED = [FIRST.print, SPARE.print]
# Each byte on CPython; a sample where the arithmetic is slow.
EACH = 1 if sys.implementation.name == "cpython" else 41


class Now:
    """The board's clock says NOW, or that it does not know."""

    def __init__(self, now):
        self._now = now

    def unix_s(self):
        return self._now


def board(trusted=TRUSTED, now=NOW):
    signed_module.clock = Now(now)
    return Board(trusted, PROJECT)


def small(seed=1, sizes=(300, 900, 2500), **more):
    return Set(files(seed, sizes), **more)


def flash():
    """What is in the folder of the sets: {name: bytes}; None when there is no folder."""
    if not loader.exists(loader.ROOT):
        return None
    found = {}
    for name in os.listdir(loader.ROOT):
        with open(loader.ROOT + "/" + name, "rb") as file:
            found[name] = file.read()
    return found


def refusal(board, made):
    """Why the board refuses a set; its flash is as it was."""
    before = flash()
    board.prove(made)
    assert board.last["state"] == "refused", board.last
    why = board.last["why"]
    board.give(made, made.head)
    assert not board.update.step() and flash() == before
    return why


def test_nists_signatures():
    modulus = bytes.fromhex(MODULUS)
    right = 0
    for word, message, signature in VECTORS:
        found = rsa.verified(modulus, bytes.fromhex(signature), bytes.fromhex(message))
        assert found is (word == "P"), word
        right += found
    assert right == 1


def test_a_signature_has_one_form():
    message = b"what is signed"
    good = FIRST.sign(message)
    n = int.from_bytes(FIRST.modulus, "big")
    assert rsa.verified(FIRST.modulus, good, message)
    for bad in (good[1:], good + b"\0", b"\0" + good, b"", bytes(BYTES), FIRST.modulus,
                (n - int.from_bytes(good, "big")).to_bytes(BYTES, "big"), SPARE.sign(message)):
        assert not rsa.verified(FIRST.modulus, bad, message)
    assert not rsa.verified(SPARE.modulus, good, message)
    assert not rsa.verified(bytes(BYTES), good, message)
    # As libraries once took it: shorter padding with something behind the digest, another digest's
    # name, no name, and the right block one byte to the left.
    import hashlib

    digest = hashlib.sha256(message).digest()
    name = rsa._SHA256
    for tail in (b"\0" + name + digest + bytes(40), b"\0" + digest,
                 b"\0" + name.replace(b"\x02\x01", b"\x02\x03") + digest,
                 b"\0" + name[:-4] + name[-2:] + digest):
        block = b"\0\1" + b"\xff" * (BYTES - 2 - len(tail)) + tail
        assert not rsa.verified(FIRST.modulus, FIRST.raw(block), message), tail
    block = b"\0\2" + b"\xff" * (BYTES - 54) + b"\0" + name + digest
    assert not rsa.verified(FIRST.modulus, FIRST.raw(block), message)


def test_a_set_of_either_key_is_taken():
    with board() as made:
        for seed, key in ((1, FIRST), (2, SPARE), (3, FIRST)):
            update = signed(small(seed), key)
            made.install(update)
            assert loader.pointer()["id"] == update.id
            assert update.lies_in(loader.place(loader.pointer()["slot"]))
            loader.healthy()


def test_a_board_with_one_key_takes_that_one():
    for trusted in ([SPARE.print], [FIRST.print]):
        with board(trusted) as made:
            for key in (FIRST, SPARE):
                if key.print in trusted:
                    made.install(signed(small(), key))
                    loader.healthy()
                else:
                    assert "does not trust" in refusal(made, signed(small(2), key))


def test_every_byte_of_envelope_counts():
    with board() as made:
        good = signed(small(), FIRST)
        envelope = good.envelope
        reasons = set()
        for i in range(0, len(envelope), EACH):
            bad = bytearray(envelope)
            bad[i] ^= 1 << (i % 8)
            good.seal(bytes(bad))
            reasons.add(refusal(made, good))
        assert reasons == {"signed with a key that this board does not trust",
                           "the signature is wrong"}, reasons
        good.seal(envelope)
        made.install(good)


def test_every_byte_of_the_set_counts():
    # A sender that holds the command's key: the chain covers what it sends, the signature not.
    with board() as made:
        good = signed(small(sizes=(60, 90)), FIRST)
        run = good.run
        for i in range(0, len(run), EACH):
            good.run = run[:i] + bytes([run[i] ^ 1 << (i % 8)]) + run[i + 1 :]
            good.seal(good.envelope)
            made.prove(good)
            made.give(good, good.head)
            assert not made.finish() and made.last["state"] == "refused", i
            assert loader.pointer() == {"slot": 0}


def test_what_is_cut_short_or_longer_is_refused():
    with board() as made:
        good = signed(small(), FIRST)
        envelope = good.envelope
        for end in (1, BYTES - 1, BYTES, 2 * BYTES - 1, 2 * BYTES, 2 * BYTES + 1, -1):
            good.seal(envelope[:end])
            refusal(made, good)
        good.seal(envelope + b" ")
        assert refusal(made, good) == "the signature is wrong"
        good.seal(envelope + bytes(1024))
        assert "expected 1 to 1024" in refusal(made, good) or made.last["why"] == (
            '"signed" is %d, expected 0 to 1792' % len(good.envelope))
        good.seal(b"")
        assert "not signed" in refusal(made, good)
        del good.body["signed"]
        assert "not signed" in refusal(made, good)


def test_the_envelope_of_another_set_is_refused():
    with board() as made:
        one, two = signed(small(1), FIRST), signed(small(2), FIRST)
        two.seal(one.envelope)
        assert '"sha" is not that of the command' in refusal(made, two)
        # Nor with the command of the other: then what comes is not what was signed.
        body = dict(two.body)
        for key in ("sha", "version", "index"):
            body[key] = one.body[key]
        two.body = body
        two.pieces = [bytes.fromhex(one.body["sha"][:8]) + piece[4:] for piece in two.pieces]
        made.prove(two)
        made.give(two, two.head)
        assert not made.finish() and loader.pointer() == {"slot": 0}


def test_modulus_and_signature_of_different_keys_are_refused():
    with board() as made:
        good = signed(small(), FIRST)
        text = good.envelope[2 * BYTES :]
        for modulus, key in ((FIRST, SPARE), (SPARE, FIRST), (FIRST, STRANGER)):
            good.seal(modulus.modulus + key.sign(text) + text)
            assert refusal(made, good) == "the signature is wrong"
        assert "does not trust" in refusal(made, signed(small(), STRANGER))


def test_a_set_with_a_file_of_another_is_refused():
    with board() as made:
        old = files(1, (300, 900, 2500))
        mixed = signed(Set(old), FIRST)
        envelope = mixed.envelope
        old["app.mpy"] = files(2, (300,))["app.mpy"]
        mixed = Set(old)
        mixed.seal(envelope)
        assert '"sha" is not that of the command' in refusal(made, mixed)


def test_what_a_manifest_says_is_held_against_the_board():
    with board() as made:
        for change, why in (
            ({"project": "other"}, 'signed for the project "other", this is "umqtt_min"'),
            ({"chip": "nothing"}, 'signed for the chip "nothing", this is "%s"' % sys.platform),
            ({"board": "nothing"}, 'signed for the board "nothing", this is'),
            ({"mpy": 5}, '"mpy" is not that of the command'),
            ({"loader": 1}, '"loader" is not that of the command'),
            ({"version": "9.8"}, '"version" is not that of the command'),
            ({"index": 7}, '"index" is not that of the command'),
            ({"size": 7}, '"size" is not that of the command'),
            ({"expires": NOW - 5}, "the signature has expired 5 s ago"),
        ):
            found = refusal(made, signed(small(), FIRST, **change))
            assert why in found, (change, found)
        good = signed(small(), FIRST, chip=sys.platform, expires=NOW,
                      board=getattr(sys.implementation, "_machine", ""))  # fmt: skip
        made.install(good)
    with board(now=0) as made:
        made.install(signed(small(), FIRST, expires=1))


def test_a_manifest_of_any_other_shape_is_refused():
    with board() as made:
        keys, values = ("sha", "security"), (None, -1)
        if EACH == 1:
            keys += ("project", "board", "chip", "version", "files", "size", "index", "mpy",
                     "loader", "expires")  # fmt: skip
            values += (True, 1.5, [])
        for key in keys:
            for value in values:
                found = refusal(made, signed(small(), FIRST, **{key: value}))
                assert '"%s" is missing or of the wrong kind' % key in found, (key, value, found)
        for text in (b"{", b"[]", b"7", b"\xff\xff", b'"sha"', b"[" * 1024):
            found = refusal(made, signed(small(), FIRST, text))
            assert found.startswith("manifest"), (text, found)


def test_the_command_names_the_same_set_as_the_manifest():
    with board() as made:
        for key, value in (("index", 1), ("version", "1.0"), ("sha", "00" * 32)):
            good = signed(small(), FIRST)
            good.body[key] = value
            if key == "sha":
                good.pieces = [bytes(4) + piece[4:] for piece in good.pieces]
            made.update.begin(good.body)
            made.give(good, 0, good.head)
            made.update.step()
            if key != "sha":  # there the chain of hashes says so, before anything is checked
                assert '"%s" is not that' % key in made.last["why"], made.last
            assert flash() is None


def test_no_piece_of_the_set_is_taken_before_the_signature_is_found_right():
    with board() as made:
        good = signed(small(), FIRST)
        made.update.begin(good.body)
        made.give(good)  # all of it at once, as a sender may that does not know
        assert flash() is None and made.have() == len(good.envelope)
        assert not made.update.step() and made.have() == len(good.envelope)
        made.give(good, good.head)
        assert made.finish() and good.lies_in(loader.place(1))


def test_a_piece_with_bytes_of_both_is_refused():
    with board() as made:
        good = signed(small(), FIRST)
        cut = len(good.envelope)
        good.seal(good.envelope + good.run[:5])
        good.body["signed"] = cut
        made.prove(good)
        assert "envelope and set" in made.last["why"] and flash() is None


def test_a_refused_set_leaves_what_is_on_its_way_alone():
    with board() as made:
        one = signed(small(1, sizes=(300, 9000)), FIRST)
        made.prove(one)
        made.give(one, one.head, -1)
        assert made.last["state"] == "receiving"
        for bad in (small(2), signed(small(3), STRANGER)):
            made.prove(bad)
            assert made.last["state"] == "refused" and made.update.busy, made.last
        # Of what was taken it knows what was synced; the sender hears it and goes on from there.
        have = made.have()
        assert have > len(one.envelope)
        step = 120 - 24
        made.give(one, one.head + (have - len(one.envelope)) // step)
        assert made.finish() and one.lies_in(loader.place(1))


def test_it_goes_on_after_a_reset_without_the_envelope():
    with board() as made:
        good = signed(small(sizes=(300, 9000)), FIRST)
        made.prove(good)
        made.give(good, good.head, 70)
        made.start()
        have = made.have()
        assert have > len(good.envelope)
        made.give(good, good.head + (have - len(good.envelope)) // 96)
        assert made.finish() and good.lies_in(loader.place(1))


def test_a_reset_before_the_signature_was_checked_begins_anew():
    with board() as made:
        good = signed(small(), FIRST)
        made.update.begin(good.body)
        made.give(good, 0, 2)
        made.start()
        assert not made.update.busy and flash() is None
        made.install(good)


def test_a_board_without_keys_takes_both():
    with Board() as made:
        made.install(signed(small(1), STRANGER))
        loader.healthy()
        made.install(small(2))
        loader.healthy()
        # Cut while the envelope comes: it begins the set's file at its first byte.
        good = signed(small(3), FIRST)
        made.update.begin(good.body)
        made.give(good, 0, 3)
        made.start()
        assert made.have() == 0
        made.install(good)


def test_too_little_memory_is_a_reason_like_any_other():
    def none(*args):
        raise MemoryError("allocation failed")

    with board() as made:
        for module, name in ((rsa, "opened"), (release, "check")):
            saved = getattr(module, name)
            sys.modules[module.__name__] = module  # the board lets go of it each time
            setattr(module, name, none)
            try:
                assert "allocation" in refusal(made, signed(small(), FIRST))
            finally:
                setattr(module, name, saved)


def test_the_manifest_alone():
    made = small()
    signed(made, FIRST)
    text = rsa.opened(memoryview(made.envelope), TRUSTED)
    found = release.check(text, made.body, PROJECT, NOW)
    assert found["security"] == 1 and text_of(made) == text
    try:
        rsa.opened(memoryview(made.envelope), [])
        raise AssertionError("taken without a key")
    except ValueError as error:
        assert "trust" in str(error)
