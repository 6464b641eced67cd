"""Training steps of a reference, and all-reduces: `python -m worker.bench.steps`.

The parts are timed without a profiler. Operators, trace and FLOP/s come from later, traced steps.
"""

import contextlib
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from finishline.rules.run import Phase
from reference_models import load_reference
from reference_models.data import require_data
from reference_models.distributed import EXCHANGE, World, join, synchronise
from worker.bench.runs import TERA
from worker.events import answer_orders
from worker.machine.latency import first_line
from worker.machine.peak import Roofs, find_device, time_all_reduce

PARTS = ("data", "forward", "backward", "optimizer")
WARM_UP_STEPS = 3
SEED = 0


class _EnoughError(Exception):
    """All steps that were asked for are done."""


class StepWatch:
    """Follow a training by torch's own hooks. A step ends with its optimiser's.

    Data lasts from there to the first call of a module, with the averaging of weights. Forward has
    the loss and its gradient, backward the model's own pass, optimiser the clipping of gradients.
    """

    def __init__(self, device: str, *, steps: int, traced: bool = False) -> None:
        self.step_seconds: list[float] = []
        self.parts_seconds: list[dict[str, float]] = []
        self.communication_seconds: list[float | None] = []
        self.gradient_bytes = 0
        self._device = device
        self._wanted = steps + WARM_UP_STEPS
        self._traced = traced
        self._training = False
        self._part: str | None = None
        self._mark: Any = None
        self._optimiser: Any = None
        self._model: Any = None
        self._begin_step()

    def enter(self, phase: Phase) -> None:
        """Begin a step with a train phase. One that another phase cuts short does not count."""
        self._switch(None)
        self._training = phase is Phase.TRAIN
        if self._training:
            self._begin_step()
            self._switch("data")

    def _begin_step(self) -> None:
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._exchanged = EXCHANGE.seconds() or 0.0
        self._begun = self._since = time.perf_counter()

    def _switch(self, part: str | None) -> None:
        synchronise(self._device)
        now = time.perf_counter()
        if self._part is not None:
            self._parts[self._part] += now - self._since
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None
        if part is not None and self._traced:
            self._mark = torch.profiler.record_function(part)
            self._mark.__enter__()
        self._part, self._since = part, time.perf_counter()

    def _end_step(self, optimiser: Any) -> None:
        if not self._training or optimiser is not self._optimiser:
            return
        self._switch(None)
        self.step_seconds.append(time.perf_counter() - self._begun)
        self.parts_seconds.append(self._parts)
        seconds = EXCHANGE.seconds()
        self.communication_seconds.append(None if seconds is None else seconds - self._exchanged)
        self.gradient_bytes = sum(
            parameter.grad.nbytes
            for group in optimiser.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        )
        if len(self.step_seconds) == self._wanted:
            raise _EnoughError
        self._begin_step()
        self._switch("data")

    def _before_module(self, module: Any, inputs: Any) -> None:
        if self._training and self._part == "data":
            self._model = module
            self._switch("forward")

    def _before_optimiser(self, optimiser: Any, *_: Any) -> None:
        if self._training and self._optimiser is None:
            self._optimiser = optimiser  # The first of several ends the step.

    def begin_training(self) -> None:
        """Expect another optimiser than before."""
        self._optimiser = None

    def _after_module(self, module: Any, inputs: Any, output: Any) -> None:
        if not self._training or module is not self._model:
            return
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(self._begin_backward)

    def _begin_backward(self, _gradient: Any) -> None:
        if self._part == "forward":
            self._switch("backward")
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._switch("optimizer"))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within it torch's hooks are set."""
        hooks = (
            register_module_forward_pre_hook(self._before_module),
            register_module_forward_hook(self._after_module),
            register_optimizer_step_pre_hook(self._before_optimiser),
            register_optimizer_step_post_hook(lambda optimiser, *_: self._end_step(optimiser)),
        )
        try:
            yield
        finally:
            self._switch(None)
            for hook in hooks:
                hook.remove()


