"""Time this process spends exchanging gradients, where several train one model.

`World.average_gradients` waits for every exchange, so all of them are timed: on a processor by the
clock, which costs three microseconds beside a step of milliseconds, on an accelerator by
two events in the stream that computes. Events block no one; they are read when the device has been
synchronised, at the next edge of the clock.

torch's DistributedDataParallel exchanges while it still computes. Its own statistics of sampled
steps tell how long the exchange took and how much of that lay beside computing; the rest counts,
the time in which nothing was computed. They are averages from the first step on, warm-up included,
times the number of steps up to the last sampled one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

SAMPLED_EVERY = 20  # steps; beside these DistributedDataParallel looks at each of the first ten

TIMED = "every exchange of gradients timed on the first process, waiting for the others included"
SAMPLED = "time of exchange beside no computing, by torch's own statistics of every 20th step"


class Exchange:
    """Adds up the seconds in which a process exchanged gradients and computed nothing."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._parallel: DistributedDataParallel | None = None
        self._timed = False

    @contextmanager
    def timed(self, message: Tensor) -> Iterator[None]:
        """Time the exchange of a message; on an accelerator in its present stream."""
        self._timed = True
        if message.is_cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield
            end.record()
            self._events.append((begin, end))
        else:
            started = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - started

    def follow(self, parallel: DistributedDataParallel) -> None:
        """Take the statistics of a model that exchanges its gradients by itself."""
        self._parallel = parallel
        parallel._set_ddp_runtime_logging_sample_rate(SAMPLED_EVERY)

    def seconds(self) -> float | None:
        """Seconds so far, None where nothing was exchanged. The device must be synchronised."""
        for begin, end in self._events:
            self._seconds += begin.elapsed_time(end) / 1000.0
        self._events.clear()
        if self._parallel is not None:
            return exposed_seconds(self._parallel._get_ddp_logging_data())
        return self._seconds if self._timed else None

    def how(self) -> str:
        """Method of measuring the seconds."""
        return TIMED if self._parallel is None else SAMPLED


def exposed_seconds(statistics: dict[str, object]) -> float:
    """Seconds of exchange beside no computing, from DistributedDataParallel's statistics (ns)."""
    exchanged, hidden, steps = (
        float(str(statistics.get(name, 0)))
        for name in (
            "avg_backward_comm_time",
            "avg_backward_compute_comm_overlap_time",
            "iteration",
        )
    )
    return max(0.0, exchanged - hidden) / 1e9 * steps


# A process joins one training and exchanges gradients in no other.
EXCHANGE = Exchange()
