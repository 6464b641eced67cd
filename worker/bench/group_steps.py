"""One of several processes that time training steps and all-reduces together."""

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from reference_models.distributed import World, join
from worker.all_reduce import time_all_reduce
from worker.bench.steps import WARM_UP_STEPS, watch_steps
from worker.events import answer_orders
from worker.machine.latency import first_line

MESSAGE_BYTES = tuple(1024 * 4**power for power in range(7))  # 1 kB to 4 MB
WARM_UP_ROUNDS = 3
ROUNDS = 40
WARM_UP_EXCHANGES = 5
FEWEST, MOST = 10, 10_000


def time_for(seconds: float, size: int, world: World) -> list[float]:
    """Seconds of each of as many all-reduces of one size as there is time for."""
    message = torch.zeros(size // 4, device=world.device)
    started = time.perf_counter()
    for _ in range(WARM_UP_EXCHANGES):
        time_all_reduce(message, world)
    each = (time.perf_counter() - started) / WARM_UP_EXCHANGES
    count = torch.tensor([min(MOST, max(FEWEST, int(seconds / each)))], device=world.device)
    dist.broadcast(count, src=0)  # The first process reckons it for all.
    return [time_all_reduce(message, world) for _ in range(int(count.item()))]


def time_sizes(world: World) -> list[dict[str, Any]]:
    """Median seconds of an all-reduce of float32 numbers, for each size of a message.

    Rounds go over all sizes, so that a busy moment does not fall on one size alone.
    """
    messages = [torch.zeros(size // 4, device=world.device) for size in MESSAGE_BYTES]
    rounds = [
        [time_all_reduce(message, world) for message in messages]
        for _ in range(WARM_UP_ROUNDS + ROUNDS)
    ]
    timed = rounds[WARM_UP_ROUNDS:]
    return [
        {"bytes": size, "seconds": median(taken[index] for taken in timed), "n": ROUNDS}
        for index, size in enumerate(MESSAGE_BYTES)
    ]


def measure(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of all-reduces of one size, or of steps with their communication."""
    torch.set_num_threads(1)
    if "bytes" in orders:
        return {"seconds": time_for(orders["seconds"], orders["bytes"], join(orders["device"]))}
    watch = watch_steps(orders, steps=orders["steps"])
    world = join(orders["device"])
    result = {
        "step_seconds": watch.step_seconds[WARM_UP_STEPS:],
        "communication_seconds": watch.communication_seconds[WARM_UP_STEPS:],
        "gradient_bytes": watch.gradient_bytes,
    }
    if world.size > 1 and orders["all_reduce"]:
        return result | {"all_reduce": time_sizes(world)}
    return result


def answer(told: dict[str, Any]) -> dict[str, Any]:
    try:
        return measure(told)
    except Exception as error:  # noqa: BLE001 - the first line of any error is the answer
        return {"missing": first_line(error)}


if __name__ == "__main__":
    answer_orders(answer)