def watch_steps(orders: Mapping[str, Any], *, steps: int, traced: bool = False) -> StepWatch:
    """Train for so many steps after a warm-up, over again where a training has fewer."""
    data_dir = Path(orders["data_dir"])
    require_data(orders["reference"], data_dir, orders["hyperparameters"])
    reference = load_reference(orders["reference"])
    config = reference.configure(orders["hyperparameters"])
    watch = StepWatch(orders["device"], steps=steps, traced=traced)
    with watch.watching(), contextlib.suppress(_EnoughError):
        while True:
            watch.begin_training()
            for item in reference.train(
                config, seed=SEED, device=orders["device"], data_dir=data_dir
            ):
                if isinstance(item, Phase):
                    watch.enter(item)
    return watch


TRACED_STEPS = 5
Points = list[list[float]]


def profile_steps(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Time the steps, then trace some, then measure the roof that they are compared with."""
    steps = orders["steps"]
    watch = watch_steps(orders, steps=steps)
    step_seconds = fmean(watch.step_seconds[WARM_UP_STEPS:])
    timed = watch.parts_seconds[WARM_UP_STEPS:]
    parts: dict[str, float | None] = {part: fmean(one[part] for one in timed) for part in PARTS}
    idle = max(0.0, step_seconds - sum(value or 0.0 for value in parts.values()))
    parts |= {"communication": None, "idle": idle}
    traced = min(steps, TRACED_STEPS)
    operators, rates = trace_steps(orders, steps=traced, out=Path(orders["out"]))
    peak = peak_flops_per_second(orders["device"])
    absent = {"parts_seconds.communication": "one process exchanges nothing"}
    if not rates:
        absent["cdf"] = "torch's profiler counts no FLOPs in this training's operators"
    elif peak is None:
        absent["cdf.of_peak"] = "the roof was not measured"
    return {
        "steps": steps,
        "step_seconds": step_seconds,
        "parts_seconds": parts,
        "traced_steps": traced + WARM_UP_STEPS,
        "operators": operators,
        "cdf": {
            "flops_per_second": cumulative(rates) if rates else None,
            "of_peak": cumulative([rate / peak for rate in rates]) if rates and peak else None,
        },
        "peak_flops_per_second": peak,
        "bottleneck": max(parts, key=lambda part: parts[part] or 0.0),
        "absent": absent,
    }


def trace_steps(
    orders: Mapping[str, Any], *, steps: int, out: Path
) -> tuple[list[dict[str, Any]], list[float]]:
    """The operators of traced steps, longest first, and the FLOP/s of each call with FLOPs.

    Writes the Chrome trace.
    """
    cuda = orders["device"].startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, with_flops=True) as found:
        watch_steps(orders, steps=steps, traced=True)
    found.export_chrome_trace(str(out / "trace.json"))

    def seconds(event: Any) -> float:
        return float(event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6

    operators = [
        {"name": event.key, "calls": int(event.count), "seconds": seconds(event)}
        for event in found.key_averages()
        if event.key not in PARTS
    ]
    rates = [
        event.flops * 1e6 / total
        for event in found.events()
        if event.flops and (total := event.device_time_total if cuda else event.cpu_time_total) > 0
    ]
    return sorted(operators, key=lambda one: -float(str(one["seconds"]))), rates


def peak_flops_per_second(device: str) -> float | None:
    """The better roof of fp32 matmul and convolution, in this process and its threads."""
    figures = Roofs(find_device(device)).figures(only=("gemm_fp32", "convolution_fp32"))
    values = [figure.value for figure in figures.values() if figure.value is not None]
    return max(values) * TERA if values else None


def cumulative(values: Sequence[float]) -> Points:
    """Each value with the share of all that are no larger."""
    ordered = sorted(values)
    return [[value, (index + 1) / len(ordered)] for index, value in enumerate(ordered)]


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


def measure_group(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Of one process of a group: seconds of all-reduces of a size, or of steps with exchanges."""
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


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return profile_steps(told) if "out" in told else measure_group(told)
    except Exception as error:  # noqa: BLE001 - the first line of any error is the answer
        traceback.print_exc()
        return {"missing": first_line(error)}


if __name__ == "__main__":
    answer_orders(answer)
