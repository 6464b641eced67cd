"""How much faster is the example than scikit-learn's MLPClassifier? `python perf/fast_digits.py`.

Both train on the benchmark's split until 97.5 % of the test images are recognised, one thread each,
in turns, so that a neighbour slows both. Times are from loaded images to the evaluation at the
target, evaluations included. The classifier has two hidden layers of 256 and trains epoch by epoch.
"""

import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples import fast_digits

TARGET_PERCENT = 97.5
MOST_EPOCHS = 200
SEEDS = range(1000, 1020)


def seconds_of_example(split: fast_digits.Split, seed: int) -> float | None:
    """Seconds to the target, None if it is never reached."""
    start = time.perf_counter()
    reached = any(q >= TARGET_PERCENT for q in fast_digits.accuracies(split, seed=seed))
    return time.perf_counter() - start if reached else None


def seconds_of_classifier(split: fast_digits.Split, seed: int) -> float | None:
    """Seconds to the target, None if it is not reached in MOST_EPOCHS epochs."""
    start = time.perf_counter()
    model = MLPClassifier((256, 256), random_state=seed)
    for _ in range(MOST_EPOCHS):
        model.partial_fit(split.train_x, split.train_y, classes=np.arange(10))
        if 100 * model.score(split.test_x, split.test_y) >= TARGET_PERCENT:
            return time.perf_counter() - start
    return None


def main() -> None:
    """Print the times of both, seed by seed, and their ratio."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    split = fast_digits.load_split()
    fast_digits.warm_up()
    seconds_of_classifier(split, 0)
    ours, theirs = [], []
    for seed in SEEDS:
        ours.append(seconds_of_example(split, seed))
        theirs.append(seconds_of_classifier(split, seed))
        print(f"seed {seed}: {ours[-1]} s, {theirs[-1]} s", flush=True)
    for name, seconds in (("example", ours), ("MLPClassifier", theirs)):
        told = [s for s in seconds if s is not None]
        print(
            f"{name}: {len(told)} of {len(seconds)} seeds, mean {statistics.mean(told):.4f} s,"
            f" sd {statistics.stdev(told):.4f} s, worst {max(told):.4f} s"
        )
    means = [statistics.mean(s for s in seconds if s is not None) for seconds in (ours, theirs)]
    print(f"ratio of the means: {means[0] / means[1]:.3f}")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
