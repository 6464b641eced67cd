"""One of several processes that time training steps and all-reduces together.

Started through worker.group with the folder of its orders and its parent's number. The first one
writes the result there.
"""

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from reference_models.distributed import World, join, synchronise
from worker.group import read_orders
from worker.group_runs import write_result
from worker.own_process import die_with_parent
from worker.step_parts import WARM_UP_STEPS, watch_steps

MESSAGE_BYTES = tuple(1024 * 4**power for power in range(7))  # 1 kB to 4 MB
WARM_UP_EXCHANGES = 3
EXCHANGES = 40


def time_all_reduce(world: World) -> list[dict[str, Any]]:
    """Median seconds of an all-reduce of float32 numbers, for each size of a message.

    Rounds go over all sizes, so that a busy moment does not fall on one size alone.
    """
    messages = [torch.zeros(size // 4, device=world.device) for size in MESSAGE_BYTES]
    taken: list[list[float]] = [[] for _ in messages]
    for _ in range(WARM_UP_EXCHANGES + EXCHANGES):
        for message, seconds in zip(messages, taken, strict=True):
            dist.barrier()
            synchronise(world.device)
            started = time.perf_counter()
            dist.all_reduce(message)
            synchronise(world.device)
            seconds.append(time.perf_counter() - started)
    return [
        {"bytes": size, "seconds": median(seconds[WARM_UP_EXCHANGES:]), "n": EXCHANGES}
        for size, seconds in zip(MESSAGE_BYTES, taken, strict=True)
    ]


def measure(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of steps, of their communication, and of all-reduces where they are ordered."""
    watch = watch_steps(orders, steps=orders["steps"])
    world = join(orders["device"])
    result = {
        "step_seconds": watch.step_seconds[WARM_UP_STEPS:],
        "communication_seconds": watch.communication_seconds[WARM_UP_STEPS:],
        "gradient_bytes": watch.gradient_bytes,
    }
    if world.size > 1 and orders["all_reduce"]:
        return result | {"all_reduce": time_all_reduce(world)}
    return result


def main(folder: Path, parent_pid: int) -> None:
    """Measure and write; the error's sentence where the training refuses."""
    die_with_parent(parent_pid)
    orders = read_orders(folder)
    torch.set_num_threads(1)
    write_result(folder, partial(measure, orders))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
