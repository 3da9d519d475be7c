"""What gzip has packed, unpacked piece by piece.

Knows: members of gzip (RFC 1952), damage in them. Must not know: files, formats of captures.

A file may have several members, one behind the other, as `cat a.gz b.gz` and bgzip make it; zeros
may stand behind each. What stands before damage is unpacked.
"""

import zlib

PIECE = 1 << 13  #: bytes unpacked at once
_GZIP = 31  #: what zlib calls a member of gzip with its checksum
ENDS = "it ends before its end-of-stream marker"
TOLD = "damaged, what could be unpacked is read: {}"  #: {}: Unpacking.wrong


class Unpacking:
    """One file. `wrong`: what is wrong with it, in words, or None; what stands behind that is not
    unpacked."""

    def __init__(self):
        self.wrong, self._member = None, None

    def take(self, raw):
        """The next bytes of the file; yields what they hold."""
        while raw and not self.wrong:
            if self._member is None:
                raw = raw.lstrip(b"\0")
                if not raw:
                    return
                self._member = zlib.decompressobj(_GZIP)
            again, given, whole = self._member.copy(), 0, raw
            while raw and self._member:
                try:
                    made = self._member.decompress(raw, PIECE)
                except zlib.error as error:
                    self.wrong = str(error)
                    # zlib keeps what it made before the damage to itself.
                    made, raw = _before_damage(again, whole)[given:], b""
                else:
                    raw = self._member.unconsumed_tail
                    if self._member.eof:
                        raw, self._member = self._member.unused_data, None
                given += len(made)
                if made:
                    yield made

    def end(self):
        """There are no more bytes; yields what is left of them."""
        if self._member is None or self.wrong:
            return
        yield from self._rest()
        if not self._member.eof:
            self.wrong = ENDS

    def _rest(self):
        try:
            made = self._member.flush()
        except zlib.error:  # of a member that is cut off
            return
        if made:
            yield made


def _before_damage(member, raw):
    """All that a member holds in these bytes before the damage that is in them."""
    made = bytearray()
    try:
        for k in range(len(raw)):
            made += member.decompress(raw[k : k + 1])
    except zlib.error:
        pass
    return bytes(made)


def unpacked(pieces, unpacking):
    """All that the pieces of a file hold."""
    for raw in pieces:
        yield from unpacking.take(raw)
        if unpacking.wrong:
            return
    yield from unpacking.end()
