"""One process of the all-reduce over several hosts, started as a training is (worker.group)."""

import os
import sys
import time
from dataclasses import asdict

import torch
import torch.distributed as dist

from finishline.rules.measurements import Figure
from reference_models import DeviceError
from reference_models.distributed import World, join, synchronise
from worker.child import join_group
from worker.roofs import GIGA, MIB, all_reduce_bus_rate

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


def main() -> None:
    """Measure and tell; a wrong sum on any rank is the failure of all."""
    told, events = join_group(*sys.argv[1:])
    torch.set_num_threads(1)
    try:
        events.write("all_reduce", figure=asdict(measure(join(told["device"]))))
    except (WrongSumError, DeviceError) as error:
        code = "nodes_unfit" if isinstance(error, WrongSumError) else "device_unfit"
        events.write("failure", code=code, message=str(error))
    sys.stdout.flush()
    os._exit(0)  # Tearing down torch takes time and can abort.


if __name__ == "__main__":
    main()
