"""Cost of a box: its start, its training, its round trips and its end, against a plain process.

`python -m perf.box` runs the same packages in a box and as plain processes in turn. Trainings are
compared by processor seconds, as other work on the machine lengthens all times. Exit code 1 if a
bar is missed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from finishline.rules.trainings.protocol import ArraySpec, Limits
from perf.harness import Bars, in_turn, percentiles
from worker.box.order import Order
from worker.box.packages import requirements_of
from worker.box.race import Ask, Course, RaceResult, race
from worker.box.start import Box

START_MS, CPU_RATIO, ROUND_TRIP_US, KILL_MS, WORKER_SHARE = 120.0, 1.01, 100.0, 50.0, 0.01
TRIPS = 2000
# In place: whether glibc keeps freed memory depends on the layout of the heap, and that on the
# arguments of a process. With temporaries a box had 480 page faults a step, a plain process 258.
TRAINING = """
import time
import numpy as np

def prepare(task):
    rng = np.random.default_rng(0)
    return rng.standard_normal((2048, 256)), rng.standard_normal((256, 64))

def train(prepared, data, seed):
    x, w = prepared
    h, gradient = np.empty((2048, 64)), np.empty((256, 64))
    began = time.process_time()
    for step in range(STEPS):
        np.tanh(np.matmul(x, w, out=h), out=h)
        np.matmul(x.T, h, out=gradient)
        gradient *= 1e-6
        w -= gradient
        if step % (STEPS // 10) == 0:
            yield lambda inputs: bytes(8)
    print("CPU", time.process_time() - began)
"""
ASKING = """
import time

def prepare(task): pass

def train(prepared, data, seed):
    waits = []
    for _ in range(TRIPS):
        asked = time.perf_counter()
        def predict(inputs):
            waits.append(time.perf_counter() - asked)
            return bytes(8)
        yield predict
    print("WAIT", sorted(waits)[TRIPS // 2])
"""
SPINNING = """
import os, time

def prepare(task):
    for _ in range(7):
        if os.fork() == 0:
            while time.process_time() < 30: pass
            os._exit(0)
    time.sleep(30)
"""


@contextmanager
def package(code: str) -> Iterator[Order]:
    """An order for a package of one module."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "train.py").write_text(code)
        limits = Limits(memory_bytes=1 << 30, max_evaluations=TRIPS, run_seconds=300.0)
        yield Order(folder, "train", dict(requirements_of(["numpy"])), limits=limits)


def run(order: Order, on_ask: Callable[[Ask], None] = lambda _: None) -> RaceResult:
    """Train an order's package, which reaches nothing."""
    course = Course(
        task={"benchmark": "cost", "factors": {}},
        train={"x": np.zeros(8, dtype=np.uint8)},
        inputs={"x": np.zeros(8, dtype=np.uint8)},
        prediction=ArraySpec("uint8", (8,)),
        score=lambda _: (0.0, 0.0),
        target=1.0,
    )
    result = race(order, course, seed=0, on_ask=on_ask)
    assert result.status == "not_reached", result
    return result


def told(order: Order) -> float:
    """The number that a package printed last."""
    return float(run(order).log_tail.split()[-1])


def start_seconds(order: Order) -> float:
    """Seconds from the start to the runner's first frame."""
    return run(order).ledger.init


def kill_seconds(order: Order) -> float:
    """Seconds in which a box of eight busy processes is killed and its log has ended."""
    with Box(order) as box:
        box.socket.recv(1)
        time.sleep(0.02)
        began = time.perf_counter()
        box.kill()
        return time.perf_counter() - began


def worker_share(order: Order) -> float:
    """Processor seconds of this process for each second of the package, between its evaluations."""
    seen: list[tuple[float, float]] = []
    run(order, lambda ask: seen.append((ask.seconds, time.process_time())))
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


def both(measure: Callable[[Order], float], order: Order, rounds: int) -> list[list[float]]:
    """A measure of a box and of a plain process, in turn."""
    plain = replace(order, backend="plain")
    cases = {"box": partial(measure, order), "plain": partial(measure, plain)}
    return list(in_turn(cases, rounds, warm=True).values())


def main() -> int:
    """Measure everything in turn; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of trainings")
    parser.add_argument("--steps", type=int, default=200, help="steps of a training")
    parser.add_argument("--trips", type=int, default=5, help=f"pairs of {TRIPS} round trips")
    parser.add_argument("--kills", type=int, default=100)
    given = parser.parse_args()
    bars = Bars("box")
    training = TRAINING.replace("STEPS", str(given.steps))

    with package("def prepare(task): pass\ndef train(*_): yield from ()") as order:
        boxed, bare = both(start_seconds, order, given.starts)
    more = 1000 * (statistics.median(boxed) - statistics.median(bare))
    bars.hold(
        f"start over a plain process, median of {given.starts}", more, " ms", at_most=START_MS
    )

    with package(training) as order:
        boxed, bare = both(told, order, given.pairs)
        share = statistics.median(worker_share(order) for _ in range(3))
    ratios = [one / other for one, other in zip(boxed, bare, strict=True)]
    bars.say(f"ratios of {given.pairs} pairs: {min(ratios):.3f} to {max(ratios):.3f}")
    bars.hold(
        "training, processor seconds over plain", statistics.median(ratios), at_most=CPU_RATIO
    )
    bars.hold("worker's own processor share", share, at_most=WORKER_SHARE)

    with package(ASKING.replace("TRIPS", str(TRIPS))) as order:
        boxed, bare = both(told, order, given.trips)
    bars.say(f"round trip of a plain process {1e6 * statistics.median(bare):.1f} us")
    bars.hold("round trip", 1e6 * statistics.median(boxed), " us", at_most=ROUND_TRIP_US)

    with package(SPINNING) as order:
        median, p99 = percentiles([1000 * kill_seconds(order) for _ in range(given.kills)])
    bars.say(f"kill to reaped, median {median:.2f} ms")
    bars.hold(f"kill to reaped, p99 of {given.kills}", p99, " ms", at_most=KILL_MS)
    return bars.exit_code


if __name__ == "__main__":
    sys.exit(main())
