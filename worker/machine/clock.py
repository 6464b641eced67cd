"""The clock of every bench and of the worker's own speed: warm up, then time calls."""

import time
from collections.abc import Callable
from math import inf
from typing import Any

WARM_UP_CALLS = 5
Call = Callable[[Any], object]


def time_calls(
    call: Call,
    *,
    seconds: float,
    device: str = "cpu",
    prepare: Callable[[], object] = lambda: None,
) -> list[float]:
    """Time each call until the time is up, after a warm-up of five calls or the same time."""
    repeat(call, seconds=seconds, device=device, prepare=prepare, most=WARM_UP_CALLS)
    return repeat(call, seconds=seconds, device=device, prepare=prepare)


def repeat(
    call: Call,
    *,
    seconds: float,
    device: str = "cpu",
    prepare: Callable[[], object] = lambda: None,
    most: float = inf,
) -> list[float]:
    """Time each call until the time is up, at least one. `prepare` runs off the clock."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < most:
        prepared = prepare()
        synchronise(device)
        started = time.perf_counter()
        call(prepared)
        synchronise(device)
        ended = time.perf_counter()
        taken.append(ended - started)
        if ended >= end:
            break
    return taken


def synchronise(device: str) -> None:
    """Wait for an accelerator's queued work."""
    if device.startswith("cuda"):
        import torch  # The canary of a processor runs without torch.

        torch.cuda.synchronize(device)
