"""Bronze rows decoded and validated, on Spark; decoders of one's own are registered here."""

from .cbor_column import DECODED
from .decoding import check, decode, own
from .own_decoders import Decoder, Unfit, forget, load, register, registered

__all__ = ["DECODED", "Decoder", "Unfit", "check", "decode", "forget", "load", "own", "register",
           "registered"]  # fmt: skip
