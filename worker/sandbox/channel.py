"""The worker's end of the channel: frames with one deadline each, arrays in sealed memory."""

import mmap
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.sandbox.inside.runner import HEADER, FrameType
from worker.sandbox.protocol import (
    ArraySpec,
    Conversation,
    ProtocolError,
    TaskConversation,
    header_of,
    offsets,
    size_of,
)

Array = NDArray[np.generic]
POLL_SECONDS = 0.05
# Of linux/fcntl.h: F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE.
SEALS = 0x1 | 0x2 | 0x4 | 0x8


class ClosedError(Exception):
    """The sandbox closed its end."""


class DeadlineError(Exception):
    """A frame was incomplete at its deadline."""


@dataclass(frozen=True)
class Frame:
    """A frame of the sandbox. `at` is the worker's clock at its last byte."""

    kind: FrameType
    body: bytearray
    at: float


class Channel:
    """Sends and receives frames. `look` is called every 50 ms of waiting and may raise."""

    def __init__(
        self,
        end: socket.socket,
        conversation: Conversation | TaskConversation,
        *,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._end = end
        self._end.setblocking(False)
        self._conversation = conversation
        self._look = look
        self._sent = 0

    def send(
        self, kind: FrameType, body: bytes = b"", *, deadline: float, descriptor: int | None = None
    ) -> None:
        """Send a frame. Raises DeadlineError or ClosedError."""
        rest = memoryview(header_of(kind, self._sent, len(body)) + body)
        self._sent += 1
        while rest:
            self._wait(select.POLLOUT, deadline)
            try:
                if descriptor is not None:
                    count = socket.send_fds(self._end, [rest], [descriptor])
                    descriptor = None
                else:
                    count = self._end.send(rest)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClosedError from error
            rest = rest[count:]

    def receive(self, *, deadline: float) -> Frame:
        """Receive the next frame. Raises ProtocolError, DeadlineError or ClosedError."""
        header = self._read(HEADER.size, deadline)
        kind, length = self._conversation.accept(bytes(header))
        body = self._read(length, deadline)
        return Frame(kind, body, time.perf_counter())

    def refuse_early(self) -> None:
        """Raise ProtocolError for bytes sent too early, ClosedError at the end."""
        try:
            early = self._end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            raise ClosedError from error
        if not early:
            raise ClosedError
        raise ProtocolError("a frame came before its turn")

    def _read(self, length: int, deadline: float) -> bytearray:
        body = bytearray(length)
        view, at = memoryview(body), 0
        while at < length:
            self._wait(select.POLLIN, deadline)
            try:
                # Plain receiving: the kernel drops descriptors that come along.
                count = self._end.recv_into(view[at:])
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClosedError from error
            if not count:
                raise ClosedError
            at += count
        return body

    def _wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._end, event)
        while True:
            self._look()
            left = deadline - time.perf_counter()
            if left <= 0:
                raise DeadlineError
            if poll.poll(1000 * min(POLL_SECONDS, left)):
                return


def seal(arrays: Mapping[str, Array]) -> int:
    """Write arrays to a memory file and seal it against writes. The caller closes it."""
    import fcntl  # Only sandboxes need it, and other workers run anywhere.

    specs = specs_of(arrays)
    number = os.memfd_create("data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(number, size_of(specs))
        with mmap.mmap(number, size_of(specs)) as memory:
            for name, at in offsets(specs).items():
                content = np.ascontiguousarray(arrays[name])
                memory[at : at + content.nbytes] = content.tobytes()
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(number)
        raise
    return number


def specs_of(arrays: Mapping[str, Array]) -> dict[str, ArraySpec]:
    """Return types and shapes of arrays. Raises ValueError for other types."""
    return {name: ArraySpec(str(one.dtype), one.shape) for name, one in arrays.items()}


def listed(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return types and shapes of arrays for JSON."""
    return {name: [one.dtype, list(one.shape)] for name, one in specs_of(arrays).items()}
