"""Training process of perf/dispatch_worker.py: the worker's own, which trains nothing.

It imports no more than a worker's training process does.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import reference_models
from finishline.rules.scoring.run import Phase
from reference_models import Measurement
from worker import child

CURVE = (50.0, 80.0, 96.0, 98.0)


def train(config: Any, *, seed: int, device: str, data_dir: Path) -> Iterator[Phase | Measurement]:
    """Reaches its target at once, on a curve that no other seed has."""
    own = seed % 2**40 * 2**-40
    yield from (Phase.WARMUP, Phase.DATA, Phase.TRAIN)
    for epoch, quality in enumerate(CURVE, 1):
        yield Phase.EVAL
        yield Measurement(epoch=epoch, samples=epoch * 1152, quality=quality + own)
        yield Phase.TRAIN


if __name__ == "__main__":
    sys.modules["nothing"] = SimpleNamespace(  # type: ignore[assignment]
        DATA_SET_SHA256="nothing", configure=dict, train=train
    )
    reference_models.REFERENCES["nothing"] = "nothing"
    child.main()
