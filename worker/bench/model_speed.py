"""Speed and work of any model: `python -m worker.bench.model_speed`, for each result.

It reads {"model", "tokens", "precision", "device", "seconds", "phase", "batch_size"}. Without a
phase it answers {"parameters", "flops_per_sample"}, else the seconds of each batch, joules, peak
memory and FLOPs of a sample. Or {"missing"} with a sentence. torch is synchronised at each batch.

Models have a SPEC: `torchvision:NAME`, `hf:NAME` or `FILE.py:FUNCTION`. Their weights are random:
nothing is downloaded, torchvision builds without weights, transformers from a config class.
"""

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from finishline.rules.errors import RuleError
from reference_models.grammar_generation import CachedByteGPT
from reference_models.memory import naming_batch_size
from worker.events import accelerator_peak_bytes, answer_orders, resident_peak_bytes
from worker.machine.latency import first_line, synchronise
from worker.machine.peak import BF16, FP16, FP32, TF32, find_device
from worker.machine.precision import count_work
from worker.machine.sensors import open_sensors

Inputs = Callable[[int], tuple[Any, ...]]
PICTURE_SIDES = {"inception_v3": 299}
PICTURE_SIDE = 224


def build_model(spec: str, *, tokens: int) -> tuple[nn.Module, Inputs]:
    """The module of a SPEC and its inputs by batch size. Raises RuleError."""
    kind, _, name = spec.partition(":")
    if kind == "torchvision":
        return _from_torchvision(name)
    if kind == "hf":
        return _from_transformers(name, tokens)
    path, _, function = spec.rpartition(":")
    return _from_file(Path(path), function)


def build_generator(spec: str) -> nn.Module:
    """The module of a SPEC that generates: called as transformers calls one. Raises RuleError."""
    if spec == "grammar":
        return CachedByteGPT()
    if not spec.startswith("hf:"):
        return build_model(spec, tokens=1)[0]
    name = spec.removeprefix("hf:")
    transformers = _import("transformers", "transformers", "transformers")
    try:
        config = transformers.AutoConfig.for_model(name)
        if name == "roberta":
            config.is_decoder = True  # Else it sees the tokens to come.
        module: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    except (KeyError, ValueError) as error:
        said = str(error).strip().splitlines()[0][:200]
        raise RuleError(f"transformers makes no generating {name!r}: {said}") from error
    return module


def _from_torchvision(name: str) -> tuple[nn.Module, Inputs]:
    models = _import("torchvision", "torchvision.models", "'finishline-server[vision]'")
    if name not in models.list_models(module=models):
        raise RuleError(f"torchvision has no image classifier {name!r}", field="model")
    # The weights of two of them would otherwise be drawn by a slow generator, with a warning.
    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    side = PICTURE_SIDES.get(name, PICTURE_SIDE)
    module = models.get_model(name, weights=None, **more)
    return module, lambda batch_size: (torch.randn(batch_size, 3, side, side),)


def _from_transformers(name: str, tokens: int) -> tuple[nn.Module, Inputs]:
    transformers = _import("transformers", "transformers", "transformers")
    config = transformers.RobertaConfig()
    longest = config.max_position_embeddings - config.pad_token_id - 1
    if tokens > longest:
        raise RuleError(
            f"hf:{name} takes no {tokens} tokens", field="tokens", expected=f"1 to {longest}"
        )

    def inputs(batch_size: int) -> tuple[Tensor]:
        # The first ids are special. Padding among them would shorten a text.
        return (torch.randint(4, config.vocab_size, (batch_size, tokens)),)

    return transformers.RobertaModel(config), inputs


def _import(package: str, module: str, install: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RuleError(
            f"{package} is not installed here ({error}); install it with `pip install {install}`"
        ) from error


def _from_file(path: Path, function: str) -> tuple[nn.Module, Inputs]:
    where = f"{path}:{function}"
    found = importlib.util.spec_from_file_location("benched_model", path)
    if found is None or found.loader is None:
        raise RuleError(f"{path} is no Python file", field="model")
    loaded = importlib.util.module_from_spec(found)
    sys.modules[found.name] = loaded
    sys.path.append(str(path.resolve().parent))
    try:
        found.loader.exec_module(loaded)
        make = getattr(loaded, function, None)
        if not callable(make):
            raise RuleError(f"{path} has no function {function!r}", field="model")
        made = make()
    except RuleError:
        raise
    except Exception as error:
        raise RuleError(f"{where} failed: {type(error).__name__}: {error}") from error
    if not (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], nn.Module)
        and callable(made[1])
    ):
        raise RuleError(
            f"{where} returned a {type(made).__name__}",
            expected="a tuple of a torch module and a function inputs(batch_size)",
        )
    return made[0], made[1]


ARITHMETIC = {each.name: each for each in (FP32, TF32, BF16, FP16)}
WARM_UP_CALLS = 5


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
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
            loss = _first(module(*arguments)).float().mean()
        loss.backward()
        optimiser.step()

    return train


def _first(output: Any) -> Tensor:
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    if not tensors:
        raise RuleError(f"the model answers with a {type(output).__name__} without a tensor")
    return tensors[0]


def flops_of(step: Callable[[], object], batch_size: int) -> float | None:
    """FLOPs of one sample of a step. None where it has no product that can be counted."""
    work = count_work(step, batch_size=batch_size)
    return None if work is None else work.step_flops / batch_size


def warm_up(call: Callable[[], object], *, seconds: float) -> None:
    """Call it some times, fewer where that takes longer than the seconds."""
    started = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        call()
        if time.perf_counter() - started > seconds:
            break


def repeat(timed: Callable[[], float], *, seconds: float) -> list[float]:
    """The seconds that each call returns until the time is up, at least one."""
    taken: list[float] = []
    started = time.perf_counter()
    while not taken or time.perf_counter() - started < seconds:
        taken.append(timed())
    return taken


def time_batches(step: Callable[[], object], told: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of each batch until the time is up, with energy and memory."""
    device, seconds = told["device"], told["seconds"]

    def timed() -> float:
        begun = time.perf_counter()
        step()
        synchronise(device)
        return time.perf_counter() - begun

    warm_up(timed, seconds=seconds)
    sensors = open_sensors(device)
    before = sensors.energy_joules() if sensors else None
    batches = repeat(timed, seconds=seconds)
    after = sensors.energy_joules() if sensors else None
    on_processor = not device.startswith("cuda")
    return {
        "batches": batches,
        "joules": None if before is None or after is None else after - before,
        "peak_memory_bytes": resident_peak_bytes() if on_processor else accelerator_peak_bytes(),
    }


def answer_any_model(
    measure: Callable[[Mapping[str, Any]], dict[str, Any]], told: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer of a measurement, or the sentence of the error that a model's code raised."""
    torch.backends.cudnn.benchmark = True
    try:
        return measure(told)
    except Exception as error:  # noqa: BLE001 - a model's code may raise anything
        plain = isinstance(error, RuleError | MemoryError)
        words = first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"
        return {"missing": words if plain else f"{told['model']}: {words}"}


if __name__ == "__main__":
    answer_orders(partial(answer_any_model, answer))
