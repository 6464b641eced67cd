"""One of two processes that train together: `two_processes.py OUT`.

Trains digits in single and in double precision and grammar for an epoch. Writes for each of digits
the loss of every step (the mean over the processes) and the quality of every evaluation, for
grammar the latter.
"""

import json
import os
import sys
from pathlib import Path

import torch

from reference_models import Measurement, digits, grammar


def curves(dtype, *, epochs):
    """Losses and qualities of some epochs of digits in one precision."""
    losses = []
    step, split = digits.train_step, digits.load_split

    def noted_step(*arguments, world=None, **named):
        loss = step(*arguments, world=world, **named)
        if world is not None:  # The warm-up has none.
            losses.append(world.mean(loss.clone()).item())
        return loss

    def split_in_precision():
        return [part.to(dtype) if part.is_floating_point() else part for part in split()]

    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    digits.train_step, digits.load_split = noted_step, split_in_precision
    try:
        return [losses, qualities(digits, seed=5, epochs=epochs)]
    finally:
        digits.train_step, digits.load_split = step, split
        torch.set_default_dtype(usual)


def qualities(reference, *, seed, epochs):
    """The quality of every evaluation of a training."""
    config = reference.configure({"epochs": epochs})
    run = reference.train(config, seed=seed, device="cpu", data_dir=Path())
    return [item.quality for item in run if isinstance(item, Measurement)]


def main(out):
    torch.set_num_threads(1)
    found = {
        "single": curves(torch.float32, epochs=1),
        "double": curves(torch.float64, epochs=2),
        "grammar": qualities(grammar, seed=7, epochs=1),
    }
    Path(f"{out}.{os.environ['RANK']}").write_text(json.dumps(found))
    os._exit(0)  # Tearing down a process group can abort.


if __name__ == "__main__":
    main(*sys.argv[1:])
