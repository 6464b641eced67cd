"""Score predictions in a thread of its own: a slow score never delays the clock's next stamp."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

POLL_SECONDS = 0.05


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
        """Wait for the open scores; `stop` drops those not begun. Raises a score's error."""
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
