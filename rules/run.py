"""One training run as every log format parses into it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum


class Phase(StrEnum):
    """What a run does with its seconds."""

    INIT = "init"
    COMPILE = "compile"
    WARMUP = "warmup"
    DATA = "data"
    TRAIN = "train"
    EVAL = "eval"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"


@dataclass(frozen=True, init=False)
class Ledger:
    """Seconds spent in each phase, from the start of the process to one moment of the run."""

    init: float = 0.0
    compile: float = 0.0
    warmup: float = 0.0
    data: float = 0.0
    train: float = 0.0
    eval: float = 0.0
    checkpoint: float = 0.0
    idle: float = 0.0

    def __init__(
        self,
        init: float = 0.0,
        compile: float = 0.0,  # noqa: A002 - the name of a phase
        warmup: float = 0.0,
        data: float = 0.0,
        train: float = 0.0,
        eval: float = 0.0,  # noqa: A002 - the name of a phase
        checkpoint: float = 0.0,
        idle: float = 0.0,
    ) -> None:
        # A log has a ledger for each evaluation, and to set the fields one by one as a frozen
        # dataclass does takes twice as long.
        vars(self).update(
            init=init,
            compile=compile,
            warmup=warmup,
            data=data,
            train=train,
            eval=eval,
            checkpoint=checkpoint,
            idle=idle,
        )

    def total(self) -> float:
        """All seconds in the ledger."""
        return float(sum(getattr(self, f.name) for f in fields(self)))

    def plus(self, phase: Phase, seconds: float) -> "Ledger":
        """This ledger with `seconds` more in `phase`."""
        amounts = {f.name: getattr(self, f.name) for f in fields(self)}
        amounts[phase.value] += seconds
        return Ledger(**amounts)


@dataclass(frozen=True, init=False)
class Evaluation:
    """One quality measurement in a run.

    `seconds` counts on the clock of the run it belongs to; `quality` is in the unit of the
    benchmark's metric and never rescaled; `ledger` is the ledger at this moment, None where the
    log does not tell; `line` is the 1-based line of the log it was read from. `others` has the
    qualities in further metrics of the same moment, by what the log calls them.
    """

    epoch: float | None
    seconds: float
    quality: float
    samples: int | None = None
    ledger: Ledger | None = None
    line: int | None = None
    others: Mapping[str, float] | None = None

    def __init__(
        self,
        epoch: float | None,
        seconds: float,
        quality: float,
        samples: int | None = None,
        ledger: Ledger | None = None,
        line: int | None = None,
        others: Mapping[str, float] | None = None,
    ) -> None:
        # All at once, as in a ledger.
        vars(self).update(
            epoch=epoch,
            seconds=seconds,
            quality=quality,
            samples=samples,
            ledger=ledger,
            line=line,
            others=others,
        )


@dataclass(frozen=True)
class Run:
    """One training from its start to its target, or to where it gave up.

    `clock` names the clock that `Evaluation.seconds` and `stop_seconds` count on. `status` is the
    log's own word ("success", "aborted" ...), None where the format has none. `stop_seconds` is
    when the run stopped, None where the format does not tell. `preparation_seconds` is what came
    before its start, None where the log does not tell when preparing began; an MLPerf log may tell
    it and no ledger, which takes the times of its evaluations too. `started_ms` is the moment of
    the start in milliseconds since 1970, None where the format does not tell. `processor_share` is
    the share of its processor that the training had, from 0 to 1, where the log tells it.
    """

    name: str
    clock: str
    evaluations: tuple[Evaluation, ...]
    status: str | None = None
    stop_seconds: float | None = None
    seed: int | None = None
    batch_size: int | None = None
    benchmark: str | None = None
    division: str | None = None
    organisation: str | None = None
    platform: str | None = None
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    ledger: Ledger | None = None
    preparation_seconds: float | None = None
    started_ms: float | None = None
    processor_share: float | None = None
