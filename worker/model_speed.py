"""Speed and work of any model: `python -m worker.model_speed`, a process for each result.

It reads {"model", "tokens", "precision", "device", "seconds", "phase", "batch_size"}. Without a
phase it answers {"parameters", "flops_per_sample"}, else the seconds of each batch, joules, peak
memory and FLOPs of a sample; or {"missing"} with a sentence. torch is synchronised at each batch.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from finishline.rules.errors import RuleError
from reference_models.memory import naming_batch_size
from worker.latency import first_line, synchronise
from worker.models import Inputs, build_model
from worker.own_process import accelerator_peak_bytes, die_with_parent, resident_peak_bytes
from worker.roofs import BF16, FP16, FP32, TF32, find_device
from worker.sensors import open_sensors
from worker.utilisation import count_work

ARITHMETIC = {each.name: each for each in (FP32, TF32, BF16, FP16)}
WARM_UP_CALLS = 5


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to the orders of one process."""
    device = told["device"]
    find_device(device)
    module, inputs = build_model(told["model"], tokens=told["tokens"])
    if told.get("phase") is None:
        step = make_step(module, inputs, {**told, "phase": "inference", "batch_size": 1})
        return {
            "parameters": sum(each.numel() for each in module.parameters()),
            "flops_per_sample": flops_of(step, 1),
        }
    batch_size = told["batch_size"]
    with naming_batch_size(batch_size, device=device), ARITHMETIC[told["precision"]].switched_on():
        step = make_step(module, inputs, told)
        return time_batches(step, told) | {"flops_per_sample": flops_of(step, batch_size)}


def make_step(module: nn.Module, inputs: Inputs, told: Mapping[str, Any]) -> Callable[[], object]:
    """An inference, or a training step: forward, backward, and SGD at a learning rate of 0."""
    device, dtype = told["device"], ARITHMETIC[told["precision"]].dtype
    training, narrow = told["phase"] == "training", dtype is not torch.float32
    module.to(device).train(training)
    made = inputs(told["batch_size"])
    arguments = tree_map(_moved(device), tuple(made) if isinstance(made, list | tuple) else (made,))
    if not training:
        if narrow:
            module.to(dtype)
            arguments = tree_map(_narrowed(dtype), arguments)
        return lambda: _infer(module, arguments)
    module.requires_grad_(True)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.0)
    mixed = torch.autocast(torch.device(device).type, dtype=dtype, enabled=narrow)

    def train() -> None:
        optimiser.zero_grad()
        with mixed:
            loss = _first(module(*arguments)).float().mean()
        loss.backward()
        optimiser.step()

    return train


def _infer(module: nn.Module, arguments: Any) -> None:
    with torch.no_grad():
        module(*arguments)


def _first(output: Any) -> Tensor:
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    if not tensors:
        raise RuleError(f"the model answers with a {type(output).__name__} without a tensor")
    return tensors[0]


def _moved(device: str) -> Callable[[Any], Any]:
    return lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf


def _narrowed(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda leaf: (
        leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf
    )


def flops_of(step: Callable[[], object], batch_size: int) -> float | None:
    """FLOPs of one sample of a step; None where it has no product that can be counted."""
    work = count_work(step, batch_size=batch_size)
    return None if work is None else work.step_flops / batch_size


def time_batches(step: Callable[[], object], told: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of each batch until the time is up, at least one, after a warm-up."""
    device, seconds = told["device"], told["seconds"]
    started = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        step()
        synchronise(device)
        if time.perf_counter() - started > seconds:
            break
    sensors = open_sensors(device)
    before = sensors.energy_joules() if sensors else None
    batches: list[float] = []
    started = ended = time.perf_counter()
    while not batches or ended - started < seconds:
        begun = time.perf_counter()
        step()
        synchronise(device)
        ended = time.perf_counter()
        batches.append(ended - begun)
    after = sensors.energy_joules() if sensors else None
    on_processor = not device.startswith("cuda")
    return {
        "batches": batches,
        "joules": None if before is None or after is None else after - before,
        "peak_memory_bytes": resident_peak_bytes() if on_processor else accelerator_peak_bytes(),
    }


def answer_orders(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Read orders, print the answer to them; a model's own prints go to standard error."""
    told = json.loads(sys.stdin.buffer.read())
    die_with_parent(told["parent_pid"])
    torch.backends.cudnn.benchmark = True
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        try:
            said = answer(told)
        except Exception as error:  # noqa: BLE001 - a model's code may raise anything
            plain = isinstance(error, RuleError | MemoryError)
            words = first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"
            said = {"missing": words if plain else f"{told['model']}: {words}"}
    print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    answer_orders(answer)
