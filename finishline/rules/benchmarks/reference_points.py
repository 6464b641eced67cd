"""Reference convergence points (RCPs): how soon the reference model converges."""

from dataclasses import dataclass
from typing import Literal

SpreadOf = Literal["trimmed", "all"]
ConvergenceUnit = Literal["epoch_num", "samples_count"]


@dataclass(frozen=True)
class ReferencePoint:
    """Epochs (or samples) the reference model took to converge, run by run, at one batch size."""

    batch_size: int
    epochs: tuple[float, ...]
