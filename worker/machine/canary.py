"""The canary of a processor: a small matmul on one thread, the best of half a second.

`python -m worker.machine.canary` answers with its GFLOP/s. The matrices fit into a core's cache and
one product takes a third of a millisecond. Many of the thousand products run undisturbed, so the
best is steadier than the mean. numpy starts in a fraction of torch's time.
"""

import numpy as np

from worker.events import answer_orders
from worker.machine.clock import time_calls

SIDE = 256
SECONDS = 0.5


def canary_gflops() -> float:
    """GFLOP/s of the best product of two 256 x 256 matrices of float32."""
    left = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    right = left.T.copy()
    product = np.empty_like(left)
    best = min(time_calls(lambda _: np.matmul(left, right, out=product), seconds=SECONDS))
    return 2 * SIDE**3 / best / 1e9


def answer(_orders: object) -> dict[str, object]:
    return {
        "gflops": canary_gflops(),
        "configuration": f"numpy {np.__version__} matmul {SIDE} float32, one thread",
        "how": f"best of {SECONDS:g} s",
    }


if __name__ == "__main__":
    answer_orders(answer)
