"""Signed updates where words have 4 bytes and small ints end at 2**30 - 1, as on the chips.

test_fw_signed.py has all else, on interpreters of 64 bits; this one is slow, and its collector
of garbage loses what is in use when it has to run: little memory is used here."""
# only: micropython32
# also: micropython32
# deadline: 60

import loader
import rsa
import signed as signed_module
from ota_kit import Set, files
from rsa_vectors import MODULUS, VECTORS
from signed_kit import FIRST, PROJECT, signed
from updated import Board


class At:
    """A board's clock that says one time."""

    def __init__(self, now):
        self._now = now

    def unix_s(self):
        return self._now


def board(now):
    signed_module.clock = At(now)
    return Board([FIRST.print], PROJECT)


def small(seed=1, **said):
    return signed(Set(files(seed, (300, 900, 2500))), FIRST, **said)


def refusal(made, update):
    made.prove(update)
    assert made.last["state"] == "refused", made.last
    return made.last["why"]


def test_nists_signatures():
    modulus = bytes.fromhex(MODULUS)
    right = [rsa.verified(modulus, bytes.fromhex(signature), bytes.fromhex(message))
             for _, message, signature in VECTORS]  # fmt: skip
    assert right == [word == "P" for word, _, _ in VECTORS] and True in right


def test_a_set_is_taken_and_a_changed_one_refused():
    with board(1800000000) as made:
        bad = small()
        for at in (0, 500, len(bad.envelope) - 2):  # the key, the signature, the manifest
            spoiled = bytearray(bad.envelope)
            spoiled[at] ^= 1
            bad.seal(bytes(spoiled))
            why = refusal(made, bad)
            assert ("does not trust" if at == 0 else "the signature is wrong") in why, (at, why)
            bad = small()
        update = small(expires=1800000000)
        made.install(update)
        assert loader.pointer()["id"] == update.id


def test_times_and_versions_beyond_a_small_int():
    now = 2**31
    with board(now) as made:
        why = refusal(made, small(expires=now - 5))
        assert "expired 5 s ago" in why, why
        made.install(small(expires=now + 1, security=now))
        assert loader.pointer()["security"] == now
        loader.healthy()
        why = refusal(made, small(2, security=now - 1))
        assert str(now) in why, why
