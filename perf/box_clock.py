"""The clock of boxes against the truth: packages that wait at random, with honest and lying clocks.

`python -m perf.box_clock` trains as many packages as there are schedules, each in a box of its own.
A package computes before its evaluations and waits in them, for times drawn from a seed. It tells,
by the host's monotonic clock, when its training began and when each prediction was made. The
worker's seconds may be later by the transfer and 2 ms, never earlier. Every other package replaces
all functions of the module `time` that tell one. Exit code 1 if a bar is missed.

A worker stamps when it is woken up. Where every processor is busy the kernel lets it wait, so the
same is measured first between two plain processes that a pipe joins.
"""

import argparse
import json
import os
import random
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from finishline.rules.trainings.protocol import ArraySpec, Limits
from perf.harness import Bars, percentiles
from worker.box.order import Order
from worker.box.race import Course, race

LATEST_SECONDS = 0.002
LONGEST_WAIT_SECONDS = 0.02
ASKS = 4
WAKE_UPS = 500
PACKAGE = """
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


@dataclass(frozen=True)
class Schedule:
    """Seconds of computing before each evaluation and of waiting in it; whether clocks lie."""

    waits: Sequence[tuple[float, float]]
    lies: bool


def draw_schedule(seed: int) -> Schedule:
    """A schedule; those of odd seeds lie."""
    drawn = random.Random(seed)
    waits = [
        (drawn.uniform(0, LONGEST_WAIT_SECONDS), drawn.uniform(0, LONGEST_WAIT_SECONDS))
        for _ in range(ASKS)
    ]
    return Schedule(waits, lies=seed % 2 == 1)


def lateness(schedule: Schedule) -> list[float]:
    """Seconds by which the worker's stamp of each evaluation is later than the truth."""
    course = Course(
        task={"benchmark": "schedule", "factors": {}},
        train={"x": np.zeros(8, dtype=np.uint8)},
        inputs={"x": np.zeros(8, dtype=np.uint8)},
        prediction=ArraySpec("uint8", (8,)),
        score=lambda _: (0.0, 0.0),
        target=1.0,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "train.py").write_text(PACKAGE)
        (folder / "schedule.json").write_text(json.dumps(vars(schedule)))
        limits = Limits(memory_bytes=256 << 20, run_seconds=60.0)
        result = race(Order(folder, "train", {}, limits=limits), course, seed=0)
    line = next(line for line in result.log_tail.splitlines() if line.startswith("ENDS "))
    ends = json.loads(line.removeprefix("ENDS "))
    return [ask.seconds - end for ask, end in zip(result.asks, ends, strict=True)]


def wake_ups(count: int) -> list[float]:
    """Seconds between a write of a process that goes on to compute and the return of the read."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        drawn = random.Random(0)
        for _ in range(count):
            time.sleep(drawn.uniform(0, LONGEST_WAIT_SECONDS))
            at = time.perf_counter()
            os.write(writer, struct.pack("d", at))
            while time.perf_counter() - at < LONGEST_WAIT_SECONDS / 2:
                pass
        os._exit(0)
    found = []
    for _ in range(count):
        (at,) = struct.unpack("d", os.read(reader, 8))
        found.append(time.perf_counter() - at)
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    return found


def main() -> int:
    """Run the schedules, print how late the stamps were; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=1000)
    schedules = [draw_schedule(seed) for seed in range(parser.parse_args().schedules)]
    bars = Bars("box clock")
    median, p99 = (1000 * value for value in percentiles(wake_ups(WAKE_UPS)))
    bars.say(f"plain pipe: {WAKE_UPS} wake-ups, median {median:.3f}, p99 {p99:.3f} ms late")
    late: dict[bool, list[float]] = {False: [], True: []}
    for schedule in schedules:
        late[schedule.lies] += lateness(schedule)
    for lies, seconds in late.items():
        median, p99 = (1000 * value for value in percentiles(seconds))
        who = "lying" if lies else "honest"
        bars.say(f"{who} clocks: {len(seconds)} stamps, median {median:.3f}, p99 {p99:.3f} ms late")
        bars.hold(f"{who} clocks, earliest", 1000 * min(seconds), " ms", at_least=0.0)
        bars.hold(
            f"{who} clocks, latest", 1000 * max(seconds), " ms", at_most=1000 * LATEST_SECONDS
        )
    return bars.exit_code


if __name__ == "__main__":
    sys.exit(main())
