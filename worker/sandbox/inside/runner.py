"""Run a training package inside a box. Started by the worker as `python -I -S runner.py`.

Nothing but the standard library and the environment's packages can be imported here. The constants
are those of worker/sandbox/protocol.py.
"""

import importlib
import json
import mmap
import os
import resource
import socket
import struct
import sys
import traceback
from typing import Any

MAGIC = b"FLE1"
HEADER = struct.Struct("<4sBIQ")
TASK, HELLO, READY, GO, ASK, INPUTS, PREDICTIONS, DONE = range(8)
FORMATS: dict[str, Any] = {
    "int8": "b",
    "uint8": "B",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float32": "f",
    "float64": "d",
}
ITEM_BYTES = {
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float32": 4,
    "float64": 8,
}
ALIGNMENT = 64
IMPORT_FAILED, PACKAGE_RAISED, WRONG_RESULT = 3, 4, 5


class Channel:
    """Frames over the socket pair that the box was started with."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._sent, self._received = 0, 0

    def send(self, kind: int, body: bytes = b"") -> None:
        """Send a frame, header and body at once: the worker wakes up once for it."""
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
        number, body, descriptor = self._receive()
        if number != kind:
            raise RuntimeError("the worker broke the protocol")
        return body, descriptor

    def receive_any(self) -> tuple[int, bytes]:
        """Receive a frame: its type and its body."""
        return self._receive()[:2]

    def _receive(self) -> tuple[int, bytes, int | None]:
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
    """The package returned something else than predictions."""


def arrays(buffer: Any, shapes: dict[str, Any]) -> dict[str, memoryview]:
    """Read-only memoryviews of the arrays that lie in a buffer one after the other."""
    found, at = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = ITEM_BYTES[dtype]
        for length in shape:
            size *= length
        part = memoryview(buffer)[at : at + size].toreadonly()
        found[name] = part.cast(FORMATS[dtype], shape)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return found


def buffer_of(body: bytes, descriptor: int | None) -> Any:
    """The bytes of a frame, or of the memory file that came with it."""
    if descriptor is None:
        return body
    size = os.fstat(descriptor).st_size
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)


def checked(result: Any, dtype: str, shape: list[int]) -> bytes:
    """The bytes of predictions. Raises WrongResultError with the expected type and shape."""
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
    """Limit this process and its children. The number of processes counts inside the box alone."""
    for name, value in orders["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))


def load(name: str) -> Any:
    """Import the package's module. Raises ImportError naming a function that is missing."""
    module = importlib.import_module(name)
    for wanted in ("prepare", "train"):
        if not callable(getattr(module, wanted, None)):
            raise ImportError(f"module {name} has no function {wanted}")
    return module


def train(channel: Channel, module: Any, task: dict[str, Any]) -> None:
    """Prepare, wait for the data, train, and ask for an evaluation at each `yield`."""
    prepared = module.prepare(task)
    channel.send(READY)
    body, descriptor = channel.receive(GO)
    go = json.loads(body)
    data = arrays(buffer_of(b"", descriptor), go["shapes"])
    inputs = None
    for predict in module.train(prepared, data, go["seed"]):
        channel.send(ASK)
        body, descriptor = channel.receive(INPUTS)
        if inputs is None:
            inputs = arrays(buffer_of(body, descriptor), task["inputs"])
        dtype, shape = task["prediction"]
        channel.send(PREDICTIONS, checked(predict(inputs), dtype, shape))
    channel.send(DONE)


def main() -> int:
    """Run the package that the orders name. Exits with a status that says who failed."""
    orders = json.loads(sys.argv[1])
    limit(orders)
    sys.path.append(orders["site"])
    for name in orders["preload"]:
        importlib.import_module(name)
    channel = Channel(orders["channel"])
    channel.send(HELLO, b'{"protocol": 1}')
    task = json.loads(channel.receive(TASK)[0])
    sys.path.append(orders["package"])
    try:
        module = load(orders["module"])
    except BaseException:  # noqa: BLE001  (whatever a stranger raises is told apart by the status)
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
