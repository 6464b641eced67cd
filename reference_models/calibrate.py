"""Measure a reference at several batch sizes: `python -m reference_models.calibrate digits`.

Prints the `[[reference_runs]]` of a benchmark file, every evaluation of every run, and a summary on
standard error. Seeds count up from --first-seed. One thread on any machine.
"""

import argparse
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.benchmarks.quality import Direction, QualityTarget
from finishline.rules.run import Phase
from finishline.rules.verification.calibration import reference_run_toml
from reference_models import Measurement, load_reference


def calibrate(
    name: str, *, batch_size: int, seed: int, data_dir: Path
) -> tuple[list[float], list[float]]:
    """Quality at every evaluation of one run on one thread, and processor seconds from its data."""
    import torch

    torch.set_num_threads(1)
    reference = load_reference(name)
    config = reference.configure({"batch_size": batch_size})
    qualities, seconds, started = [], [], 0.0
    for item in reference.train(config, seed=seed, device="cpu", data_dir=data_dir):
        if item is Phase.DATA:
            started = time.process_time()
        elif isinstance(item, Measurement):
            qualities.append(item.quality)
            seconds.append(time.process_time() - started)
    return qualities, seconds


def epochs_to(
    quality: list[float], *, target: float, direction: Direction = "higher"
) -> int | None:
    """Return the first evaluation, counted from 1, at the target or beyond it."""
    goal = QualityTarget(metric="", value=target, unit="score", direction=direction)
    return next((index for index, value in enumerate(quality, 1) if goal.is_reached(value)), None)


def summary(curves: list[list[float]], *, target: float, direction: Direction = "higher") -> str:
    """Count the runs that reached the target, and their evaluations up to it."""
    found = (epochs_to(curve, target=target, direction=direction) for curve in curves)
    reached = [n for n in found if n is not None]
    if len(reached) < 2:
        return f"{len(reached)} of {len(curves)} seeds reached {target:g}"
    mean, std = statistics.mean(reached), statistics.stdev(reached)
    return (
        f"{len(reached)} of {len(curves)} seeds reached {target:g}"
        f" after {mean:.2f} +- {std:.2f} evaluations"
    )


def main() -> None:
    """Print the reference runs as TOML and the summary on standard error."""
    parser = argparse.ArgumentParser(prog="python -m reference_models.calibrate")
    parser.add_argument("reference")
    parser.add_argument("--batch-sizes", default="32,64,128")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--target", type=float, default=97.5)
    parser.add_argument("--direction", choices=("higher", "lower"), default="higher")
    parser.add_argument("--data-dir", type=Path, default=Path("var/data"))
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.batch_sizes.split(",")]
    print(
        f"# Made by `python -m reference_models.calibrate {' '.join(sys.argv[1:])}`,\n"
        f"# Python {platform.python_version()}, torch {version('torch')},"
        f" scikit-learn {version('scikit-learn')}, numpy {version('numpy')},\n"
        f"# one thread on {platform.machine()}, {time.strftime('%Y-%m-%d', time.gmtime())}."
    )
    for size in sizes:
        curves = []
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.runs):
            curve, seconds = calibrate(
                chosen.reference, batch_size=size, seed=seed, data_dir=chosen.data_dir
            )
            curves.append(curve)
            run = ReferenceRun(batch_size=size, seed=seed, quality=tuple(curve))
            print("\n" + reference_run_toml(run), flush=True)
            reached = epochs_to(curve, target=chosen.target, direction=chosen.direction)
            after = "not reached" if reached is None else f"{seconds[reached - 1]:.2f}"
            print(f"seed {seed}: processor seconds to the target: {after}", file=sys.stderr)
        told = summary(curves, target=chosen.target, direction=chosen.direction)
        print(f"batch size {size}: {told}", file=sys.stderr)


if __name__ == "__main__":
    main()
