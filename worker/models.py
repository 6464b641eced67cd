"""Models by a SPEC: `torchvision:NAME`, `hf:NAME` or `FILE.py:FUNCTION`, with random weights.

Nothing is downloaded: torchvision builds without weights, transformers from a config class.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from finishline.rules.errors import RuleError
from reference_models.grammar_generation import CachedByteGPT

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
        # The first ids are special; padding among them would shorten a text.
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
