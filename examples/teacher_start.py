"""Make the carried start of examples/packages/teacher_carried: weights learned on other draws.

Reptile: from one start, train on a draw of its own for 1,500 steps, and move the start a part of
the way to the end; 150 draws, about three minutes on one core.

    python examples/teacher_start.py

Source of the method: Nichol, Achiam and Schulman (2018), "On First-Order Meta-Learning Algorithms".
"""

import argparse
import base64
import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ROOT / "examples" / "packages" / "teacher_carried"
SIZES, BIAS = (32, 96, 64, 8), 4.0
DRAWS, STEPS, BATCH, RATE, WARM_UP, PART = 150, 1_500, 256, 8e-3, 0.1, 0.3
SPREAD = np.float32(73.3)


def load(file: Path) -> ModuleType:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(net: Any, task: Any, draw: np.random.Generator) -> None:
    """Train on one draw, from the net's weights and with fresh moments."""
    x, y = task.train["x"] / SPREAD, task.train["y"].astype(np.intp)
    net.mean[:] = net.square[:] = 0
    for number in range(STEPS):
        batch = draw.integers(0, len(x), BATCH)
        net.backward(x[batch], y[batch])
        done = number / STEPS
        net.step(number + 1, RATE * min(done / WARM_UP, (1 - done) / (1 - WARM_UP)))


def learn_start(draws: int) -> np.ndarray:
    """The weights from which a new draw is learned soonest."""
    teacher = load(ROOT / "benchmarks" / "teacher" / "task.py")
    draw = np.random.default_rng(0)
    net = load(CARRIED / "net.py").Net(SIZES, draw, bias=BIAS)
    start = net.weights.copy()
    for number in range(draws):
        net.weights[:] = start
        train(net, teacher.draw(b"carried %d" % number), draw)
        start += np.float32(PART * (1 - number / draws)) * (net.weights - start)
    return start


def main() -> None:
    """Write the start as text: base64 of half-precision floats, little endian."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--out", type=Path, default=CARRIED / "start.txt")
    given = parser.parse_args()
    text = base64.b64encode(learn_start(given.draws).astype("<f2").tobytes()).decode()
    given.out.write_text("\n".join(textwrap.wrap(text, 100)) + "\n")


if __name__ == "__main__":
    main()
