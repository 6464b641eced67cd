"""Training steps of a reference, and all-reduces: `python -m worker.bench.steps`.

The profiler is off while the parts are timed. Operators, trace and FLOP/s come from later, traced
steps.
"""

import contextlib
import time
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
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._pytree import tree_leaves

from finishline.rules.run import Phase
from finishline.rules.verification.utilisation import best_roof_tflops
from reference_models import load_reference
from reference_models.data import require_data
from reference_models.distributed import EXCHANGE, World, join
from worker.events import answer_or_reason
from worker.machine.clock import WARM_UP_CALLS, synchronise
from worker.machine.peak import TERA, measure_figures, time_all_reduce

PARTS = ("data", "forward", "backward", "optimizer")
WARM_UP_STEPS = 3
TRACED_STEPS = 5
SEED = 0


class _EnoughError(Exception):
    """The training has made enough steps."""


class StepWatch:
    """Follows a training by torch's own hooks. A step ends with its optimiser's.

    Data lasts from there to the first call of a module, with the averaging of weights. Forward has
    the loss and its gradient, backward the model's own pass, optimiser the clipping of gradients.
    Only steps within a train phase count.
    """

    def __init__(self, device: str, *, steps: int, traced: bool = False) -> None:
        self.step_seconds: list[float] = []
        self.parts_seconds: list[dict[str, float]] = []
        self.communication_seconds: list[float | None] = []
        self.gradient_bytes = 0
        self.optimiser: Any = None  # The first of several ends the step.
        self._device = device
        self._wanted = steps + WARM_UP_STEPS
        self._traced = traced
        self._part: str | None = None
        self._since = 0.0
        self._mark = contextlib.ExitStack()
        self._model: Any = None

    def enter(self, phase: Phase) -> None:
        """Begin a step with a train phase. Another phase voids the open step."""
        self._switch(None)
        if phase is Phase.TRAIN:
            self._begin_step()

    def _begin_step(self) -> None:
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._exchanged = EXCHANGE.seconds() or 0.0
        self._begun = time.perf_counter()
        self._switch("data")

    def _switch(self, part: str | None) -> None:
        synchronise(self._device)
        if self._part is not None:
            self._parts[self._part] += time.perf_counter() - self._since
        self._mark.close()
        if part is not None and self._traced:
            self._mark.enter_context(record_function(part))
        self._part, self._since = part, time.perf_counter()

    def _before_module(self, module: Any, _inputs: Any) -> None:
        if self._part == "data":
            self._model = module
            self._switch("forward")

    def _after_module(self, module: Any, _inputs: Any, output: Any) -> None:
        if self._part is None or module is not self._model:
            return
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(self._begin_backward)

    def _begin_backward(self, _gradient: Any) -> None:
        if self._part == "forward":
            self._switch("backward")
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._switch("optimizer"))

    def _after_optimiser(self, optimiser: Any, *_: Any) -> None:
        if self._part is None:
            return
        self.optimiser = self.optimiser or optimiser
        if optimiser is not self.optimiser:
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

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within it torch's hooks are set."""
        hooks = (
            register_module_forward_pre_hook(self._before_module),
            register_module_forward_hook(self._after_module),
            register_optimizer_step_post_hook(self._after_optimiser),
        )
        try:
            yield
        finally:
            self._switch(None)
            for hook in hooks:
                hook.remove()


def watch_steps(orders: Mapping[str, Any], *, steps: int, traced: bool = False) -> StepWatch:
    """Train for so many steps after a warm-up, over again where a training has fewer."""
    device, data_dir = orders["device"], Path(orders["data_dir"])
    require_data(orders["reference"], data_dir, orders["hyperparameters"])
    reference = load_reference(orders["reference"])
    config = reference.configure(orders["hyperparameters"])
    watch = StepWatch(device, steps=steps, traced=traced)
    with watch.watching(), contextlib.suppress(_EnoughError):
        while True:
            watch.optimiser = None
            for item in reference.train(config, seed=SEED, device=device, data_dir=data_dir):
                if isinstance(item, Phase):
                    watch.enter(item)
    return watch


