"""The peak throughput of a device, and of an all-reduce over several hosts.

Shapes are large enough for the peak and small enough to be quick.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from finishline.rules.errors import RuleError
from finishline.rules.measurements import Figure
from reference_models.distributed import World, check_device, join, synchronise
from worker.events import answer_orders, first_line, open_store
from worker.machine.clock import time_calls
from worker.machine.kernel_list import Kernel
from worker.machine.kernels import FP8, LAUNCHES, time_kernel, types_of

MIB = 2**20
TERA, GIGA = 1e12, 1e9
LIMIT_SECONDS = 20.0
SECONDS_EACH = 0.4


@dataclass(frozen=True)
class Shapes:
    """Square matmuls by their side, convolutions as (batch, channels, size), bytes of a copy."""

    gemm_sides: tuple[int, ...]
    convolutions: tuple[tuple[int, int, int], ...]
    copy_bytes: int


SHAPES = {
    "cpu": Shapes((256, 512, 1024), ((4, 64, 32), (4, 128, 16)), 256 * MIB),
    "cuda": Shapes((4096, 8192), ((128, 128, 56), (128, 256, 28)), 1024 * MIB),
}


def measure_figures(
    device: str,
    *,
    seconds_each: float = SECONDS_EACH,
    limit_seconds: float = LIMIT_SECONDS,
    only: Sequence[str] = (),
) -> dict[str, Figure]:
    """Measure every figure by its name, or those in `only`, until the time limit."""
    check_device(device)
    end = time.perf_counter() + limit_seconds
    found = {}
    for name, unit, measure in _plan(device, seconds_each):
        if only and name not in only:
            continue
        if time.perf_counter() > end:
            found[name] = Figure(None, unit, f"no time left of {limit_seconds:g} s")
            continue
        try:
            value, how = measure()
            found[name] = Figure(value, unit, how)
        except (RuleError, RuntimeError, AttributeError, OSError) as error:
            found[name] = Figure(None, unit, f"absent: {first_line(error)[:200]}")
    return found


def _plan(
    device: str, seconds: float
) -> Iterator[tuple[str, str, Callable[[], tuple[float, str]]]]:
    shapes = SHAPES["cuda" if device.startswith("cuda") else "cpu"]
    types = types_of(device)
    for each in types:
        gemms = {
            f"matmul {side} x {side}": Kernel(
                "gemm", "forward", each.name, dict.fromkeys("mnk", side)
            )
            for side in shapes.gemm_sides
        }
        yield f"gemm_{each.name}", "TFLOP/s", partial(_best_rate, gemms, device, seconds)
    for each in types:
        convolutions = {
            f"3 x 3 convolution of {channels} channels, {batch} x {size} x {size}": Kernel(
                "convolution", "forward", each.name,
                {"n": batch, "c": channels, "h": size, "w": size, "k": channels, "r": 3, "s": 3,
                 "padding": 1, "stride": 1},
            )
            for batch, channels, size in shapes.convolutions
        }  # fmt: skip
        if each is not FP8:
            name = f"convolution_{each.name}"
            yield name, "TFLOP/s", partial(_best_rate, convolutions, device, seconds)
    yield "copy", "GB/s", partial(_copy, shapes.copy_bytes, device, seconds)
    yield "all_reduce", "GB/s", partial(_all_reduce, shapes.copy_bytes, device, seconds)
    yield "launch_latency", "us", partial(_launch, device, seconds)
    yield "host_to_device", "GB/s", partial(_host_to_device, shapes.copy_bytes, device, seconds)


def _best_rate(kernels: dict[str, Kernel], device: str, seconds: float) -> tuple[float, str]:
    """TFLOP/s of the fastest of several shapes."""
    rates = {}
    for name, kernel in kernels.items():
        share, layout = seconds / len(kernels), torch.channels_last
        best = min(time_kernel(kernel, device, share, layout=layout))
        rates[name] = float(kernel.flops or 0) / best / TERA
    fastest = max(rates, key=rates.__getitem__)
    return rates[fastest], f"{fastest}, best of {len(kernels)} shapes and {seconds:g} s"


def _copy(size: int, device: str, seconds: float) -> tuple[float, str]:
    best = min(time_kernel(Kernel("copy", "forward", "fp32", {"bytes": size}), device, seconds))
    how = f"copy of {size // MIB} MiB, bytes read and written, best of {seconds:g} s"
    return 2 * size / best / GIGA, how


def _launch(device: str, seconds: float) -> tuple[float, str]:
    best = min(time_kernel(Kernel("launch", "forward", "fp32", {}), device, seconds))
    how = f"in-place addition of one number, mean of {LAUNCHES} in a row, best of {seconds:g} s"
    return 1e6 * best, how


def _all_reduce(size: int, device: str, seconds: float) -> tuple[float, str]:
    count = torch.cuda.device_count() if device.startswith("cuda") else 1
    if count < 2:
        raise RuleError("needs at least two devices")
    parts = [torch.ones(size // 4, device=f"cuda:{index}") for index in range(count)]
    reduce_parts = torch.cuda.nccl.all_reduce
    best = min(time_calls(lambda _: reduce_parts(parts), seconds=seconds, device=device))
    how = f"NCCL over {count} devices, bus bandwidth, best of several"
    return all_reduce_bus_rate(size, count, best) / GIGA, how


def _host_to_device(size: int, device: str, seconds: float) -> tuple[float, str]:
    if not device.startswith("cuda"):
        raise RuleError("the processor's memory is the device's")
    pinned = torch.ones(size // 4).pin_memory()
    target = torch.empty(size // 4, device=device)

    def copy(_: object) -> None:
        target.copy_(pinned, non_blocking=True)

    best = min(time_calls(copy, seconds=seconds, device=device))
    return size / best / GIGA, f"{size // MIB} MiB from pinned memory, best of several"


def all_reduce_bus_rate(part_bytes: float, count: int, seconds: float) -> float:
    """Return the bytes per second of each link in an all-reduce of `count` parts.

    Source: nccl-tests, PERFORMANCE.md: algorithm bandwidth times 2 (n - 1) / n.
    """
    return part_bytes / seconds * 2 * (count - 1) / count


MESSAGE_BYTES = 16 * MIB
EXCHANGES = 10


class WrongSumError(Exception):
    """The processes exchanged something else than they sent."""


def message_of(rank: int) -> torch.Tensor:
    """Make small whole numbers for a rank, whose sum is exact."""
    return torch.arange(MESSAGE_BYTES // 4, dtype=torch.float32) % 251 + rank


def measure_all_reduce(world: World) -> Figure:
    """Return the best rate of some exchanges. Raises WrongSumError for a wrong number."""
    message = message_of(world.rank).to(world.device)
    expected = sum(message_of(rank) for rank in range(world.size))
    total = world.total(message.clone())
    synchronise(world.device)
    if not torch.equal(total.cpu(), torch.as_tensor(expected)):
        raise WrongSumError(f"rank {world.rank} got another sum of {world.size} messages")
    seconds = min(time_all_reduce(message, world) for _ in range(EXCHANGES))
    how = f"{dist.get_backend()} over {world.size} ranks, {MESSAGE_BYTES // MIB} MiB, bus bandwidth"
    rate = all_reduce_bus_rate(MESSAGE_BYTES, world.size, seconds) / GIGA
    return Figure(rate, "GB/s", f"{how}, best of {EXCHANGES}, every number checked")


def time_all_reduce(message: torch.Tensor, world: World) -> float:
    """Time one all-reduce that all processes begin together."""
    dist.barrier()
    synchronise(world.device)
    started = time.perf_counter()
    dist.all_reduce(message)
    synchronise(world.device)
    return time.perf_counter() - started


def meet_all(told: dict[str, Any]) -> dict[str, Any]:
    """Measure, and gather each host's description by its rank, on all processes."""
    torch.set_num_threads(1)
    figure = measure_all_reduce(join(told["device"]))
    store = open_store()
    if os.environ["LOCAL_RANK"] == "0":
        store.set(f"arrival {os.environ['GROUP_RANK']}", json.dumps(told["arrival"]))
    hosts = int(os.environ["GROUP_WORLD_SIZE"])
    arrivals = [json.loads(store.get(f"arrival {rank}")) for rank in range(hosts)]
    dist.barrier()  # The first host ends the store when it has read all.
    return {"arrivals": arrivals, "all_reduce": asdict(figure)}


def answer(told: dict[str, Any]) -> dict[str, Any]:
    """Return the ordered figures, and the versions they were measured with."""
    torch.backends.cudnn.benchmark = True  # As trainings choose their kernels. It plans off time.
    figures = measure_figures(
        told["device"],
        seconds_each=told.get("seconds_each", SECONDS_EACH),
        limit_seconds=told.get("limit_seconds", LIMIT_SECONDS),
        only=told.get("only", ()),
    )
    return {
        "figures": {name: asdict(figure) for name, figure in figures.items()},
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


if __name__ == "__main__":
    answer_orders(answer)
