"""Cost of a sandbox against a plain process, its clock against the truth, and its one processor.

* The same packages run in a sandbox and as plain processes in turn: their start, training (by
  processor seconds, as other work on the machine lengthens all times), round trips and end;
* `--schedules` packages wait at random, with honest and with lying clocks, and tell when each
  prediction was made. The worker's stamp may be later by the transfer and 2 ms, never earlier;
* `threads = 1`, on a machine with nothing else to do: 1.2 processor seconds of one process, or of
  two that share them, and a training alone or next to another worker's.

`--only cost`, `clock` or `threads` measures one part.
"""

import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from perf.harness import Bars, in_turn, median_ratio, percentiles, run
from worker.sandbox.course import Ask, Course, RaceResult
from worker.sandbox.order import Order
from worker.sandbox.packages import requirements_of
from worker.sandbox.protocol import ArraySpec, Limits
from worker.sandbox.race import race
from worker.sandbox.start import Box

START_MS, CPU_RATIO, ROUND_TRIP_US, KILL_MS, WORKER_SHARE = 120.0, 1.01, 100.0, 50.0, 0.01
TRIPS = 2000
LATEST_SECONDS = 0.002
LONGEST_WAIT_SECONDS = 0.02
ASKS = 4
LEAST_OF_ONE, MOST_OF_ALONE = 0.95, 1.05
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
WAITING = """
import json, time
from pathlib import Path

true, wait = time.perf_counter, time.sleep
if json.loads(Path(__file__).with_name("schedule.json").read_text())["lies"]:
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, name + "_ns", lambda: 0)
    time.sleep = lambda seconds: None

def prepare(task):
    return json.loads(Path(__file__).with_name("schedule.json").read_text())["waits"]

def train(waits, data, seed):
    began = true()
    ends = []

    def predict(inputs):
        wait(waits[len(ends)][1])
        ends.append(true() - began)
        return bytes(8)

    for before, _ in waits:
        computed = true() + before
        while true() < computed:
            pass
        yield predict
    print("ENDS", json.dumps(ends))
"""


@contextmanager
def package(code: str, **files: str) -> Iterator[Order]:
    """Write a package of one module with JSON files, and yield its order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "train.py").write_text(code)
        for file, content in files.items():
            (folder / f"{file}.json").write_text(content)
        limits = Limits(memory_bytes=1 << 30, max_evaluations=TRIPS, run_seconds=300.0)
        yield Order(folder, "train", dict(requirements_of(["numpy"])), limits=limits)


def train(order: Order, on_ask: Callable[[Ask], None] = lambda _: None) -> RaceResult:
    """Train an order's package, which misses its target."""
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
    """Return the last number that a package printed."""
    return float(train(order).log_tail.split()[-1])


def seconds_of(code: str) -> float:
    """Measured seconds of a module up to its last predictions."""
    with package(code) as order:
        return train(order).asks[-1].seconds


def slowest_of(workers: int) -> float:
    """Return the seconds of the slowest of several trainings, each in a worker process."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return max(pool.map(seconds_of, [TRAINING.replace("STEPS", "600")] * workers, chunksize=1))


def start_seconds(order: Order) -> float:
    """Return seconds from the start to the runner's first frame."""
    return train(order).ledger.init


def kill_seconds(order: Order) -> float:
    """Return seconds in which a box of eight busy processes is killed and its log has ended."""
    with Box(order) as box:
        box.socket.recv(1)
        time.sleep(0.02)
        began = time.perf_counter()
        box.kill()
        return time.perf_counter() - began


def worker_share(order: Order) -> float:
    """Processor seconds of this process for each second of the package, between its evaluations."""
    seen: list[tuple[float, float]] = []
    train(order, lambda ask: seen.append((ask.seconds, time.process_time())))
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


def both(measure: Callable[[Order], float], order: Order, rounds: int) -> list[list[float]]:
    """Take a measure of a box and of a plain process, in turn."""
    plain = replace(order, backend="plain")
    cases = {"box": partial(measure, order), "plain": partial(measure, plain)}
    return list(in_turn(cases, rounds, warm=True).values())


@dataclass(frozen=True)
class Schedule:
    """Seconds of computing before each evaluation and of waiting in it. Whether clocks lie."""

    waits: Sequence[tuple[float, float]]
    lies: bool


