"""The peak throughput of a device, and of an all-reduce over several hosts.

Shapes are large enough for the peak and small enough to be quick.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from finishline.rules.measurements import Figure
from reference_models.distributed import World, join, synchronise
from worker.events import answer_orders, open_store
from worker.machine.canary import best_seconds

MIB = 2**20


@dataclass(frozen=True)
class Shapes:
    """Square matmuls by their side, convolutions as (batch, channels, size), bytes of a copy."""

    gemm_sides: tuple[int, ...]
    convolutions: tuple[tuple[int, int, int], ...]
    copy_bytes: int


SHAPES = {
    "cpu": Shapes(
        gemm_sides=(256, 512, 1024),
        convolutions=((4, 64, 32), (4, 128, 16)),
        copy_bytes=256 * MIB,
    ),
    "cuda": Shapes(
        gemm_sides=(4096, 8192),
        convolutions=((128, 128, 56), (128, 256, 28)),
        copy_bytes=1024 * MIB,
    ),
}


TF32_CAPABILITY = (8, 0)
BF16_CAPABILITY = (8, 0)
FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True)
class Arithmetic:
    """One kind of floating-point arithmetic. `tf32` may shorten the operands of float32."""

    name: str
    dtype: torch.dtype
    tf32: bool = False
    convolves: bool = True

    @contextlib.contextmanager
    def switched_on(self) -> Iterator[None]:
        """Within it float32 means this arithmetic and no other."""
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = self.tf32
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before


FP32 = Arithmetic("fp32", torch.float32)
TF32 = Arithmetic("tf32", torch.float32, tf32=True)
BF16 = Arithmetic("bf16", torch.bfloat16)
FP16 = Arithmetic("fp16", torch.float16)
FP8 = Arithmetic("fp8", torch.float8_e4m3fn, convolves=False)


def types_of(kind: str, capability: tuple[int, int]) -> tuple[Arithmetic, ...]:
    """Types that a device can be measured in, by its kind and compute capability.

    AMD's have a number of their own for the latter. On them float32 is never shortened to TF32.
    """
    if kind == "cpu":
        return (FP32, BF16)
    types = [FP32]
    if capability >= TF32_CAPABILITY and torch.version.hip is None:
        types.append(TF32)
    if capability >= BF16_CAPABILITY:
        types.append(BF16)
    types.append(FP16)
    if capability >= FP8_CAPABILITY:
        types.append(FP8)
    return tuple(types)


def fp8_product(left: Tensor, right: Tensor) -> Callable[[], Tensor]:
    """A matmul of two matrices in float8, with a scale of one. The result is in bfloat16."""
    one = torch.ones((), device=left.device)
    a = left.to(FP8.dtype)
    b = right.to(FP8.dtype).t().contiguous().t()  # The kernels want the second one by columns.
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


LIMIT_SECONDS = 20.0
SECONDS_EACH = 0.4
LAUNCHES = 200
TERA = 1e12
GIGA = 1e9


@dataclass(frozen=True)
class Device:
    """Device to measure: `kind` chooses shapes and types, `where` is torch's name of it.

    `count` devices take part in an all-reduce. `synchronise` waits for everything asked for.
    """

    kind: str
    where: str
    count: int
    capability: tuple[int, int]
    synchronise: Callable[[], None]


def find_device(name: str) -> Device:
    """The device of a name such as "cpu" or "cuda". Raises RuntimeError where there is none."""
    if not name.startswith("cuda"):
        return Device("cpu", "cpu", 1, (0, 0), lambda: None)
    if not torch.cuda.is_available():
        raise RuntimeError(f"the device {name!r} was asked for and torch finds no such device")
    capability = torch.cuda.get_device_capability(name)
    synchronise = partial(torch.cuda.synchronize, name)  # The current device may be another one.
    return Device("cuda", name, torch.cuda.device_count(), capability, synchronise)


class Roofs:
    """Measures one figure after the other until the time is up."""

    def __init__(self, device: Device, *, seconds_each: float = SECONDS_EACH) -> None:
        self._device = device
        self._seconds_each = seconds_each
        self._shapes: Shapes = SHAPES[device.kind]

    def figures(
        self, *, limit_seconds: float = LIMIT_SECONDS, only: tuple[str, ...] = ()
    ) -> dict[str, Figure]:
        """Every figure by its name, or those of `only`. Figures past the time limit are absent."""
        end = time.perf_counter() + limit_seconds
        found = {}
        for name, unit, measure in self._plan():
            if only and name not in only:
                continue
            if time.perf_counter() > end:
                found[name] = Figure(None, unit, f"no time left of {limit_seconds:g} s")
                continue
            try:
                found[name] = measure()
            except (RuntimeError, NotImplementedError, TypeError, AttributeError, OSError) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                found[name] = Figure(None, unit, f"absent: {reason[:200]}")
        return found

    def _plan(self) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
        for kind in types_of(self._device.kind, self._device.capability):
            yield f"gemm_{kind.name}", "TFLOP/s", partial(self._gemm, kind)
        for kind in types_of(self._device.kind, self._device.capability):
            if kind.convolves:
                yield f"convolution_{kind.name}", "TFLOP/s", partial(self._conv, kind)
        yield "copy", "GB/s", self._copy
        yield "all_reduce", "GB/s", self._all_reduce
        yield "launch_latency", "us", self._launch
        yield "host_to_device", "GB/s", self._host_to_device

    def _best(self, step: Callable[[], object], *, seconds: float) -> float:
        def timed() -> None:
            step()
            self._device.synchronise()

        timed()  # Plans the kernel and fills the allocator's pool.
        return best_seconds(timed, seconds=seconds)

    def _gemm(self, kind: Arithmetic) -> Figure:
        best = {}
        sides = self._shapes.gemm_sides
        with kind.switched_on():
            for side in sides:
                product = self._product(kind, side)
                seconds = self._best(
                    product, seconds=self._seconds_each / len(self._shapes.gemm_sides)
                )
                best[side] = 2 * side**3 / seconds / TERA
        side = max(best, key=lambda one: best[one])
        return Figure(best[side], "TFLOP/s", f"matmul {side} x {side}, {self._how(best)}")

    def _product(self, kind: Arithmetic, side: int) -> Callable[[], Tensor]:
        left = torch.randn(side, side, device=self._device.where)
        right = torch.randn(side, side, device=self._device.where)
        if kind.name == "fp8":
            return fp8_product(left, right)
        left, right = left.to(kind.dtype), right.to(kind.dtype)
        return lambda: left @ right

    def _conv(self, kind: Arithmetic) -> Figure:
        best = {}
        with kind.switched_on(), torch.no_grad():
            for shape in self._shapes.convolutions:
                batch, channels, size = shape
                x = torch.randn(batch, channels, size, size, device=self._device.where)
                x = x.to(kind.dtype, memory_format=torch.channels_last)
                weight = torch.randn(channels, channels, 3, 3, device=self._device.where)
                weight = weight.to(kind.dtype, memory_format=torch.channels_last)
                seconds = self._best(
                    partial(torch.conv2d, x, weight, padding=1),
                    seconds=self._seconds_each / len(self._shapes.convolutions),
                )
                flops = 2 * batch * channels * channels * 9 * size * size
                best[shape] = flops / seconds / TERA
        shape = max(best, key=lambda one: best[one])
        batch, channels, size = shape
        what = f"3 x 3 convolution of {channels} channels, {batch} x {size} x {size}"
        return Figure(best[shape], "TFLOP/s", f"{what}, {self._how(best)}")

    def _copy(self) -> Figure:
        source = torch.ones(self._shapes.copy_bytes // 4, device=self._device.where)
        target = torch.empty_like(source)
        seconds = self._best(lambda: target.copy_(source), seconds=self._seconds_each)
        rate = 2 * self._shapes.copy_bytes / seconds / GIGA
        what = f"copy of {self._shapes.copy_bytes >> 20} MiB, bytes read and written"
        return Figure(rate, "GB/s", f"{what}, best of {self._seconds_each:g} s")

    def _all_reduce(self) -> Figure:
        count = self._device.count
        if count < 2:
            return Figure(None, "GB/s", "absent: one device has nobody to reduce with")
        parts = [
            torch.ones(self._shapes.copy_bytes // 4, device=f"cuda:{index}")
            for index in range(count)
        ]
        seconds = self._best(lambda: torch.cuda.nccl.all_reduce(parts), seconds=self._seconds_each)
        rate = all_reduce_bus_rate(self._shapes.copy_bytes, count, seconds) / GIGA
        return Figure(rate, "GB/s", f"NCCL over {count} devices, bus bandwidth, best of several")

    def _launch(self) -> Figure:
        number = torch.zeros(1, device=self._device.where)

        def launches() -> None:
            for _ in range(LAUNCHES):
                number.add_(1)

        seconds = self._best(launches, seconds=self._seconds_each) / LAUNCHES
        what = f"in-place addition of one number, mean of {LAUNCHES} in a row"
        return Figure(1e6 * seconds, "us", f"{what}, best of {self._seconds_each:g} s")

    def _host_to_device(self) -> Figure:
        if self._device.kind == "cpu":
            return Figure(None, "GB/s", "absent: the processor's memory is the device's")
        pinned = torch.ones(self._shapes.copy_bytes // 4).pin_memory()
        target = torch.empty(self._shapes.copy_bytes // 4, device=self._device.where)
        seconds = self._best(
            lambda: target.copy_(pinned, non_blocking=True), seconds=self._seconds_each
        )
        what = f"{self._shapes.copy_bytes >> 20} MiB from pinned memory"
        return Figure(self._shapes.copy_bytes / seconds / GIGA, "GB/s", f"{what}, best of several")

    def _how(self, best: Mapping[Any, float]) -> str:
        return f"best of {len(best)} shapes and {self._seconds_each:g} s"


def all_reduce_bus_rate(part_bytes: float, count: int, seconds: float) -> float:
    """Bytes per second that each link carries in an all-reduce of `count` parts.

    Source: nccl-tests, PERFORMANCE.md: algorithm bandwidth times 2 (n - 1) / n.
    """
    return part_bytes / seconds * 2 * (count - 1) / count


MESSAGE_BYTES = 16 * MIB
EXCHANGES = 10


class WrongSumError(Exception):
    """The processes exchanged something else than they sent."""


def message_of(rank: int) -> torch.Tensor:
    """Small whole numbers, which add up without rounding, other ones on each rank."""
    return torch.arange(MESSAGE_BYTES // 4, dtype=torch.float32) % 251 + rank


def measure_all_reduce(world: World) -> Figure:
    """The rate of the best of some exchanges. Raises WrongSumError unless every number is right."""
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
    figure = measure_all_reduce(join(told["device"]))
    store = open_store()
    if os.environ["LOCAL_RANK"] == "0":
        store.set(f"arrival {os.environ['GROUP_RANK']}", json.dumps(told["arrival"]))
    hosts = int(os.environ["GROUP_WORLD_SIZE"])
    arrivals = [json.loads(store.get(f"arrival {rank}")) for rank in range(hosts)]
    dist.barrier()  # The first host ends the store when it has read all.
    return {"arrivals": arrivals, "all_reduce": asdict(figure)}


def answer(told: dict[str, Any]) -> dict[str, Any]:
    """The figures that are ordered, and the versions they were measured with."""
    device = find_device(told["device"])
    torch.backends.cudnn.benchmark = True  # As trainings choose their kernels. It plans off time.
    seconds_each = told.get("seconds_each", SECONDS_EACH)
    figures = Roofs(device, seconds_each=seconds_each).figures(
        limit_seconds=told.get("limit_seconds", LIMIT_SECONDS), only=tuple(told.get("only", ()))
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
