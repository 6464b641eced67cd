"""The protocol between a worker and a training in a sandbox: frames, states and limits.

Predictions come out of the sandbox, and quality stays outside. Each direction counts its own frames
from 0. A header has 17 bytes, little endian: `FLE1`, type (u8), sequence (u32), length of the body
(u64). The constants are in inside/runner.py, because our packages can't be imported in a sandbox.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from finishline.rules.benchmarks.definition_tables import TrainingPolicy
from finishline.rules.verification.messages import TrainingGrant
from worker.sandbox.inside.runner import ALIGNMENT, HEADER, ITEM_BYTES, MAGIC, FrameType

VERSION = 1
HELLO_LIMIT_BYTES = 4096
# Inputs above this go as a sealed memory file, smaller ones in the frame.
INLINE_LIMIT_BYTES = 1 << 20
# Of predictions: a class per item, or numbers such as logits.
PREDICTION_TYPES = ("uint8", "uint16", "float32")


class State(StrEnum):
    """The next step of a conversation, seen from the worker."""

    SPAWNED = "spawned"  # hello comes next
    PREPARING = "preparing"  # ready comes next
    TRAINING = "training"  # ask or done comes next
    ASKED = "asked"  # predictions come next


class ProtocolError(Exception):
    """A frame breaks the protocol. The sandbox is killed, and the submitter pays."""


@dataclass(frozen=True)
class ArraySpec:
    """Type and shape of an array in C order."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"dtype {self.dtype!r}; expected one of {', '.join(ITEM_BYTES)}")
        if not self.shape or any(type(size) is not int or size < 1 for size in self.shape):
            raise ValueError(f"shape {list(self.shape)}; expected whole dimensions of at least 1")

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


Specs = Mapping[str, ArraySpec]


def offsets(specs: Specs) -> dict[str, int]:
    """Return where each array begins in a memory file, in order and aligned to 64 bytes."""
    found, at = {}, 0
    for name, spec in specs.items():
        found[name] = at
        at += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return found


def size_of(specs: Specs) -> int:
    """Return the bytes of a memory file that holds the arrays."""
    return sum(-(-spec.nbytes // ALIGNMENT) * ALIGNMENT for spec in specs.values())


@dataclass(frozen=True)
class Limits:
    """Limits of a training in a sandbox. Seconds are by the worker's clock."""

    prepare_seconds: float = 120.0  # processor seconds, three times as many by the clock
    run_seconds: float = 3600.0
    silence_seconds: float = 300.0
    hello_seconds: float = 120.0
    max_evaluations: int = 20
    memory_bytes: int = 3 << 30
    processes: int = 64
    open_files: int = 256
    file_bytes: int = 256 << 20
    scratch_bytes: int = 256 << 20
    shared_memory_bytes: int = 64 << 20
    log_tail_bytes: int = 4_000
    log_bytes: int = 1 << 20
    cpu_factor: float = 5.0
    threads: int = 1

    @classmethod
    def of_submission(
        cls, stated: TrainingPolicy | TrainingGrant, *, run_seconds: float
    ) -> "Limits":
        """Return the limits that a benchmark states for code submissions."""
        return cls(
            prepare_seconds=stated.prepare_seconds,
            run_seconds=run_seconds,
            silence_seconds=min(cls.silence_seconds, run_seconds),
            max_evaluations=stated.max_evaluations,
            memory_bytes=stated.memory_mib << 20,
            threads=stated.threads,
        )

    @property
    def prepare_clock_seconds(self) -> float:
        """Allow three times as much by the clock, for a busy machine."""
        return 3 * self.prepare_seconds

    @property
    def cpu_seconds(self) -> int:
        """Return the processor seconds that the whole sandbox may use."""
        return int(self.cpu_factor * (self.run_seconds + self.prepare_seconds) * self.threads) + 60


# Frames that the sandbox may send in each state, with the next state.
_ALLOWED: dict[State, dict[FrameType, State | None]] = {
    State.SPAWNED: {FrameType.HELLO: State.PREPARING},
    State.PREPARING: {FrameType.READY: State.TRAINING},
    State.TRAINING: {FrameType.ASK: State.ASKED, FrameType.DONE: None},
    State.ASKED: {FrameType.PREDICTIONS: State.TRAINING},
}


class Conversation:
    """Checks types, sequence and lengths of a sandbox's frames. `state` is None at the end."""

    def __init__(self, prediction_bytes: int, *, max_evaluations: int) -> None:
        self.state: State | None = State.SPAWNED
        self.asks = 0
        self._prediction_bytes = prediction_bytes
        self._most = max_evaluations
        self._sequence = 0

    def accept(self, header: bytes) -> tuple[FrameType, int]:
        """Return type and length of a frame, before memory is allocated. Raises ProtocolError."""
        magic, number, sequence, length = HEADER.unpack(header)
        if magic != MAGIC:
            raise ProtocolError("a frame does not begin with FLE1")
        if self.state is None:
            raise ProtocolError("a frame came after the end")
        try:
            kind = FrameType(number)
            following = _ALLOWED[self.state][kind]
        except (ValueError, KeyError):
            expected = " or ".join(kind.name.lower() for kind in _ALLOWED[self.state])
            raise ProtocolError(f"a frame of type {number} came; expected {expected}") from None
        if sequence != self._sequence:
            raise ProtocolError(f"frame {sequence} came; expected frame {self._sequence}")
        self._check_length(kind, length)
        if kind is FrameType.ASK:
            if self.asks == self._most:
                raise ProtocolError(f"more than {self._most} evaluations were asked for")
            self.asks += 1
        self._sequence += 1
        self.state = following
        return kind, length

    def _check_length(self, kind: FrameType, length: int) -> None:
        if kind is FrameType.HELLO:
            if not 2 <= length <= HELLO_LIMIT_BYTES:
                raise ProtocolError(f"hello has {length} bytes; expected 2 to {HELLO_LIMIT_BYTES}")
            return
        expected = self._prediction_bytes if kind is FrameType.PREDICTIONS else 0
        if length != expected:
            raise ProtocolError(f"{kind.name.lower()} has {length} bytes; expected {expected}")


# A task's sandbox has 1 GiB, and packing a draw makes two more copies of its arrays.
MOST_DRAWN_BYTES = 384 << 20
_MOST_OF_TASKS = {
    FrameType.HELLO: HELLO_LIMIT_BYTES,
    FrameType.DRAWN: MOST_DRAWN_BYTES,
    FrameType.SCORED: HELLO_LIMIT_BYTES,
}


class TaskConversation:
    """Checks the frames of a task: hello, then one answer to each draw, control and score.

    Set `expected`, the type of the next frame, before you send a request.
    """

    def __init__(self) -> None:
        self.expected = FrameType.HELLO
        self._sequence = 0

    def accept(self, header: bytes) -> tuple[FrameType, int]:
        """Return type and length of a frame. Raises ProtocolError."""
        magic, number, sequence, length = HEADER.unpack(header)
        if (magic, number, sequence) != (MAGIC, self.expected, self._sequence):
            raise ProtocolError(f"no frame of type {self.expected.name.lower()} came")
        most = _MOST_OF_TASKS[self.expected]
        if length > most:
            name = self.expected.name.lower()
            raise ProtocolError(f"{name} has {length} bytes; expected at most {most}")
        self._sequence += 1
        return self.expected, length


def header_of(kind: FrameType, sequence: int, length: int) -> bytes:
    return HEADER.pack(MAGIC, kind, sequence, length)
