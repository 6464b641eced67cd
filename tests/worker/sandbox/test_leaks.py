"""Nothing of a run stays with the worker, and nothing of its labels goes into the box."""

import gc
import json
import os
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.worker.sandbox.conftest import LIMITS, course, is_boxed, run_in
from worker.sandbox import race as race_module
from worker.sandbox.channel import Channel
from worker.sandbox.course import Course
from worker.sandbox.order import BoxUnavailableError, Order
from worker.sandbox.protocol import ArraySpec, Limits, header_of
from worker.sandbox.race import race

BOXES = 15  # Each kind three times.
GROWTH_BYTES = 4 << 20
SHORT = Limits(**(vars(LIMITS) | {"prepare_seconds": 0.1, "log_bytes": 100_000}))
# Packages that crash, hang, flood, break the protocol, leave a daemon, or answer right.
PACKAGES = {
    "entry_died": "import os\ndef prepare(task): os.abort()",
    "prepare_time_limit": "import time\ndef prepare(task): time.sleep(60)",
    "log_limit": "def prepare(task):\n    while True: print('x' * 1000)",
    "protocol_broken": "def train(prepared, data, seed):\n    yield lambda inputs: bytes(3)",
    "reached": "import os, time\ndef prepare(task):\n    if os.fork() == 0: time.sleep(60)",
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield


def held():
    gc.collect()
    return {
        *(("descriptor", each) for each in _descriptors()),
        *(("thread", each.name) for each in threading.enumerate()),
        *(("child", each.pid) for each in psutil.Process().children()),
        *(("folder", each) for each in Path(tempfile.gettempdir()).iterdir()),
        *(("boxed", each.pid) for each in psutil.process_iter() if is_boxed(each)),
    }


def _descriptors():
    """Numbers and goals of open descriptors: a number may be used again for another goal."""
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # The listing's own.
            yield path.name, str(path.readlink())


@pytest.fixture
def apart(tmp_path):
    def call(function):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(_with_temporary, tempfile.gettempdir(), function, tmp_path).result()

    return call


def _with_temporary(folder, function, *args):
    tempfile.tempdir = folder
    return function(*args)


def test_boxes_leave_nothing(apart):
    ends, left, growth = apart(run_boxes)

    codes = list(PACKAGES)
    assert ends == [codes[number % len(codes)] for number in range(BOXES)]
    assert not left
    assert growth < GROWTH_BYTES


def run_boxes(folder):
    """How each box ended, what is left of them, and by how many bytes this process grew."""
    codes = list(PACKAGES.values())
    for code in codes:  # What is imported and allocated once.
        run_in(folder, code, limits=SHORT)
    before, memory = held(), psutil.Process().memory_info().rss

    ends = []
    for number in range(BOXES):
        result = run_in(folder, codes[number % len(codes)], limits=SHORT)
        ends.append(result.code or result.status)
    return ends, held() - before, psutil.Process().memory_info().rss - memory


def test_a_box_that_cannot_start_leaves_nothing(apart):
    assert not apart(start_without_bubblewrap)


def start_without_bubblewrap(folder):
    before = held()
    os.environ["PATH"] = str(folder)
    with pytest.raises(BoxUnavailableError):
        run_in(folder, "")
    return held() - before


class Wiretap(Channel):
    sent: list[bytes]

    def send(self, kind, body=b"", *, deadline, descriptor=None):
        self.sent.append(header_of(kind, len(self.sent), len(body)) + body)
        if descriptor is not None:
            self.sent[-1] += os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        super().send(kind, body, deadline=deadline, descriptor=descriptor)


@pytest.fixture
def sent_for(tmp_path, monkeypatch):
    monkeypatch.setattr(race_module, "Channel", Wiretap)
    tmp_path.chmod(0o755)
    (tmp_path / "train.py").write_text(
        """
import json
from pathlib import Path

def prepare(task): pass

def train(prepared, data, seed):
    for answer in json.loads(Path(__file__).with_name("answers.json").read_text()):
        yield lambda inputs: bytes(answer)
"""
    )

    def run(answers, course):
        (tmp_path / "answers.json").write_text(json.dumps([list(each) for each in answers]))
        Wiretap.sent = []
        order = Order(package=tmp_path, module="train", packages={}, limits=LIMITS)
        result = race(order, course, seed=7)
        return result.status, Wiretap.sent

    return run


def test_no_label_and_no_quality_is_sent_into_a_box(sent_for):
    random = np.random.default_rng(5)
    labels = random.integers(0, 256, 64, dtype=np.uint8).tobytes()
    quality = 0.8125

    def score(predictions):
        right = predictions == labels
        return (1.0, 1.0) if right else (quality, quality)

    course = Course(
        task={"benchmark": "numbers", "factors": {}},
        train={"x": random.integers(0, 256, (64, 4), dtype=np.uint8)},
        inputs={"x": random.integers(0, 256, (64, 4), dtype=np.uint8)},
        prediction=ArraySpec("uint8", (64,)),
        score=score,
        target=0.9375,
    )
    wrong = [bytes(64), bytes(range(64)), bytes(range(64, 128))]

    missed, sent = sent_for(wrong, course)
    reached, sent_to_right = sent_for([wrong[0], labels, wrong[2]], course)

    assert (missed, reached) == ("not_reached", "reached")
    # Equal up to the kill, which may come before or after the last answer of inputs.
    assert len(sent_to_right) >= 4  # task, go, and inputs twice
    assert sent[: len(sent_to_right)] == sent_to_right
    everything = b"".join(sent)
    for at in range(0, 64, 8):
        assert labels[at : at + 8] not in everything
    for told in (b"0.8125", np.float64(quality).tobytes(), np.float32(quality).tobytes()):
        assert told not in everything
    assert b"0.9375" in everything  # The target is told: the bytes are really those sent.


def test_containers_leave_nothing(containers, tmp_path):
    tmp_path.chmod(0o755)
    limits = Limits(**(vars(LIMITS) | {"prepare_seconds": 0.5, "log_bytes": 100_000}))
    before = held()

    ends = []
    for code in PACKAGES.values():
        (tmp_path / "train.py").write_text(
            "def prepare(task): pass\n"
            "def train(prepared, data, seed):\n    yield lambda inputs: bytes(range(8))\n" + code
        )
        result = race(Order(tmp_path, "train", {}, limits=limits, backend="oci"), course(), seed=7)
        ends.append(result.code or result.status)

    assert ends == list(PACKAGES)
    assert held() <= before
