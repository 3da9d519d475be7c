"""Bytes of heap that a client keeps after import and after connect to fake/socket.py.

Each function is called by itself: this interpreter collects between two calls only.
"""

import gc
import sys

_kept = {}


def prepare(name):
    import os
    import socket  # noqa: F401

    import fake_select

    if not hasattr(os, "urandom"):
        sys.modules["os"] = type("os", (), {"urandom": staticmethod(bytes)})

    sys.modules["select"] = fake_select  # the built-in one knows no sockets
    _kept["driver"] = __import__("drive_" + name)
    _kept["client"] = _kept["at"] = None


def load():
    _kept["driver"].load()


def connect():
    _kept["client"] = _kept["driver"].connect("host", 1883, "bench-heap")


def show(name):
    n = gc.mem_alloc()
    if _kept["at"] is not None:
        print(name, n - _kept["at"])
    _kept["at"] = n
