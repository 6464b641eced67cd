"""The all-reduce over several hosts, before the runs of an attempt."""

import json
import os
import time
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from finishline.rules.measurements import Figure
from reference_models.distributed import World, join, synchronise
from worker.events import open_store
from worker.machine.peak import GIGA, MIB, all_reduce_bus_rate

BYTES = 16 * MIB
REPEATS = 10


class WrongSumError(Exception):
    """The processes exchanged something else than they sent."""


def message_of(rank: int) -> torch.Tensor:
    """Small whole numbers, which add up without rounding, other ones on each rank."""
    return torch.arange(BYTES // 4, dtype=torch.float32) % 251 + rank


def measure(world: World) -> Figure:
    """The rate of the best of some exchanges. Raises WrongSumError unless every number is right."""
    message = message_of(world.rank).to(world.device)
    expected = sum(message_of(rank) for rank in range(world.size))
    total = world.total(message.clone())
    synchronise(world.device)
    if not torch.equal(total.cpu(), torch.as_tensor(expected)):
        raise WrongSumError(f"rank {world.rank} got another sum of {world.size} messages")
    seconds = min(time_all_reduce(message, world) for _ in range(REPEATS))
    how = f"{dist.get_backend()} over {world.size} ranks, {BYTES // MIB} MiB, bus bandwidth"
    rate = all_reduce_bus_rate(BYTES, world.size, seconds) / GIGA
    return Figure(rate, "GB/s", f"{how}, best of {REPEATS}, every number checked")


def time_all_reduce(message: torch.Tensor, world: World) -> float:
    """Seconds of one all-reduce that all processes begin together."""
    dist.barrier()
    synchronise(world.device)
    started = time.perf_counter()
    dist.all_reduce(message)
    synchronise(world.device)
    return time.perf_counter() - started


def meet_all(told: dict[str, Any]) -> dict[str, Any]:
    """Measure, and gather what each host says of itself: by rank of the host, on all processes."""
    torch.set_num_threads(1)
    figure = measure(join(told["device"]))
    store = open_store()
    if os.environ["LOCAL_RANK"] == "0":
        store.set(f"arrival {os.environ['GROUP_RANK']}", json.dumps(told["arrival"]))
    hosts = int(os.environ["GROUP_WORLD_SIZE"])
    arrivals = [json.loads(store.get(f"arrival {rank}")) for rank in range(hosts)]
    dist.barrier()  # The first host ends the store when it has read all.
    return {"arrivals": arrivals, "all_reduce": asdict(figure)}
