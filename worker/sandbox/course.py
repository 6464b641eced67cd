"""One run in a sandbox: its course, evaluations and result. And its scorer."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal

from finishline.rules.run import Ledger
from worker.sandbox.channel import Array, listed, specs_of
from worker.sandbox.protocol import ArraySpec

POLL_SECONDS = 0.05
RaceStatus = Literal["reached", "not_reached", "failed", "cancelled"]


@dataclass(frozen=True)
class Course:
    """The data of one run, public facts for `prepare`, and a way to score.

    `score` takes predictions as bytes and returns the quality on each half. It keeps the labels. It
    runs in a second thread, and holding the GIL for long would delay the clock. With a budget the
    run ends after that many seconds at any quality.
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
        """Say whether a quality ends the run: at the target or better, without a budget."""
        if self.budget_seconds is not None:
            return False
        return quality <= self.target if self.lower_is_better else quality >= self.target


@dataclass(frozen=True)
class Ask:
    """One evaluation, with seconds since the clock started."""

    number: int
    seconds: float
    quality: float
    second_half: float
    ledger: Ledger
    predictions_sha256: str = ""


@dataclass(frozen=True)
class RaceResult:
    """A run in a sandbox. `code` names a failure. `seconds` is the time to the target.

    `processor_share` is the time in which ready threads had a processor, divided by the time in
    which they were ready. It ends at one of the last asks.
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
    """Return the facts for `prepare`, known before the draw."""
    train = specs_of(course.train)
    return {
        **course.task,
        "shapes": {name: list(one.shape) for name, one in train.items()},
        "dtypes": {name: one.dtype for name, one in train.items()},
        "inputs": listed(course.inputs),
        "prediction": [course.prediction.dtype, list(course.prediction.shape)],
        "target": course.target,
        "budget_seconds": course.budget_seconds,
    }


class Scorer:
    """Scores in order, in its own thread. Use it as a context.

    A score returns whether it ends the run. After such a score or an error, later scores are
    dropped and `ended` is called once.
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
        self._scores.append(self._pool.submit(self._run, score))

    def finish(self, *, stop: Callable[[], bool]) -> None:
        """Wait for the open scores. `stop` drops the waiting ones. Raises a score's error."""
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
