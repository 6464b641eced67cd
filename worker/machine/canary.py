"""The canary of a processor: a small matmul on one thread, the best of half a second.

`python -m worker.machine.canary` answers with its GFLOP/s. The matrices fit into a core's own cache
and one product takes a third of a millisecond, so that among a thousand of them many meet no
neighbour: the best is steady where the mean is not. numpy starts in a fraction of torch's time.
"""

import time
from collections.abc import Callable

import numpy as np

from worker.events import answer_orders

SIDE = 256
SECONDS = 0.5


def best_seconds(
    step: Callable[[], object], *, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The shortest of all the times one step takes within `seconds`. At least one is timed."""
    best = float("inf")
    end = clock() + seconds
    while True:
        started = clock()
        step()
        ended = clock()
        best = min(best, ended - started)
        if ended >= end:
            return best


def canary_gflops(*, seconds: float = SECONDS) -> float:
    """GFLOP/s of the best product of two 256 x 256 matrices of float32."""
    left = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    right = left.T.copy()
    product = np.empty_like(left)
    np.matmul(left, right, out=product)  # The first product also starts the library.
    best = best_seconds(lambda: np.matmul(left, right, out=product), seconds=seconds)
    return 2 * SIDE**3 / best / 1e9


def answer(_orders: object) -> dict[str, object]:
    return {
        "gflops": canary_gflops(),
        "configuration": f"numpy {np.__version__} matmul {SIDE} float32, one thread",
        "how": f"best of {SECONDS:g} s",
    }


if __name__ == "__main__":
    answer_orders(answer)
