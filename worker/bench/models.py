"""Speed and work of any model: `python -m worker.bench.models`, for each result.

It reads {"model", "tokens", "precision", "device", "seconds", "phase", "batch_size"}. Without a
phase it answers {"parameters", "flops_per_sample"}, else the seconds of each batch, joules, peak
memory and FLOPs of a sample.

Models have a SPEC: `torchvision:NAME`, `hf:NAME` or `FILE.py:FUNCTION`. Their weights are random
and made here: torchvision builds without weights, transformers from a config class.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from finishline.rules.errors import RuleError
from reference_models.distributed import check_device
from reference_models.grammar_generation import CachedByteGPT
from reference_models.memory import naming_batch_size
from worker.events import (
    accelerator_peak_bytes,
    answer_or_reason,
    first_line,
    resident_peak_bytes,
)
from worker.machine.clock import WARM_UP_CALLS, repeat
from worker.machine.kernels import ARITHMETIC
from worker.machine.precision import count_work
from worker.machine.sensors import open_sensors

Inputs = Callable[[int], tuple[Any, ...]]
PICTURE_SIDES = {"inception_v3": 299}
PICTURE_SIDE = 224


def build_model(spec: str, *, tokens: int) -> tuple[nn.Module, Inputs]:
    """Return the module of a SPEC and its inputs by batch size. Raises RuleError."""
    kind, _, name = spec.partition(":")
    if kind == "torchvision":
        return _from_torchvision(name)
    if kind == "hf":
        return _from_transformers(name, tokens)
    path, _, function = spec.rpartition(":")
    return _from_file(Path(path), function)


def build_generator(spec: str) -> nn.Module:
    """Build a model that generates, called as transformers calls one. Raises RuleError."""
    if spec == "grammar":
        return CachedByteGPT()
    if not spec.startswith("hf:"):
        return build_model(spec, tokens=1)[0]
    name = spec.removeprefix("hf:")
    transformers = _import("transformers", install="transformers")
    try:
        config = transformers.AutoConfig.for_model(name)
        if name == "roberta":
            config.is_decoder = True  # Else it sees the tokens to come.
        module: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    except (KeyError, ValueError) as error:
        why = first_line(error)
        raise RuleError(f"transformers makes no generating {name!r}: {why}") from error
    return module


def _from_torchvision(name: str) -> tuple[nn.Module, Inputs]:
    models = _import("torchvision.models", install="'finishline-server[vision]'")
    if name not in models.list_models(module=models):
        raise RuleError(f"torchvision has no image classifier {name!r}", field="model")
    # The weights of two of them would otherwise be drawn by a slow generator, with a warning.
    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    side = PICTURE_SIDES.get(name, PICTURE_SIDE)
    module = models.get_model(name, weights=None, **more)
    return module, lambda batch_size: (torch.randn(batch_size, 3, side, side),)


def _from_transformers(name: str, tokens: int) -> tuple[nn.Module, Inputs]:
    transformers = _import("transformers", install="transformers")
    config = transformers.RobertaConfig()
    longest = config.max_position_embeddings - config.pad_token_id - 1
    if tokens > longest:
        raise RuleError(
            f"hf:{name} takes no {tokens} tokens", field="tokens", expected=f"1 to {longest}"
        )
    # The first ids are special. Padding among them would shorten a text.
    first, most = 4, config.vocab_size
    module = transformers.RobertaModel(config)
    return module, lambda batch_size: (torch.randint(first, most, (batch_size, tokens)),)


def _import(module: str, *, install: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise RuleError(
            f"{package} is not installed here ({error}); install it with `pip install {install}`"
        ) from error


def _from_file(path: Path, function: str) -> tuple[nn.Module, Inputs]:
    found = importlib.util.spec_from_file_location("benched_model", path)
    if found is None or found.loader is None:
        raise RuleError(f"{path} is no Python file", field="model")
    loaded = importlib.util.module_from_spec(found)
    sys.modules[found.name] = loaded
    sys.path.append(str(path.resolve().parent))
    found.loader.exec_module(loaded)
    make = getattr(loaded, function, None)
    if not callable(make):
        raise RuleError(f"{path} has no function {function!r}", field="model")
    match make():
        case (nn.Module() as module, inputs) if callable(inputs):
            return module, inputs
        case other:
            raise RuleError(
                f"{path}:{function} returned a {type(other).__name__}",
                expected="a tuple of a torch module and a function inputs(batch_size)",
            )


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    torch.backends.cudnn.benchmark = True
    check_device(told["device"])
    module, inputs = build_model(told["model"], tokens=told["tokens"])
    if "phase" not in told:
        step = make_step(module, inputs, {**told, "phase": "inference", "batch_size": 1})
        return {
            "parameters": sum(each.numel() for each in module.parameters()),
            "flops_per_sample": flops_of(step, 1),
        }
    size, device = told["batch_size"], told["device"]
    with naming_batch_size(size, device=device), ARITHMETIC[told["precision"]].switched_on():
        step = make_step(module, inputs, told)
        timed = partial(repeat, lambda _: step(), seconds=told["seconds"], device=device)
        timed(most=WARM_UP_CALLS)
        sensors = open_sensors(device)
        before = sensors.energy_joules() if sensors else None
        batches = timed()
        after = sensors.energy_joules() if sensors else None
        peak = accelerator_peak_bytes if device.startswith("cuda") else resident_peak_bytes
        return {
            "batches": batches,
            "joules": None if before is None or after is None else after - before,
            "peak_memory_bytes": peak(),
            "flops_per_sample": flops_of(step, size),
        }


def make_step(module: nn.Module, inputs: Inputs, told: Mapping[str, Any]) -> Callable[[], object]:
    """Make an inference, or a training step: forward, backward, and SGD at a learning rate of 0."""
    device, dtype = told["device"], ARITHMETIC[told["precision"]].dtype
    training, narrow = told["phase"] == "training", dtype is not torch.float32
    module.to(device).train(training)

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(
            device, dtype if narrow and not training and leaf.is_floating_point() else None
        )

    made = inputs(told["batch_size"])
    arguments = tree_map(moved, tuple(made) if isinstance(made, list | tuple) else (made,))
    if not training:
        if narrow:
            module.to(dtype)

        def infer() -> None:
            with torch.no_grad():
                module(*arguments)

        return infer
    module.requires_grad_(True)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.0)
    mixed = torch.autocast(torch.device(device).type, dtype=dtype, enabled=narrow)

    def train() -> None:
        optimiser.zero_grad()
        with mixed:
            output = module(*arguments)
            tensor = next((x for x in tree_leaves(output) if isinstance(x, Tensor)), None)
            if tensor is None:
                raise RuleError(
                    f"the model answers with a {type(output).__name__} without a tensor"
                )
            loss = tensor.float().mean()
        loss.backward()
        optimiser.step()

    return train


def flops_of(step: Callable[[], object], batch_size: int) -> float | None:
    """Count the FLOPs of one sample of a step. None without a product."""
    work = count_work(step, batch_size=batch_size)
    return None if work is None else work.step_flops / batch_size


if __name__ == "__main__":
    answer_or_reason(answer)
