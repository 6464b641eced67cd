"""Speak to the worker past the runner: in a package, `wire.py` beside `train.py`."""

import os
import socket
import struct


def channel():
    for number in range(3, 64):
        try:
            found = socket.socket(fileno=os.dup(number))
            found.getpeername()
        except OSError:
            continue
        return found
    raise OSError("no channel")


def frame(kind, sequence, body=b"", *, length=None):
    """A frame; `length` is the length that it states. In `train` the sequence is at 2."""
    stated = len(body) if length is None else length
    return struct.pack("<4sBIQ", b"FLE1", kind, sequence, stated) + body
