"""What two processes gain on `threads = 1`, and what a training loses beside another one.

`python -m perf.threads [--pairs 3]` runs code in the sandbox on one processor, in turns: 1.2
processor seconds of one process, or of two that share them. Then a training alone, and two
trainings of two workers, which start at the same moment. Exits with 1 where a bar is missed.

It needs a machine with nothing else to do. Two processes get more of a busy processor than one.
"""

import argparse
import os
import subprocess
import sys
from functools import partial

from perf.box import package, run
from perf.harness import Bars, in_turn

LEAST_OF_ONE, MOST_OF_ALONE = 0.95, 1.05
# The code of each case has the number of its processes, or of its steps, in front.
COUNTING = """
import os
import time

def prepare(task): pass

def train(prepared, data, seed):
    child = os.fork() if PROCESSES == 2 else 0
    until = time.process_time() + 1.2 / PROCESSES
    while time.process_time() < until:
        pass
    if PROCESSES == 2:
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    yield lambda inputs: bytes(8)
"""
TRAINING = """
import numpy as np

def prepare(task):
    rng = np.random.default_rng(0)
    return rng.standard_normal((2048, 256)), rng.standard_normal((256, 64))

def train(prepared, data, seed):
    x, w = prepared
    h, gradient = np.empty((2048, 64)), np.empty((256, 64))
    for step in range(600):
        np.tanh(np.matmul(x, w, out=h), out=h)
        np.matmul(x.T, h, out=gradient)
        gradient *= 1e-6
        w -= gradient
    yield lambda inputs: bytes(8)
"""


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        print(seconds_of(TRAINING))
        return 0
    bars = Bars("threads")
    bars.say(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors")
    counting = {f"{n}": partial(seconds_of, f"PROCESSES = {n}\n{COUNTING}") for n in (1, 2)}
    found = in_turn(counting, given.pairs)
    for one, two in zip(*found.values(), strict=True):
        name = f"two processes over one, {two:.2f} and {one:.2f} s"
        bars.hold(name, two / one, at_least=LEAST_OF_ONE)
    training = {f"{n}": partial(slowest_of, n) for n in (1, 2)}
    found = in_turn(training, given.pairs, warm=True)
    for alone, beside in zip(*found.values(), strict=True):
        name = f"beside another training over alone, {beside:.2f} and {alone:.2f} s"
        bars.hold(name, beside / alone, at_most=MOST_OF_ALONE)
    bars.say(f"load {os.getloadavg()[0]:.1f}")
    return bars.exit_code


def seconds_of(code: str) -> float:
    """Measured seconds of a module in the sandbox, up to its predictions."""
    with package(code) as order:
        return run(order).asks[-1].seconds


def slowest_of(workers: int) -> float:
    """Measured seconds of the slowest of so many trainings, each of a worker process of its own."""
    command = [sys.executable, "-m", "perf.threads", "--train"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(workers)]
    return max(float(each.communicate()[0]) for each in started)


if __name__ == "__main__":
    sys.exit(main())
