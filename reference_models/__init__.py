"""The reference trainings: one readable file per benchmark, each a generator of measurements.

A reference module offers

* `DATA_SET_SHA256`: the hash of the data set it trains on, None where it has none;
* `configure(hyperparameters) -> Config`: a checked, frozen configuration from plain numbers.
  Raises HyperparameterError by name for one that is unknown, missing its limits or no number;
* `PRECISIONS`, where it can train in several: the first, fp32, is its own, and its configuration
  has a field `precision`;
* `train(config, *, seed, device, data_dir) -> Iterator[Phase | Measurement]`: the training;
* `synthetic(config, device) -> Synthetic`, where it can: one training step and one inference on
  made-up tensors of the data set's shape, by the very functions that `train` uses. Throughput,
  FLOPs and precision are measured with it, so it needs no data set and teaches nothing.

The yields of `train` are all a stopwatch needs. A `Phase` means "from here on the time belongs to
this phase". All before the first one is `Phase.INIT`. A `Measurement` comes after each evaluation
and carries no time: the reader keeps the clock. Preparing (`INIT`, `COMPILE`, `WARMUP`) ends before
the run first touches training data. An accelerator is synchronised before every yield. Stopping
early is not asking for the next one.

A reference with a trained model that can be timed also offers

* `Measurement.model`: the module that was evaluated, to be used before the next item is asked for;
* `evaluation_items(*, device, data_dir)`: inputs of that module for each item of the evaluation
  set, in order: tuples of tensors with a first dimension of 1.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from finishline.rules.errors import RuleError
from finishline.rules.run import Phase

REFERENCES = {
    "cifar10": "reference_models.cifar10",
    "digits": "reference_models.digits",
    "fashion": "reference_models.fashion",
    "grammar": "reference_models.grammar",
    "imagenet": "reference_models.imagenet",
    "squad": "reference_models.squad",
    "text": "reference_models.text",
}


@dataclass(frozen=True)
class Measurement:
    """One quality measurement of a training. `epoch` and `samples` count the training so far.

    `model` is the measured torch module, None if the reference keeps it.
    """

    epoch: float
    samples: int
    quality: float
    model: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Synthetic:
    """A training step and an inference on made-up data, each repeatable.

    A step trains on `batch_size` items. An epoch has `steps_per_epoch` of them. `infer` answers for
    `inference_items` items at once. The caller synchronises the device.
    """

    batch_size: int
    steps_per_epoch: int
    train_step: Callable[[], object]
    inference_items: int
    infer: Callable[[], object]


class HyperparameterError(RuleError):
    """The reference refuses a hyperparameter or its value."""


class DataSetError(RuleError):
    """The data set on this machine differs from the benchmark's."""


class DeviceError(RuleError):
    """The device a training was sent to is missing or lacks a required feature."""


class PrecisionError(RuleError):
    """The training's device lacks arithmetic in the requested precision."""


class TrainingDivergedError(RuntimeError):
    """The loss stopped being a finite number."""


class UnknownReferenceError(RuleError):
    """The name is unknown."""


class Reference(Protocol):
    """A module of this package, as the table below loads it."""

    DATA_SET_SHA256: str | None

    def configure(self, hyperparameters: Mapping[str, float]) -> Any:
        """Make a checked configuration."""

    def train(
        self, config: Any, *, seed: int, device: str, data_dir: Path
    ) -> Iterator[Phase | Measurement]:
        """Return the training."""


def synthetic_of(reference: Reference, config: Any, device: str) -> Synthetic | None:
    """Return a reference's synthetic step and inference, None if it offers none."""
    make = getattr(reference, "synthetic", None)
    return None if make is None else cast(Synthetic, make(config, device))


def load_reference(name: str) -> Reference:
    """Import the module of a reference training, and torch with it."""
    if name not in REFERENCES:
        raise UnknownReferenceError(
            f"no reference training is named {name!r}",
            field="reference",
            expected=" or ".join(sorted(REFERENCES)),
        )
    return cast(Reference, importlib.import_module(REFERENCES[name]))
