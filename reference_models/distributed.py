"""Several processes that train one model: every reference uses these few calls.

`torch.distributed.run` starts the processes. Each takes its part of every global batch and the
gradients are averaged, so that N processes make the same steps as one process does at the same
global batch size. For a single process every call is free.

All processes hold the same weights, draw the same random numbers and learn the same quality, so
each decides by itself, and alike, when to stop.

The time that a process spends exchanging gradients is counted. `World.average_gradients` waits for
every exchange, so all of them are timed: on a processor by the clock, which costs three
microseconds in a step of milliseconds, on an accelerator by two events in the computing stream.
They are read when the device has been synchronised, at the next edge of the clock. torch's
DistributedDataParallel exchanges while it still computes. Its own statistics of sampled steps tell
how long the exchange took and how much of it overlapped with computing. Only the rest counts.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from reference_models import DeviceError

SAMPLED_EVERY = 20  # steps. Beside these DistributedDataParallel looks at each of the first ten

TIMED = "every exchange of gradients timed on the first process, waiting for the others included"
SAMPLED = "time of exchange beside no computing, by torch's own statistics of every 20th step"


class Exchange:
    """Adds up the seconds in which a process only exchanged gradients."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._parallel: DistributedDataParallel | None = None
        self._timed = False

    @contextmanager
    def timed(self, message: Tensor) -> Iterator[None]:
        """Time the exchange of a message. On an accelerator in its present stream."""
        self._timed = True
        if message.is_cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield
            end.record()
            self._events.append((begin, end))
        else:
            started = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - started

    def follow(self, parallel: DistributedDataParallel) -> None:
        """Take the statistics of a model that exchanges its gradients by itself."""
        self._parallel = parallel
        parallel._set_ddp_runtime_logging_sample_rate(SAMPLED_EVERY)

    def seconds(self) -> float | None:
        """Return seconds so far, None without an exchange. Synchronise the device before."""
        for begin, end in self._events:
            self._seconds += begin.elapsed_time(end) / 1000.0
        self._events.clear()
        if self._parallel is not None:
            return exposed_seconds(self._parallel._get_ddp_logging_data())
        return self._seconds if self._timed else None

    def how(self) -> str:
        """Method of measuring the seconds."""
        return TIMED if self._parallel is None else SAMPLED


def exposed_seconds(statistics: dict[str, object]) -> float:
    """Return seconds of exchange without computing, by DistributedDataParallel's statistics."""
    exchanged, hidden, steps = (
        float(str(statistics.get(name, 0)))
        for name in (
            "avg_backward_comm_time",
            "avg_backward_compute_comm_overlap_time",
            "iteration",
        )
    )
    return max(0.0, exchanged - hidden) / 1e9 * steps


# A process joins one training, whose gradients it exchanges.
EXCHANGE = Exchange()


@dataclass(frozen=True)
class World:
    """The processes of one training. `device` is the one this process computes on."""

    rank: int
    size: int
    device: str

    def part_of_batch(self, batch_size: int) -> int:
        """Return this process's number of items of a global batch.

        Raises DeviceError if the processes cannot take equal parts: only equal parts average to the
        whole batch's gradients, and another worker may be able to.
        """
        if batch_size % self.size:
            raise DeviceError(
                f"{self.size} processes cannot share a batch of {batch_size} equally",
                field="processes",
                expected=f"a number that divides {batch_size}",
            )
        return batch_size // self.size

    def shard(self, batch: Tensor) -> Tensor:
        """This process's part of a global batch: a view of equal, contiguous parts by rank."""
        if self.size == 1:
            return batch
        part = self.part_of_batch(len(batch))
        return batch[self.rank * part : (self.rank + 1) * part]

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes, in one message a data type."""
        if self.size == 1:
            return
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                by_type.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for gradients in by_type.values():
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            with EXCHANGE.timed(flat):
                flat = self.mean(flat)
            parts = flat.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def mean(self, value: Tensor) -> Tensor:
        """Return a tensor's mean over the processes, the same bits on each. Changes `value`."""
        return self.total(value).div_(self.size) if self.size > 1 else value

    def total(self, value: Tensor) -> Tensor:
        """Return a tensor's sum over the processes, the same bits on each. Changes `value`."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def agree_on(self, module: nn.Module) -> None:
        """Give every process the weights and buffers of the first one."""
        if self.size > 1:
            for value in (*module.parameters(), *module.buffers()):
                dist.broadcast(value.detach(), src=0)


def join(device: str) -> World:
    """Find this process's place among `torch.distributed.run`'s, or a world of one.

    A `cuda` without a number becomes the GPU of this process's local rank. A process joins once,
    and later calls find the group it is in. Raises DeviceError for a missing accelerator.
    """
    check_device(device)
    if not dist.is_available() or not (dist.is_initialized() or dist.is_torchelastic_launched()):
        return alone(device)
    own = device
    if device == "cuda":
        own = f"cuda:{dist.get_node_local_rank(fallback_rank=0)}"
        check_device(own)
        torch.cuda.set_device(own)
    if not dist.is_initialized():
        if own.startswith("cuda"):  # NCCL connects at once if given the device, else on the clock.
            dist.init_process_group("nccl", device_id=torch.device(own))
        else:
            dist.init_process_group("gloo")
    return World(rank=dist.get_rank(), size=dist.get_world_size(), device=own)


def alone(device: str) -> World:
    """Make a world of one on a device, ignoring how this process was started."""
    return World(rank=0, size=1, device=device)


def check_device(device: str) -> None:
    """Raise DeviceError with one sentence if a training's device is missing."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise DeviceError(
            "no GPU can be used from here",
            field="device",
            expected=f"a GPU and its driver for {device!r}, or the device 'cpu'",
        )
    if int(number or 0) >= count:
        raise DeviceError(
            f"there is no GPU number {number}",
            field="device",
            expected=f"a number from 0 to {count - 1}",
        )


def synchronise(device: str) -> None:
    """Wait until an accelerator has done all it was given. A CPU always has."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