def profile_steps(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Time the steps, then trace some, then measure the roof for comparison."""
    steps = orders["steps"]
    watch = watch_steps(orders, steps=steps)
    step_seconds = fmean(watch.step_seconds[WARM_UP_STEPS:])
    timed = watch.parts_seconds[WARM_UP_STEPS:]
    parts: dict[str, float | None] = {part: fmean(one[part] for one in timed) for part in PARTS}
    idle = max(0.0, step_seconds - sum(value or 0.0 for value in parts.values()))
    parts |= {"communication": None, "idle": idle}
    traced = min(steps, TRACED_STEPS)
    operators, rates = trace_steps(orders, steps=traced, out=Path(orders["out"]))
    figures = measure_figures(orders["device"], only=("gemm_fp32", "convolution_fp32"))
    roof = best_roof_tflops(figures, "fp32")
    peak = None if roof is None else roof * TERA
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
            "flops_per_second": cumulative(rates),
            "of_peak": cumulative([rate / peak for rate in rates]) if peak else None,
        },
        "peak_flops_per_second": peak,
        "bottleneck": max(parts, key=lambda part: parts[part] or 0.0),
        "absent": absent,
    }


def trace_steps(
    orders: Mapping[str, Any], *, steps: int, out: Path
) -> tuple[list[dict[str, Any]], list[float]]:
    """List the operators of traced steps and the FLOP/s of each call. Writes the Chrome trace."""
    cuda = orders["device"].startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, with_flops=True) as found:
        watch_steps(orders, steps=steps, traced=True)
    found.export_chrome_trace(str(out / "trace.json"))
    own_time = "self_device_time_total" if cuda else "self_cpu_time_total"
    whole_time = "device_time_total" if cuda else "cpu_time_total"
    operators = [
        {"name": each.key, "calls": int(each.count), "seconds": getattr(each, own_time) / 1e6}
        for each in found.key_averages()
        if each.key not in PARTS
    ]
    rates = [
        each.flops * 1e6 / getattr(each, whole_time)
        for each in found.events()
        if each.flops and getattr(each, whole_time) > 0
    ]
    return sorted(operators, key=lambda one: one["seconds"], reverse=True), rates


def cumulative(values: Sequence[float]) -> list[list[float]] | None:
    """Pair each value with the share of values up to it. None without values."""
    ordered = sorted(values)
    return [[value, (index + 1) / len(ordered)] for index, value in enumerate(ordered)] or None


MESSAGE_BYTES = tuple(1024 * 4**power for power in range(7))  # 1 kB to 4 MB
WARM_UP_ROUNDS = 3
ROUNDS = 40
FEWEST, MOST = 10, 10_000


def time_for(seconds: float, size: int, world: World) -> list[float]:
    """Return seconds of each of as many all-reduces of one size as there is time for."""
    message = torch.zeros(size // 4, device=world.device)
    started = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        time_all_reduce(message, world)
    each = (time.perf_counter() - started) / WARM_UP_CALLS
    count = torch.tensor([min(MOST, max(FEWEST, int(seconds / each)))], device=world.device)
    dist.broadcast(count, src=0)  # The first process reckons it for all.
    return [time_all_reduce(message, world) for _ in range(int(count.item()))]


def time_sizes(world: World) -> list[dict[str, Any]]:
    """Return the median seconds of an all-reduce of float32 numbers, for each message size.

    Rounds go over all sizes, so that a busy moment weighs on all of them.
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


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile, or of one process of a group its all-reduces of a size, or its steps."""
    if "out" in told:
        return profile_steps(told)
    torch.set_num_threads(1)
    if "bytes" in told:
        return {"seconds": time_for(told["seconds"], told["bytes"], join(told["device"]))}
    watch = watch_steps(told, steps=told["steps"])
    world = join(told["device"])
    return {
        "step_seconds": watch.step_seconds[WARM_UP_STEPS:],
        "communication_seconds": watch.communication_seconds[WARM_UP_STEPS:],
        "gradient_bytes": watch.gradient_bytes,
        "all_reduce": time_sizes(world) if world.size > 1 and told["all_reduce"] else None,
    }


if __name__ == "__main__":
    answer_or_reason(answer)
