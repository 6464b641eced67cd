"""Train Fashion-MNIST's reference, the series of examples/fashion and a perceptron in turns.

The series begins with a first PyTorch training: two convolutions, Adam, batches of 64. The
perceptron is scikit-learn's MLPClassifier. Seconds are of one processor, from the data in memory to
the target, evaluations included. The perceptron's target is the highest accuracy that it reaches.
"""

import importlib.util
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.run import Phase
from perf.harness import CHECKOUT, Bars, run
from reference_models import Measurement, fashion
from reference_models.data import NEEDS

TARGET = load_benchmark(CHECKOUT / "benchmarks" / "fashion.toml").target.value
SERIES = {path.parent.name: path for path in sorted((CHECKOUT / "examples/fashion").glob("*/*.py"))}
DATA = Path("var/data")
PARTS = ("train", "test")
FIRST = "1_adam"
Curve = list[tuple[float, float]]  # Processor seconds and accuracy of each evaluation.


def curve(accuracies: Iterator[float], target: float = 101.0) -> Curve:
    """Run a training up to a target."""
    found: Curve = []
    started = time.process_time()
    for accuracy in accuracies:
        found.append((time.process_time() - started, accuracy))
        if accuracy >= target:
            break
    return found


def seconds_to(found: Curve, target: float) -> float:
    """Return the seconds to a target, infinite if it was missed."""
    return next((seconds for seconds, accuracy in found if accuracy >= target), float("inf"))


def train_reference(seed: int) -> Iterator[float]:
    """Accuracies of the reference. Preparing is over when this returns."""
    training = fashion.train(fashion.configure({}), seed=seed, device="cpu", data_dir=DATA)
    next(item for item in training if item is Phase.DATA)
    next(training)  # Reading the files, which the others are given.
    return (item.quality for item in training if isinstance(item, Measurement))


def train_package(name: str, seed: int, arrays: dict[str, NDArray[np.uint8]]) -> Iterator[float]:
    """Accuracies of a package of the series. Preparing is over when this returns."""
    spec = importlib.util.spec_from_file_location(name, SERIES[name])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.prepare({"threads": 1})
    training = module.train(None, {"x": arrays["train_x"], "y": arrays["train_y"]}, seed)
    inputs = {"x": arrays["test_x"]}
    return (100 * float(np.mean(predict(inputs) == arrays["test_y"])) for predict in training)


def train_perceptron(
    seed: int, arrays: dict[str, NDArray[np.uint8]], epochs: int
) -> Iterator[float]:
    """Accuracies of a perceptron of two layers of 256."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier((256, 256), random_state=seed)
    train_x, test_x = (arrays[f"{part}_x"].reshape(-1, 784) / np.float32(255) for part in PARTS)
    for _ in range(epochs):
        model.partial_fit(train_x, arrays["train_y"], classes=np.arange(10))
        yield 100 * float(model.score(test_x, arrays["test_y"]))


def measure(bars: Bars, *, rounds: int = 3, epochs: int = 40) -> None:
    """Train each with the seeds 0, 1, ... in turns."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if not NEEDS["fashion"].place(DATA).joinpath(NEEDS["fashion"].folder).is_dir():
        bars.not_measured("Fashion-MNIST is not here")
        return
    names = ("train_x", "train_y", "test_x", "test_y")
    tensors = fashion.read_images(DATA)
    arrays = {
        name: tensor.squeeze(1).numpy() if tensor.dim() == 4 else tensor.numpy()
        for name, tensor in zip(names, tensors, strict=True)
    }
    ratios: list[float] = []
    faster: list[float] = []
    with threadpool_limits(1):
        torch.set_num_threads(1)
        for seed in range(rounds):
            found: dict[str, Curve] = {}
            for name in ["reference", *SERIES, "perceptron"][:: 1 if seed % 2 == 0 else -1]:
                if name == "reference":
                    found[name] = curve(train_reference(seed))
                elif name == "perceptron":
                    found[name] = curve(train_perceptron(seed, arrays, epochs))
                else:
                    found[name] = curve(train_package(name, seed, arrays), TARGET)
                points = ", ".join(f"{accuracy:.2f} at {at:.1f} s" for at, accuracy in found[name])
                bars.say(f"seed {seed}, {name}: {points}")
            highest = max(accuracy for _, accuracy in found["perceptron"])
            for ratio, other, target in (
                (ratios, "first", TARGET),
                (faster, "perceptron", highest),
            ):
                ratio.append(
                    seconds_to(found["reference"], target) / seconds_to(found[other], target)
                )
    bars.hold("reference over a first training", statistics.median(ratios), at_most=1 / 3)
    bars.hold("reference over a perceptron at its highest", statistics.median(faster), at_most=1)


if __name__ == "__main__":
    run(measure)
