"""One of several processes that time an all-reduce of one size; the first one writes the result.

Started through worker.group with the folder of its orders and its parent's number.
"""

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from reference_models.distributed import World, join, synchronise
from worker.group import read_orders
from worker.group_runs import write_result
from worker.own_process import die_with_parent

WARM_UP_EXCHANGES = 5
FEWEST, MOST = 10, 10_000


def time_all_reduce(message: torch.Tensor, world: World) -> float:
    """Seconds of one all-reduce that all processes begin together."""
    dist.barrier()
    synchronise(world.device)
    started = time.perf_counter()
    dist.all_reduce(message)
    synchronise(world.device)
    return time.perf_counter() - started


def exchanges_within(seconds: float, each: float, world: World) -> int:
    """Number of all-reduces that fill the seconds, as the first process reckons it for all."""
    count = torch.tensor([min(MOST, max(FEWEST, int(seconds / each)))], device=world.device)
    dist.broadcast(count, src=0)
    return int(count.item())


def measure(orders: Mapping[str, Any]) -> dict[str, list[float]]:
    """Seconds of each of as many exchanges as the orders have time for."""
    world = join(orders["device"])
    message = torch.zeros(orders["bytes"] // 4, device=world.device)
    started = time.perf_counter()
    for _ in range(WARM_UP_EXCHANGES):
        time_all_reduce(message, world)
    each = (time.perf_counter() - started) / WARM_UP_EXCHANGES
    count = exchanges_within(orders["seconds"], each, world)
    return {"seconds": [time_all_reduce(message, world) for _ in range(count)]}


def main(folder: Path, parent_pid: int) -> None:
    """Measure and write; the error's sentence where the device refuses."""
    die_with_parent(parent_pid)
    orders = read_orders(folder)
    torch.set_num_threads(1)
    write_result(folder, partial(measure, orders))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
