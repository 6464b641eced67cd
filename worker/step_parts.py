"""Training steps of a reference, timed one by one and by their parts, without a change to it."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from finishline.rules.run import Phase
from reference_models import load_reference
from reference_models.communication import EXCHANGE
from reference_models.data import require_data
from reference_models.distributed import synchronise

PARTS = ("data", "forward", "backward", "optimizer")
WARM_UP_STEPS = 3
SEED = 0


class _EnoughError(Exception):
    """All steps that were asked for are done."""


class StepWatch:
    """Follow a training by torch's own hooks; a step ends with its optimiser's.

    Data lasts from there to the first call of a module, forward to the backward pass with the
    loss, optimiser with the clipping of gradients and the averaging of weights.
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
        self._begin_step()

    def enter(self, phase: Phase) -> None:
        """Begin a step with a train phase; one that another phase cuts short does not count."""
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
            self._switch("forward")

    def _before_optimiser(self, optimiser: Any, *_: Any) -> None:
        if self._training and self._optimiser is None:
            self._optimiser = optimiser  # The first of several ends the step.

    def begin_training(self) -> None:
        """Expect another optimiser than before."""
        self._optimiser = None

    @contextlib.contextmanager
    def watching(self, reference: Any) -> Iterator[None]:
        """Within it torch's hooks are set."""
        backward, average = torch.Tensor.backward, getattr(reference, "average", None)

        def timed_backward(tensor: Any, *arguments: Any, **named: Any) -> None:
            self._switch("backward" if self._training else None)
            backward(tensor, *arguments, **named)
            self._switch("optimizer" if self._training else None)

        def timed_average(*arguments: Any, **named: Any) -> Any:
            self._switch("optimizer" if self._training else None)
            found = average(*arguments, **named)  # type: ignore[misc]  # None is not called
            self._switch("data" if self._training else None)
            return found

        hooks = (
            register_module_forward_pre_hook(self._before_module),
            register_optimizer_step_pre_hook(self._before_optimiser),
            register_optimizer_step_post_hook(lambda optimiser, *_: self._end_step(optimiser)),
        )
        torch.Tensor.backward = timed_backward
        if average is not None:
            reference.average = timed_average
        try:
            yield
        finally:
            self._switch(None)
            torch.Tensor.backward = backward
            if average is not None:
                reference.average = average
            for hook in hooks:
                hook.remove()


def watch_steps(orders: Mapping[str, Any], *, steps: int, traced: bool = False) -> StepWatch:
    """Train for so many steps after a warm-up, over again where a training has fewer."""
    data_dir = Path(orders["data_dir"])
    require_data(orders["reference"], data_dir, orders["hyperparameters"])
    reference = load_reference(orders["reference"])
    config = reference.configure(orders["hyperparameters"])
    watch = StepWatch(orders["device"], steps=steps, traced=traced)
    with watch.watching(reference), contextlib.suppress(_EnoughError):
        while True:
            watch.begin_training()
            for item in reference.train(
                config, seed=SEED, device=orders["device"], data_dir=data_dir
            ):
                if isinstance(item, Phase):
                    watch.enter(item)
    return watch
