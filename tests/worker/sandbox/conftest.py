"""Packages to run in a box, and a course of two numbers."""

import os
import textwrap
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.processes import wait_for
from tests.worker.sandbox import wire
from worker.sandbox.bubblewrap import find_bubblewrap
from worker.sandbox.course import Course
from worker.sandbox.order import BoxUnavailableError, Order
from worker.sandbox.packages import requirements_of
from worker.sandbox.protocol import ArraySpec, Limits
from worker.sandbox.race import race
from worker.sandbox.start import check_box

TRUTH = bytes(range(8))
CLASSES = ArraySpec("uint8", (8,))
# A limit in the arguments of the boxes of this process, which tells them from all others.
MARK = (256 << 20) + os.getpid()
LIMITS = Limits(
    prepare_seconds=10, run_seconds=30, silence_seconds=20, hello_seconds=60, processes=24,
    memory_bytes=256 << 20, scratch_bytes=1 << 20, shared_memory_bytes=1 << 20, file_bytes=MARK,
    max_evaluations=3,
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _bubblewrap():
    try:
        find_bubblewrap()
    except BoxUnavailableError as error:
        if os.environ.get("FINISHLINE_REQUIRE_BOX"):
            raise
        pytest.skip(f"{error}; the box is not tested")


@pytest.fixture(scope="session")
def containers():
    state = check_box("oci")
    if state.entries == "off":
        pytest.skip(f"{state.why}; containers are not tested")


def share_right(predictions):
    right = sum(a == b for a, b in zip(predictions, TRUTH, strict=True))
    return right / 8, right / 8


def course(score=share_right):
    """Eight items whose classes are 0 to 7; the target is that six are right."""
    return Course(
        task={"benchmark": "numbers", "factors": {}},
        train={"x": np.arange(8, dtype=np.int64)},
        inputs={"x": np.arange(8, dtype=np.uint8)},
        prediction=CLASSES,
        score=score,
        target=0.75,
    )


def is_boxed(process):
    """Whether a process is one of a box that this process started."""
    with suppress(psutil.Error):
        return any(str(MARK) in part for part in process.cmdline())
    return False


def kill_boxes():
    """Kill every box of bubblewrap that this process has started, as the kernel may."""
    boxes = [child for child in psutil.Process().children() if child.name() == "bwrap"]
    within = [each for box in boxes for each in box.children(recursive=True)]
    for box in boxes:
        box.kill()
    # The kernel ends what is within a moment later; whoever adopts them may let them be zombies.
    ended = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    wait_for(
        lambda: all(not each.is_running() or each.status() in ended for each in within),
        seconds=30,
        what="the end of what is in a box",
    )


@pytest.fixture
def run_code(tmp_path):
    """Run a package of one module; without a `train` of its own it answers right at once."""
    return partial(run_in, tmp_path)


USUAL = """
    def prepare(task):
        pass

    def train(prepared, data, seed):
        yield lambda inputs: bytes(range(8))
"""


def run_in(
    parent,
    code,
    *,
    limits=LIMITS,
    backend="bwrap",
    packages=(),
    preload=(),
    score=share_right,
    prediction=CLASSES,
    on_start=lambda _: None,
    on_ask=lambda _: None,
    stop=lambda: False,
    budget_seconds=None,
):
    folder = parent / "package"
    folder.mkdir(exist_ok=True)
    parent.chmod(0o755)
    (folder / "train.py").write_text(textwrap.dedent(USUAL) + textwrap.dedent(code))
    (folder / "wire.py").write_text(Path(wire.__file__).read_text())
    order = Order(
        package=folder,
        module="train",
        packages=dict(requirements_of(packages)),
        preload=preload,
        limits=limits,
        backend=backend,
    )
    given = replace(course(score), prediction=prediction, budget_seconds=budget_seconds)
    return race(order, given, seed=7, on_start=on_start, on_ask=on_ask, stop=stop)
