"""One process of a digits training: `two_processes.py OUT`, by torch's launcher or alone.

Trains in single and in double precision and writes, for each, the loss of every step (the mean
over the processes) and the quality of every evaluation.
"""

import json
import os
import sys
from pathlib import Path

import torch

from reference_models import Measurement, digits


def curves(dtype: torch.dtype) -> list[list[float]]:
    """Losses and qualities of two epochs in one precision."""
    torch.set_default_dtype(dtype)
    losses: list[float] = []
    step, split = digits.train_step, digits.load_split

    def noted_step(*arguments, world=None, **named):
        loss = step(*arguments, world=world, **named)
        if world is not None:  # The warm-up has none.
            losses.append(world.mean(loss.clone()).item())
        return loss

    def split_in_precision():
        return [part.to(dtype) if part.is_floating_point() else part for part in split()]

    digits.train_step, digits.load_split = noted_step, split_in_precision
    config = digits.configure({"epochs": 2})
    run = digits.train(config, seed=5, device="cpu", data_dir=Path())
    qualities = [item.quality for item in run if isinstance(item, Measurement)]
    digits.train_step, digits.load_split = step, split
    return [losses, qualities]


def main(out: str) -> None:
    torch.set_num_threads(1)
    found = {"single": curves(torch.float32), "double": curves(torch.float64)}
    Path(f"{out}.{os.environ.get('RANK', '0')}").write_text(json.dumps(found))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
