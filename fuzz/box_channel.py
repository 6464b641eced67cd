"""Any bytes as a box's side of its channel: each conversation ends in time, with a result.

`python -m fuzz.box_channel --minutes 10` holds conversations with the worker's side of a run, in
this process and with a thread in place of a box. Each is drawn from its number: right frames, some
of them changed, cut, repeated or left out, sent at once or in pieces, with descriptors or without,
read or not, then silence or the end. Exit code 1 after an exception, a conversation that went past
its deadlines, or one that left descriptors or memory. `--first 4711 --minutes 0` repeats one.
"""

import argparse
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from worker.sandbox import race as race_module
from worker.sandbox.course import Course
from worker.sandbox.inside.runner import MAGIC, FrameType
from worker.sandbox.order import BoxUnavailableError, Order
from worker.sandbox.protocol import ArraySpec, Limits, header_of
from worker.sandbox.race import race
from worker.sandbox.usage import Usage

LIMITS = Limits(
    hello_seconds=0.1,
    prepare_seconds=0.03,
    silence_seconds=0.1,
    run_seconds=0.2,
    max_evaluations=3,
)
DEADLINE_SECONDS = 0.1 + 3 * 0.03 + 0.2
# A busy machine may not run this process for as long; a conversation without a deadline never ends.
LATE_SECONDS = 2.0
# More than a socket holds, so that a box that does not read is seen.
INPUT_BYTES = 512 << 10
GROWTH_BYTES = 16 << 20
HELLO = b'{"protocol": 1}'
RIGHT = [
    (FrameType.HELLO, HELLO),
    (FrameType.READY, b""),
    (FrameType.ASK, b""),
    (FrameType.PREDICTIONS, bytes(64)),
    (FrameType.ASK, b""),
    (FrameType.PREDICTIONS, bytes(range(64))),
    (FrameType.DONE, b""),
]
COURSE = Course(
    task={"benchmark": "fuzz", "factors": {}},
    train={"x": np.zeros(64, dtype=np.uint8)},
    inputs={"x": np.zeros(INPUT_BYTES, dtype=np.uint8)},
    prediction=ArraySpec("uint8", (64,)),
    score=lambda predictions: (float(predictions[1]), 0.0),
    target=1.0,
)


