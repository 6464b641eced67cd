"""A task as a run meets it: its course, the evaluations, the result, and a thread that scores."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal

from finishline.rules.run import Ledger
from worker.sandbox.channel import Array, specs_of
from worker.sandbox.protocol import ArraySpec

POLL_SECONDS = 0.05
RaceStatus = Literal["reached", "not_reached", "failed", "cancelled"]


@dataclass(frozen=True)
class Course:
    """A task as a box meets it: public facts, the data of this run, and a way to score.

    `score` takes predictions as bytes and returns the quality on each half. Labels stay in it. It
    runs in a thread beside the clock, which it delays if it computes long without leaving Python.
    `task` has names that `prepare` gets beside shapes and prediction. With a budget the run ends
    after so many seconds, whatever its quality.
    """

    task: Mapping[str, Any]
    train: Mapping[str, Array]
    inputs: Mapping[str, Array]
    prediction: ArraySpec
    score: Callable[[bytes], tuple[float, float]]
    target: float
    lower_is_better: bool = False
    budget_seconds: float | None = None

    def is_reached(self, quality: float) -> bool:
        """Whether a quality is at the target or better, which ends a run without a budget."""
        if self.budget_seconds is not None:
            return False
        return quality <= self.target if self.lower_is_better else quality >= self.target


@dataclass(frozen=True)
class Ask:
    """An evaluation: seconds on the entry clock, the quality on both halves, the predictions."""

    number: int
    seconds: float
    quality: float
    second_half: float
    ledger: Ledger
    predictions_sha256: str = ""


@dataclass(frozen=True)
class RaceResult:
    """A run in a box. `code` names a failure. `seconds` is the time to the target.

    `processor_share` is the part of the time on the clock, up to one of its last asks, in which its
    threads that were ready to run had a processor.
    """

    status: RaceStatus
    asks: tuple[Ask, ...]
    ledger: Ledger
    seconds: float | None = None
    code: str | None = None
    message: str | None = None
    log_tail: str = ""
    peak_bytes: int = 0
    processor_share: float | None = None


def public_task(course: Course) -> dict[str, Any]:
    """The facts that a package's `prepare` gets, all known before anything is drawn."""
    return {
        **course.task,
        "shapes": {name: list(one.shape) for name, one in specs_of(course.train).items()},
        "dtypes": {name: one.dtype for name, one in specs_of(course.train).items()},
        "inputs": {
            name: [one.dtype, list(one.shape)] for name, one in specs_of(course.inputs).items()
        },
        "prediction": [course.prediction.dtype, list(course.prediction.shape)],
        "target": course.target,
        "budget_seconds": course.budget_seconds,
    }


class Scorer:
    """Scores in the order in which they are put. Use it as a context.

    A score returns whether it ends the run. Then, or after an error, later scores are dropped and
    `ended` is called once.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._over = False
        self._scores: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="box-score")

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._pool.shutdown()

    def put(self, score: Callable[[], bool]) -> None:
        """Score later, after those before it."""
        self._scores.append(self._pool.submit(self._run, score))

    def finish(self, *, stop: Callable[[], bool]) -> None:
        """Wait for the open scores. `stop` drops those not begun. Raises a score's error."""
        while wait(self._scores, POLL_SECONDS).not_done:
            self._over = self._over or stop()
        for each in self._scores:
            each.result()

    def _run(self, score: Callable[[], bool]) -> None:
        if self._over:
            return
        try:
            self._over = score()
        except BaseException:
            self._over = True
            raise
        finally:
            if self._over:
                self._ended()