def draw_schedule(seed: int) -> Schedule:
    """Draw a schedule. With an odd seed its clocks lie."""
    drawn, longest = random.Random(seed), LONGEST_WAIT_SECONDS
    waits = [(drawn.uniform(0, longest), drawn.uniform(0, longest)) for _ in range(ASKS)]
    return Schedule(waits, lies=seed % 2 == 1)


def lateness(schedule: Schedule) -> list[float]:
    """Return seconds by which the worker's stamp of each evaluation is later than the truth."""
    with package(WAITING, schedule=json.dumps(vars(schedule))) as order:
        result = train(order)
    line = next(line for line in result.log_tail.splitlines() if line.startswith("ENDS "))
    ends = json.loads(line.removeprefix("ENDS "))
    return [ask.seconds - end for ask, end in zip(result.asks, ends, strict=True)]


def measure(
    bars: Bars,
    *,
    only: str = "",
    starts: int = 20,
    pairs: int = 20,
    steps: int = 200,
    trips: int = 5,
    kills: int = 100,
    schedules: int = 1000,
    threads: int = 3,
) -> None:
    """Measure the cost, the clock and the processor of a sandbox, or a part."""
    if only in ("", "cost"):
        hold_start_and_end(bars, starts=starts, kills=kills)
        hold_training(bars, pairs=pairs, steps=steps, trips=trips)
    if only in ("", "clock"):
        hold_clock(bars, schedules)
    if only in ("", "threads"):
        hold_threads(bars, threads)


def hold_start_and_end(bars: Bars, *, starts: int, kills: int) -> None:
    """Compare the start over a plain process, and the end, with their bars."""
    with package("def prepare(task): pass\ndef train(*_): yield from ()") as order:
        boxed, plain = both(start_seconds, order, starts)
    more = 1000 * (statistics.median(boxed) - statistics.median(plain))
    bars.hold(f"start over a plain process, median of {starts}", more, " ms", at_most=START_MS)
    with package(SPINNING) as order:
        _, p99 = percentiles([1000 * kill_seconds(order) for _ in range(kills)])
    bars.hold(f"kill to reaped, p99 of {kills}", p99, " ms", at_most=KILL_MS)


def hold_training(bars: Bars, *, pairs: int, steps: int, trips: int) -> None:
    """Compare training and round trips with their bars."""
    with package(TRAINING.replace("STEPS", str(steps))) as order:
        boxed, plain = both(told, order, pairs)
        share = statistics.median(worker_share(order) for _ in range(3))
    ratio = median_ratio(boxed, plain)
    bars.hold("training, processor seconds over plain", ratio, at_most=CPU_RATIO)
    bars.hold("worker's own processor share", share, at_most=WORKER_SHARE)
    with package(ASKING.replace("TRIPS", str(TRIPS))) as order:
        boxed, plain = both(told, order, trips)
    bars.say(f"round trip of a plain process {1e6 * statistics.median(plain):.1f} us")
    bars.hold("round trip", 1e6 * statistics.median(boxed), " us", at_most=ROUND_TRIP_US)


def hold_clock(bars: Bars, schedules: int) -> None:
    """Compare the stamps of honest and lying clocks with the truth."""
    late: dict[bool, list[float]] = {False: [], True: []}
    for schedule in map(draw_schedule, range(schedules)):
        late[schedule.lies] += lateness(schedule)
    for who, seconds in (("honest", late[False]), ("lying", late[True])):
        median, p99 = (1000 * value for value in percentiles(seconds))
        bars.say(f"{who} clocks: {len(seconds)} stamps, median {median:.3f}, p99 {p99:.3f} ms late")
        bars.hold(f"{who} clocks, earliest", 1000 * min(seconds), " ms", at_least=0.0)
        latest = 1000 * LATEST_SECONDS
        bars.hold(f"{who} clocks, latest", 1000 * max(seconds), " ms", at_most=latest)


def hold_threads(bars: Bars, pairs: int) -> None:
    """Compare two processes with one, and two trainings at once with one alone."""
    bars.say(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors")
    counting = {f"{n}": partial(seconds_of, f"PROCESSES = {n}\n{COUNTING}") for n in (1, 2)}
    one, two = in_turn(counting, pairs).values()
    bars.hold("two processes over one", median_ratio(two, one), at_least=LEAST_OF_ONE)
    training = {f"{n}": partial(slowest_of, n) for n in (1, 2)}
    alone, beside = in_turn(training, pairs, warm=True).values()
    bars.hold("beside another over alone", median_ratio(beside, alone), at_most=MOST_OF_ALONE)


if __name__ == "__main__":
    run(measure)