class FakeBox:
    """A thread in place of a box; the order's module is the number of the conversation."""

    pid = 0
    log_is_full = False

    def __init__(self, order: Order) -> None:
        self.limits = order.limits
        self.started_at = time.perf_counter()
        self.socket, self._inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=speak, args=(self._inside, int(order.module)))
        self._thread.start()

    def __enter__(self) -> "FakeBox":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def stop(self) -> None:
        """End the conversation."""
        with suppress(OSError):
            self._inside.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End the conversation and free its descriptors."""
        self.stop()
        self._thread.join()
        self._inside.close()
        self.socket.close()

    def exit_status(self, *, wait_seconds: float) -> int:
        """An exit status that no runner gives."""
        return 1

    def killed_by(self) -> None:
        """Nothing: its runner ended by itself."""

    def usage(self) -> Usage:
        """Nothing: no process is counted."""
        return Usage()

    def why_not_started(self) -> str:
        """The reason of an end before hello."""
        return "a box did not start"

    def log_tail(self) -> str:
        """An empty log."""
        return ""


def draw_parts(drawn: random.Random) -> Iterator[bytes]:
    """The bytes of a conversation, in the pieces in which they are sent; none: wait for go."""
    frames = list(RIGHT)
    for _ in range(drawn.randrange(3)):
        at = drawn.randrange(len(frames))
        change = drawn.randrange(4)
        if change == 0:
            del frames[at]
        elif change == 1:
            frames.insert(at, drawn.choice(RIGHT))
        elif change == 2:
            frames[at] = (drawn.choice(list(FrameType)), frames[at][1])
        elif drawn.random() < 0.2:
            frames[at] = (frames[at][0], b"[" * 4000)
        else:
            frames[at] = (frames[at][0], drawn.randbytes(drawn.choice((0, 1, 63, 65, 5000))))
    for number, (kind, body) in enumerate(frames):
        length = drawn.choice((0, 2**31, 2**62, 2**64 - 1)) if drawn.random() < 0.03 else len(body)
        sequence = drawn.randrange(2**32) if drawn.random() < 0.03 else number
        sent = bytearray(header_of(kind, sequence, length) + body)
        if drawn.random() < 0.1:
            sent[drawn.randrange(len(sent))] = drawn.randrange(256)
        if drawn.random() < 0.05:
            del sent[drawn.randrange(len(sent)) :]
        if drawn.random() < 0.1:
            sent += drawn.randbytes(drawn.randrange(40))
        while sent:
            size = len(sent) if drawn.random() < 0.8 else drawn.randrange(1, len(sent) + 1)
            yield bytes(sent[:size])
            del sent[:size]
        if kind is FrameType.READY:
            yield b""


def speak(end: socket.socket, number: int) -> None:
    """Play the box of a conversation: send, read at times, and be silent or end."""
    drawn = random.Random(number)  # noqa: S311  (so that a number repeats it)
    with suppress(OSError):
        for part in draw_parts(drawn):
            if not part:
                wait_for_go(end)
                continue
            if drawn.random() < 0.02:
                time.sleep(drawn.uniform(0, 0.02))
            if drawn.random() < 0.05:
                socket.send_fds(end, [part], [end.fileno()] * drawn.randrange(1, 4))
            else:
                end.sendall(part)
    with suppress(OSError):
        if drawn.random() < 0.9:
            end.shutdown(socket.SHUT_WR)
        while drawn.random() < 0.99 and end.recv(1 << 20):
            pass


def wait_for_go(end: socket.socket) -> None:
    """Read up to the frame that starts the clock, or to the end of the conversation."""
    heard = b""
    while MAGIC + bytes([FrameType.GO]) not in heard and (part := end.recv(1 << 20)):
        heard += part


def converse(number: int) -> tuple[str, float]:
    """The end of a conversation, and the seconds that it took."""
    began = time.perf_counter()
    try:
        result = race(Order(Path(), str(number), {}, limits=LIMITS), COURSE, seed=0)
        end = result.code or result.status
    except BoxUnavailableError:
        end = "box_unavailable"
    return end, time.perf_counter() - began


def main() -> int:
    """Hold conversations until the time is over; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first conversation")
    given = parser.parse_args()
    setattr(race_module, "Box", FakeBox)  # noqa: B010  (the name is another module's)
    for number in range(50):
        converse(number)
    process = psutil.Process()
    memory, descriptors = process.memory_info().rss, process.num_fds()
    ends: dict[str, int] = {}
    crashes, hangs, slowest = 0, 0, 0.0
    give_up_at, number = time.monotonic() + 60 * given.minutes, given.first
    while number == given.first or time.monotonic() < give_up_at:
        try:
            end, seconds = converse(number)
        except Exception as error:  # noqa: BLE001  (a crash is what is looked for)
            crashes += 1
            print(f"conversation {number}: {error!r}", flush=True)
        else:
            ends[end] = ends.get(end, 0) + 1
            slowest = max(slowest, seconds)
            if seconds > DEADLINE_SECONDS + LATE_SECONDS:
                hangs += 1
                print(f"conversation {number} took {seconds:.2f} s", flush=True)
        number += 1
    grown = process.memory_info().rss - memory
    left = process.num_fds() - descriptors
    print(f"{number - given.first} conversations: {crashes} crashes, {hangs} hangs")
    print(f"slowest {slowest:.2f} s, memory {grown / 2**20:+.1f} MiB, descriptors {left:+d}")
    print(", ".join(f"{end} {count}" for end, count in sorted(ends.items())))
    return int(bool(crashes or hangs or left or grown > GROWTH_BYTES))


if __name__ == "__main__":
    sys.exit(main())
