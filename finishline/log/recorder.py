"""Write the log of one training while it runs."""

import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, BinaryIO, Self

from annotated_types import Ge, Le

from finishline.definitions import find_definition
from finishline.log.folder import Submission, next_log, read_claim, renew_submission
from finishline.profiles import chosen_server
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs.lines import mllog_line
from finishline.rules.logs.mllog import COUNTED_KEYS
from finishline.rules.logs.mllog_values import COUNTS, MAX_COUNT, PROCESSOR_SHARE
from finishline.rules.run import Evaluation
from finishline.rules.scoring.tta import place_at_target
from finishline.rules.submissions.claim import MAX_SEED, read_settings
from finishline.rules.table import Text, read_table
from finishline.rules.text import shown

LOGGER = logging.getLogger("finishline.log")
# Names the division of each run of `finishline run`.
DIVISION_VARIABLE = "FINISHLINE_DIVISION"
CLOSED_BY_DEFAULT = (
    "%s is logged in the closed division, because no division was named: that says you train as "
    "the reference does, and a replay compares your epochs with its. For a network, optimiser or "
    'schedule of your own pass division="open".'
)
# All runs of a process share this folder by default.
RUNS_OF_THIS_PROCESS = Path("runs") / time.strftime("%Y%m%d-%H%M%S")


FILE = "finishline.log.run"  # Errors name the arguments by it.


@dataclass(frozen=True)
class Asked:
    """Plain arguments of `finishline.log.run`."""

    division: Text
    seed: Annotated[int, Ge(0), Le(MAX_SEED)]
    model: Text | None = None
    framework: Text | None = None


def run(
    benchmark: str,
    *,
    seed: int,
    division: str | None = None,
    hyperparameters: Mapping[str, float] = MappingProxyType({}),
    model: str | None = None,
    framework: str | None = None,
    out: str | PathLike[str] | None = None,
) -> "Recorder":
    """Return the log of one training, for a `with`. It writes run_N.log and renews submission.json.

    The division is "closed" for the reference's training, "open" for any other. None takes the
    division of `finishline run`, else the benchmark's first, and warns on standard error. The log
    goes to `out`, else to FINISHLINE_OUT, else to runs/TIME. Only RANK 0 writes. Raises RuleError
    for an unknown benchmark, with near names, and for settings that the division forbids.
    """
    given = os.environ.get("FINISHLINE_BENCHMARKS_DIR")
    definition = find_definition(benchmark, Path(given) if given else None, chosen_server())
    named = division or os.environ.get(DIVISION_VARIABLE) or None
    division = named or definition.divisions[0]
    asked = {"division": division, "seed": seed, "model": model, "framework": framework}
    read_table(Asked, asked, file=FILE)
    if division not in definition.divisions:
        expected = " or ".join(definition.divisions)
        raise RuleError(f"got {shown(division)}", file=FILE, field="division", expected=expected)
    for name, value in read_settings(hyperparameters, definition, division, file=FILE).items():
        wrong = partial(RuleError, file=FILE, field=f"hyperparameters.{name}")
        if name in COUNTED_KEYS or name == PROCESSOR_SHARE:
            raise wrong("a key of the log itself", expected="another name")
        if name == "batch_size" and not 1 <= value <= MAX_SEED:
            raise wrong(f"got {value:g}", expected="at least 1")
    if definition.target.also:
        expected = "its log by MLCommons' mllog, which finishline check reads"
        raise RuleError(f"{benchmark} is judged by several metrics", expected=expected)
    submission = Submission(
        benchmark=definition,
        division=division,
        hyperparameters=dict(hyperparameters),
        model=model,
        framework=framework,
    )
    folder = Path(out or os.environ.get("FINISHLINE_OUT") or RUNS_OF_THIS_PROCESS)
    writes = os.environ.get("RANK", "0") == "0"
    is_guess = named is None and division == "closed" and len(definition.divisions) > 1
    return Recorder(
        submission, seed=seed, folder=folder if writes else None, warns_of_division=is_guess
    )


@cache
def warn_of_division(benchmark_id: str) -> None:
    LOGGER.warning(CLOSED_BY_DEFAULT, benchmark_id)


