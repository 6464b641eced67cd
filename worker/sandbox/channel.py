"""The worker's end of a box's channel: frames with one deadline each, arrays in sealed memory."""

import mmap
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.sandbox.protocol import (
    HEADER,
    ArraySpec,
    Conversation,
    FrameType,
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
    """The box closed its end."""


class DeadlineError(Exception):
    """A frame was not complete at its deadline."""


@dataclass(frozen=True)
class Frame:
    """A frame of the box. `at` is the worker's clock when its last byte had arrived."""

    kind: FrameType
    body: bytearray
    at: float


class Channel:
    """Frames to and from a box. `look` is called every 50 ms of waiting and may raise."""

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
        """Send a frame. Raises DeadlineError if the box does not take it, ClosedError."""
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
        """The next frame of the box. Raises ProtocolError, DeadlineError or ClosedError."""
        header = self._read(HEADER.size, deadline)
        kind, length = self._conversation.accept(bytes(header))
        body = self._read(length, deadline)
        return Frame(kind, body, time.perf_counter())

    def refuse_early(self) -> None:
        """Raise ProtocolError if bytes wait before it is the box's turn, ClosedError at its end."""
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
                # Without room for them, descriptors that come along are dropped by the kernel.
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
    """A memory file with the arrays that nobody can write to. The caller closes it."""
    import fcntl  # Only a box needs it, and a worker without boxes runs anywhere.

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
    """Types and shapes of arrays. Raises ValueError for one that cannot be sent."""
    return {name: ArraySpec(str(one.dtype), one.shape) for name, one in arrays.items()}
