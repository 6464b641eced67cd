"""Run a code submission inside a sandbox. The worker starts `python -I -S runner.py`.

Only the standard library and the environment's packages can be imported here. The worker imports
the constants of the protocol from this file.
"""

import importlib
import json
import mmap
import os
import socket
import struct
import sys
import traceback
from enum import IntEnum
from math import prod
from typing import Any

MAGIC = b"FLE1"
HEADER = struct.Struct("<4sBIQ")
FORMATS: dict[str, Any] = {
    "int8": "b",
    "uint8": "B",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float32": "f",
    "float64": "d",
}
ITEM_BYTES = {dtype: struct.calcsize(letter) for dtype, letter in FORMATS.items()}
ALIGNMENT = 64
IMPORT_FAILED, PACKAGE_RAISED, WRONG_RESULT = 3, 4, 5


class FrameType(IntEnum):
    """The type of a frame. The sandbox sends HELLO, READY, ASK, PREDICTIONS and DONE."""

    TASK = 0
    HELLO = 1
    READY = 2
    GO = 3
    ASK = 4
    INPUTS = 5
    PREDICTIONS = 6
    DONE = 7
    # Between a worker and a task's own sandbox.
    DRAW = 16
    DRAWN = 17
    SCORE = 18
    SCORED = 19
    CONTROL = 20


class Channel:
    """The sandbox's end of the socket pair to the worker."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._sent, self._received = 0, 0

    def send(self, kind: int, body: bytes = b"") -> None:
        """Send header and body at once, so that the worker wakes up once."""
        header = HEADER.pack(MAGIC, kind, self._sent, len(body))
        parts = [memoryview(header), memoryview(body)]
        while parts:
            count = self._socket.sendmsg(parts)
            while parts and count >= len(parts[0]):
                count -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][count:]
        self._sent += 1

    def receive(self, kind: int) -> tuple[bytes, int | None]:
        """Receive a frame of this type: its body, and the memory file that came with it."""
        number, body, descriptor = self.receive_any()
        if number != kind:
            raise RuntimeError("the worker broke the protocol")
        return body, descriptor

    def receive_any(self) -> tuple[int, bytes, int | None]:
        """Receive a frame: its type, its body, and the memory file that came with it."""
        header, descriptors = b"", list[int]()
        while len(header) < HEADER.size:
            part, fds, _flags, _address = socket.recv_fds(
                self._socket, HEADER.size - len(header), 1
            )
            if not part:
                os._exit(0)  # The worker is gone.
            header += part
            descriptors += fds
        magic, number, sequence, length = HEADER.unpack(header)
        if magic != MAGIC or sequence != self._received:
            raise RuntimeError("the worker broke the protocol")
        self._received += 1
        body = bytearray(length)
        view, at = memoryview(body), 0
        while at < length:
            count = self._socket.recv_into(view[at:])
            if not count:
                os._exit(0)
            at += count
        return number, bytes(body), (descriptors[0] if descriptors else None)


class WrongResultError(Exception):
    """The code returned something else than predictions."""


def arrays(buffer: Any, shapes: dict[str, Any]) -> dict[str, memoryview]:
    """Return read-only memoryviews of the arrays in a buffer, each aligned to 64 bytes."""
    found, at = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = prod(shape) * ITEM_BYTES[dtype]
        part = memoryview(buffer)[at : at + size].toreadonly()
        found[name] = part.cast(FORMATS[dtype], shape)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return found


def buffer_of(body: bytes, descriptor: int | None) -> Any:
    """Return the bytes of a frame, or of the memory file that came with it."""
    if descriptor is None:
        return body
    size = os.fstat(descriptor).st_size
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)


def checked(result: Any, dtype: str, shape: list[int]) -> bytes:
    """Return the bytes of predictions. Raises WrongResultError with the expected type and shape."""
    expected = f"an array of {dtype} with shape {shape}"
    try:
        view = memoryview(result)
    except TypeError:
        kind = type(result).__name__
        raise WrongResultError(f"predict returned {kind}; expected {expected}") from None
    if view.format.lstrip("@=<") != FORMATS[dtype] or list(view.shape or ()) != shape:
        found = f"format {view.format!r} with shape {list(view.shape or ())}"
        raise WrongResultError(f"predict returned {found}; expected {expected}")
    return view.tobytes()


def limit(orders: dict[str, Any]) -> None:
    """Limit this process and its children. RLIMIT_NPROC counts the sandbox's processes only."""
    import resource  # POSIX only, and a worker on Windows imports this file too.

    for name, value in orders["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))


def load(name: str) -> Any:
    """Import the submission's module. Raises ImportError naming a function that is missing."""
    module = importlib.import_module(name)
    for wanted in ("prepare", "train"):
        if not callable(getattr(module, wanted, None)):
            raise ImportError(f"module {name} has no function {wanted}")
    return module


def train(channel: Channel, module: Any, task: dict[str, Any]) -> None:
    """Prepare, wait for the data, train, and ask for an evaluation at each `yield`."""
    prepared = module.prepare(task)
    channel.send(FrameType.READY)
    body, descriptor = channel.receive(FrameType.GO)
    go = json.loads(body)
    data = arrays(buffer_of(b"", descriptor), go["shapes"])
    inputs = None
    for predict in module.train(prepared, data, go["seed"]):
        channel.send(FrameType.ASK)
        body, descriptor = channel.receive(FrameType.INPUTS)
        if inputs is None:
            inputs = arrays(buffer_of(body, descriptor), task["inputs"])
        dtype, shape = task["prediction"]
        channel.send(FrameType.PREDICTIONS, checked(predict(inputs), dtype, shape))
    channel.send(FrameType.DONE)


def main() -> int:
    """Run the module of the orders. The exit status says who failed."""
    orders = json.loads(sys.argv[1])
    limit(orders)
    sys.path.append(orders["site"])
    for name in orders["preload"]:
        importlib.import_module(name)
    channel = Channel(orders["channel"])
    channel.send(FrameType.HELLO, b'{"protocol": 1}')
    task = json.loads(channel.receive(FrameType.TASK)[0])
    sys.path.append(orders["package"])
    try:
        module = load(orders["module"])
    except BaseException:  # noqa: BLE001  (strangers' code may raise anything)
        traceback.print_exc()
        return IMPORT_FAILED
    try:
        train(channel, module, task)
    except WrongResultError as error:
        print(error, file=sys.stderr)
        return WRONG_RESULT
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return PACKAGE_RAISED
    return 0


if __name__ == "__main__":
    sys.exit(main())