class Recorder:
    """A training's log, written line by line. `file` is its path, if this rank writes.

    The clock starts at `start`, or where the `with` was entered if `start` is never called, and
    stops at its end. The run is a success if it reached the target and ended by itself.
    """

    def __init__(
        self,
        submission: Submission,
        *,
        seed: int,
        folder: Path | None,
        warns_of_division: bool = False,
    ) -> None:
        self.file: Path | None = None
        self._submission = submission
        self._seed = seed
        self._folder = folder
        self._warns_of_division = warns_of_division
        self._log: BinaryIO | None = None
        self._is_open = self._is_started = False
        self._entered_ms = self._entered_at = 0.0
        self._started_ms = 0.0
        self._evaluations: list[Evaluation] = []

    @property
    def benchmark(self) -> Benchmark:
        """Return the definition. Qualities are compared with its `target`."""
        return self._submission.benchmark

    @property
    def reached(self) -> bool:
        """Whether the target, or the end of the budget, is reached by the benchmark's rule."""
        budget = self.benchmark.reach.budget_seconds
        if budget is not None:
            return any(each.seconds >= budget for each in self._evaluations)
        at_target = self.benchmark.target.reached_at(self._evaluations)
        return place_at_target(at_target, self.benchmark.reach) is not None

    def __enter__(self) -> Self:
        if self._is_open or self._entered_ms:
            raise RuntimeError("A run is logged once; make another with finishline.log.run.")
        if self._folder is not None:
            read_claim(self._folder, self._submission)  # Raises ClaimError for another one.
            self._log = next_log(self._folder)
            self.file = Path(self._log.name)
            if self._warns_of_division:
                warn_of_division(self.benchmark.benchmark_id)
        self._entered_ms = time.time_ns() / 1e6
        self._entered_at = time.perf_counter()
        self._is_open = True
        self._write("init_start", kind="INTERVAL_START", at=self._entered_ms)
        self._write("submission_benchmark", self.benchmark.log_names[0], at=self._entered_ms)
        self._write("submission_division", self._submission.division, at=self._entered_ms)
        self._write("seed", self._seed, at=self._entered_ms)
        for name, value in self._submission.hyperparameters.items():
            number = value if abs(value) <= MAX_SEED else float(value)
            self._write(name, number, at=self._entered_ms)
            if name == "batch_size" and float(value).is_integer():
                self._write("global_batch_size", int(value), at=self._entered_ms)
        return self

    def leave_to_another_rank(self) -> None:
        """Leave the writing to another process. Call it before the `with` is entered."""
        self._folder = None

    def start(self) -> None:
        """Start the clock once, after loading and warm-up and before the first evaluation."""
        self._require_open()
        if self._is_started:
            raise RuntimeError("The clock runs already; call run.start() once, before evaluations.")
        self._start(self._now_ms())

    def evaluation(self, *, epoch: float, quality: float) -> bool:
        """Log an evaluation, in the unit of the benchmark. Returns whether the target is reached.

        `epoch` counts passes over the training data so far. Raises ValueError for a quality outside
        the metric's range, and for an epoch below 0.
        """
        self._require_open()
        now_ms, target = self._now_ms(), self.benchmark.target
        quality = _finite("quality", quality)
        if not target.is_possible(quality):
            raise ValueError(f"quality is {quality:g}; expected {target.possible_in_words}")
        metadata = {"epoch_num": _finite("epoch", epoch)}
        if not 0 <= metadata["epoch_num"] <= MAX_COUNT:
            raise ValueError(f"epoch is {epoch:g}; expected {COUNTS}")
        if not self._is_started:
            self._start(self._entered_ms)
        # A clock that leaves evaluations out needs their length. The length is unknown, so all the
        # time counts as training.
        apart = self.benchmark.clock.name != "mlperf"
        if apart:
            self._write("eval_start", kind="INTERVAL_START", at=now_ms, metadata=metadata)
        self._write("eval_accuracy", quality, at=now_ms, metadata=metadata)
        if apart:
            self._write("eval_stop", kind="INTERVAL_END", at=now_ms, metadata=metadata)
        seconds = (now_ms - self._started_ms) / 1000
        self._evaluations.append(Evaluation(metadata["epoch_num"], seconds, quality))
        return self.reached

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        now_ms = self._now_ms()
        if not self._is_started:
            self._start(self._entered_ms)
        status = "success" if kind is None and self.reached else "aborted"
        self._write("run_stop", kind="INTERVAL_END", at=now_ms, metadata={"status": status})
        self._is_open = False
        if self._log is not None and self._folder is not None:
            self._log.close()
            renew_submission(self._folder, self._submission)

    def _start(self, at_ms: float) -> None:
        self._is_started, self._started_ms = True, at_ms
        self._write("init_stop", kind="INTERVAL_END", at=at_ms)
        self._write("run_start", kind="INTERVAL_START", at=at_ms)

    def _require_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("The log is not open; use `with finishline.log.run(...) as run:`.")

    def _now_ms(self) -> float:
        """Return milliseconds since 1970, by a clock that only moves forward."""
        return self._entered_ms + (time.perf_counter() - self._entered_at) * 1000

    def _write(
        self,
        key: str,
        value: Any = None,
        *,
        at: float,
        kind: str = "POINT_IN_TIME",
        metadata: Mapping[str, str | float] | None = None,
    ) -> None:
        """Hand a line to the system at once: it outlives this process."""
        if self._log is not None:
            self._log.write(mllog_line(key, value, time_ms=at, kind=kind, metadata=metadata))


def _finite(name: str, value: float) -> float:
    number = float(value)  # Also of a tensor with one element.
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; expected a finite number")
    return number
