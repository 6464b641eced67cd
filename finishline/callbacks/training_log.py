"""Open, feed and close the log of a training with callbacks."""

import atexit
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from finishline import log

if TYPE_CHECKING:
    from finishline.log.recorder import Recorder


class TrainingLog:
    """A run with the metric `quality` times `scale`. An open log ends as aborted at the exit."""

    def __init__(
        self, make: Callable[[], "Recorder"], *, quality: str, scale: float, stop_at_target: bool
    ) -> None:
        self._make, self._quality, self._scale = make, quality, scale
        self._stop_at_target = stop_at_target
        self._run = self._make()  # Refuses an unknown benchmark before anything is trained.
        self.is_open = False

    def open(self, *, writes: bool) -> None:
        """Open the log of a further training. This process writes it if `writes`."""
        self.close(RuntimeError("the training before did not end"))
        self._run = self._make()
        if not writes:
            self._run.leave_to_another_rank()
        self._run.__enter__()
        self.is_open = True
        atexit.register(self.close, RuntimeError("the program ended"))

    def start(self) -> None:
        self._run.start()

    def evaluate(self, metrics: Mapping[str, Any], *, epoch: float) -> bool:
        """Log an evaluation. Returns whether to stop. Raises ValueError without a metric."""
        if self._quality not in metrics:
            known = ", ".join(sorted(metrics)) or "none"
            raise ValueError(f"There is no metric {self._quality!r}; this training has: {known}.")
        quality = self._scale * float(metrics[self._quality])
        return self._run.evaluation(epoch=epoch, quality=quality) and self._stop_at_target

    def close(self, error: BaseException | None = None) -> None:
        """Stop the clock, where it runs. With an error the run is aborted."""
        if self.is_open:
            self.is_open = False
            atexit.unregister(self.close)
            self._run.__exit__(None if error is None else type(error), error, None)


class LoggedCallback:
    """Options of a callback, which keeps its log. Frameworks make their callbacks of it."""

    def __init__(
        self,
        benchmark: str,
        *,
        quality: str,
        seed: int,
        scale: float = 1.0,
        stop_at_target: bool = False,
        **options: Any,
    ) -> None:
        make = partial(log.run, benchmark, seed=seed, **options)
        self._log = TrainingLog(make, quality=quality, scale=scale, stop_at_target=stop_at_target)
