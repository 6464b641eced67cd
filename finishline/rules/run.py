"""One training run from any log format, the seconds that count, and its stored curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Literal


class Phase(StrEnum):
    """Phases that a run's seconds are spent in."""

    INIT = "init"
    COMPILE = "compile"
    WARMUP = "warmup"
    DATA = "data"
    TRAIN = "train"
    EVAL = "eval"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"


@dataclass(frozen=True)
class Ledger:
    """Seconds in each phase, from the start of the process to one moment of the run."""

    init: float = 0.0
    compile: float = 0.0
    warmup: float = 0.0
    data: float = 0.0
    train: float = 0.0
    eval: float = 0.0
    checkpoint: float = 0.0
    idle: float = 0.0

    def total(self) -> float:
        return float(sum(vars(self).values()))

    def plus(self, phase: Phase, seconds: float) -> "Ledger":
        return replace(self, **{phase.value: getattr(self, phase.value) + seconds})


@dataclass(frozen=True)
class Evaluation:
    """One quality measurement in a run.

    `seconds` counts on the run's clock. `quality` is in the unit of the benchmark's metric, never
    rescaled. `ledger` is None where the log omits it. `line` is the 1-based line in the log.
    `others` has the qualities in further metrics of the same moment, by their names in the log.
    """

    epoch: float | None
    seconds: float
    quality: float
    samples: int | None = None
    ledger: Ledger | None = None
    line: int | None = None
    others: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Run:
    """One training from its start to its target, or to its end.

    `clock` names the clock of `Evaluation.seconds` and `stop_seconds`. `status` is the word of the
    log ("success", "aborted" ...). `preparation_seconds` are the seconds before its start. An
    MLPerf log may have them without a ledger, which takes the times of its evaluations too. `seeds`
    has the seeds of all ranks. `processor_share` (0 to 1) is the training's share of its processor.
    `start_ms` is the time of run_start in milliseconds since 1970, on line `start_line`. Each of
    them is None where the log omits it.
    """

    name: str
    clock: str
    evaluations: tuple[Evaluation, ...]
    status: str | None = None
    stop_seconds: float | None = None
    seed: int | None = None
    seeds: tuple[int, ...] = ()
    batch_size: int | None = None
    benchmark: str | None = None
    division: str | None = None
    organisation: str | None = None
    platform: str | None = None
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    ledger: Ledger | None = None
    preparation_seconds: float | None = None
    processor_share: float | None = None
    start_ms: float | None = field(default=None, compare=False)
    start_line: int | None = field(default=None, compare=False)


ClockName = Literal["dawnbench", "mlperf", "speedrun"]
INIT_ALLOWANCE_SECONDS = {"closed": 30 * 60.0, "open": 4 * 3600.0}


@dataclass(frozen=True)
class Clock:
    """A rule that says which phases of a ledger are on the clock."""

    name: str

    def seconds(self, ledger: Ledger, *, division: str) -> float:
        """Return the seconds of the ledger on this clock.

        dawnbench: everything but evaluation. mlperf: everything after initialisation, compilation
        and warm-up, of which the first 30 minutes (closed) or 4 hours (open) are free and the
        excess counts. speedrun: as mlperf without any preparation, and the clock pauses at
        evaluations.
        Source: dawn-bench-entries README. MLPerf training_rules.adoc, "Training". Modded-nanogpt.
        """
        prepare = ledger.init + ledger.compile + ledger.warmup
        work = ledger.data + ledger.train
        beside = ledger.checkpoint + ledger.idle
        if self.name == "dawnbench":
            return prepare + work + beside
        if self.name == "mlperf":
            excess = max(0.0, prepare - INIT_ALLOWANCE_SECONDS[division])
            return excess + work + ledger.eval + beside
        return work + beside


CurveRow = Sequence[Any]
EPOCH, SECONDS, QUALITY, SAMPLES, LEDGER, OTHERS = range(6)
PHASES = tuple(field.name for field in fields(Ledger))


def curve_row(evaluation: Evaluation) -> list[Any]:
    """Write a row: epoch, seconds, quality, samples, then ledger and other metrics if present."""
    row: list[Any] = [evaluation.epoch, evaluation.seconds, evaluation.quality, evaluation.samples]
    if evaluation.ledger is not None:
        took = vars(evaluation.ledger)
        row.append({phase: took[phase] for phase in PHASES if took[phase]})
    if evaluation.others:
        row += [None] * (OTHERS - len(row)) + [dict(evaluation.others)]
    return row


def ledger_of(row: CurveRow) -> Ledger | None:
    """Return the ledger at an evaluation, if the log has it. A row may end before it."""
    return Ledger(**row[LEDGER]) if len(row) > LEDGER and row[LEDGER] is not None else None


def evaluation_of(row: CurveRow) -> Evaluation:
    """Rebuild the evaluation of a stored row."""
    return Evaluation(
        epoch=row[EPOCH],
        seconds=row[SECONDS],
        quality=row[QUALITY],
        samples=row[SAMPLES],
        ledger=ledger_of(row),
        others=row[OTHERS] if len(row) > OTHERS else None,
    )
