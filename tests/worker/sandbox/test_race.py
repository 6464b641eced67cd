"""A run in a box: the clock, the protocol, and who pays for which end."""

import os
import time
from contextlib import ExitStack
from dataclasses import replace

import psutil
import pytest

from finishline.rules.trainings.manifest import FAMILIES
from fuzz.box_channel import DEADLINE_SECONDS, LATE_SECONDS, FakeBox, converse
from tests.worker.sandbox.conftest import LIMITS, kill_boxes
from worker.sandbox import race
from worker.sandbox.order import BoxUnavailableError
from worker.sandbox.processors import in_order, quiet_processors
from worker.sandbox.protocol import Limits


def test_a_package_that_answers_right_has_reached_the_target(run_code):
    result = run_code(
        """
        import numpy as np

        def train(prepared, data, seed):
            assert seed == 7
            assert np.asarray(data["x"]).tolist() == list(range(8))
            yield lambda inputs: np.zeros(8, "uint8")
            yield lambda inputs: np.asarray(inputs["x"])
        """,
        packages=("numpy",),
    )

    assert (result.status, result.code, result.log_tail) == ("reached", None, "")
    assert [ask.quality for ask in result.asks] == [0.125, 1.0]
    assert result.seconds == result.asks[1].seconds
    assert result.ledger.init > 0


def test_it_is_told_how_long_a_package_waited_for_its_processor(run_code):
    result = run_code(
        """
        import os, time

        def train(prepared, data, seed):
            for _ in range(2 * len(os.sched_getaffinity(0))):
                if os.fork() == 0:
                    while True:
                        pass
            until = time.process_time() + 0.5
            while time.process_time() < until:
                pass
            yield lambda inputs: bytes(range(8))
        """
    )

    assert result.status == "reached", (result.message, result.log_tail)
    assert 0.0 < result.processor_share < 0.8


COUNTED = """
    import os

    def train(prepared, data, seed):
        yield lambda inputs: bytes([len(os.sched_getaffinity(0))] * 8)
"""


@pytest.mark.parametrize("backend", ["bwrap", "plain"])
@pytest.mark.parametrize("threads", [1, 10_000])
def test_package_has_the_processors_of_its_threads(run_code, backend, threads):
    own = os.sched_getaffinity(0)
    limits = replace(LIMITS, threads=threads)
    seen = []
    how = {"backend": backend, "limits": limits}
    result = run_code(COUNTED, score=lambda given: seen.extend(given) or (0.0, 0.0), **how)

    assert (result.status, result.code, len(result.asks)) == ("not_reached", None, 1)
    assert set(seen) == {min(threads, len(own))}
    assert os.sched_getaffinity(0) == own


def test_quiet_processors_are_on_cores_of_their_own():
    idle = {0: 5, 1: 5, 2: 5, 3: 0, 4: 4, 5: 4}
    cores = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 4: "4-5", 5: "4-5"}
    ordered = in_order(idle, cores)

    assert ordered[0] in {0, 1}
    assert len({*ordered[:3]} & {0, 1}) == 1
    assert {*ordered[:3]} - {0, 1} in ({2, 4}, {2, 5})
    assert ordered[5] == 3


def test_runs_at_the_same_time_have_processors_of_their_own(monkeypatch):
    """Two workers of a host that start in one moment see the same processor idle."""
    # Runs of other tests on this host have the names that workers use.
    monkeypatch.setattr("worker.sandbox.processors.NAME", f"test-{os.getpid()}")
    own = os.sched_getaffinity(0)
    for _ in range(3):
        with ExitStack() as stack:
            found = [stack.enter_context(quiet_processors(1)) for _ in own]
            more = stack.enter_context(quiet_processors(1))

        assert frozenset().union(*found) == own
        assert len(more) == 1


def test_nothing_comes_between_the_start_and_the_clock(run_code, monkeypatch):
    """The server compares both: what a busy host takes in between would refuse the report."""
    moments = []
    used = race.processor_time

    def noted(pid):
        moments.append("reading")
        return used(pid)

    monkeypatch.setattr(race, "processor_time", noted)
    run_code("", on_start=lambda _ledger: moments.append("start"))

    assert moments[:2] == ["reading", "start"]


def test_the_clock_is_outside_and_never_pauses(run_code):
    begun = time.perf_counter()
    result = run_code(
        """
        import time
        wait = time.sleep
        time.sleep = time.time = time.perf_counter = time.monotonic = lambda *_: 0.0

        def prepare(task):
            wait(0.3)

        def train(prepared, data, seed):
            wait(0.5)
            def predict(inputs):
                wait(0.5)
                return bytes(range(8))
            yield predict
        """
    )

    assert 1.0 <= result.seconds <= time.perf_counter() - begun - 0.3
    assert result.ledger.train >= 0.5
    assert result.ledger.eval >= 0.5
    assert result.ledger.warmup >= 0.3


def test_a_box_that_something_outside_kills_is_the_hosts_failure(run_code):
    code = "import time\ndef train(*_):\n    yield lambda inputs: bytes(8)\n    time.sleep(60)\n"
    result = run_code(code, on_ask=lambda _ask: kill_boxes())

    assert (result.status, result.code) == ("failed", "child_died")
    assert result.message == "the sandbox was ended from outside by signal 9 (Killed)"


def test_a_package_without_a_box_dies_by_itself_of_its_own_signal(run_code):
    code = "import os\ndef train(*_):\n    yield os.kill(os.getpid(), 9)\n"
    result = run_code(code, backend="plain")

    assert (result.status, result.code) == ("failed", "entry_died")
    assert result.message == "the code's process ended with exit status -9"


@pytest.mark.parametrize(
    ("code", "failure", "said"),
    [
        ("import nothing", "entry_import_failed", "No module named 'nothing'"),
        ("del train", "entry_import_failed", "module train has no function train"),
        ("def prepare(task):\n    raise ValueError('no')", "entry_died", "ValueError: no"),
        ("import os\ndef prepare(task):\n    os._exit(9)", "entry_died", ""),
        ("import wire, time\ndef prepare(task):\n    wire.channel().shutdown(2), time.sleep(60)",
         "entry_died", ""),
        ("def train(prepared, data, seed):\n    yield lambda inputs: [1, 2]", "protocol_broken",
         "predict returned list; expected an array of uint8 with shape [8]"),
        ("def train(prepared, data, seed):\n    yield lambda inputs: bytes(7)", "protocol_broken",
         "shape [7]; expected an array of uint8 with shape [8]"),
        ("def prepare(task):\n    print('x' * 2_000_000)", "log_limit", "xxx"),
        ("def prepare(task):\n    while True: pass", "prepare_time_limit", ""),
    ],
)  # fmt: skip
def test_a_package_that_fails_is_told_why(run_code, code, failure, said):
    # A busy machine is slow to start a box: the limit is short where it is to be met alone.
    short = {"prepare_seconds": 0.5} if failure == "prepare_time_limit" else {}

    result = run_code(code, limits=replace(LIMITS, **short))

    assert (result.status, result.code) == ("failed", failure), result
    assert said in result.log_tail
    assert result.message


UNWAITED = """
    import os, signal, time

    def prepare(task):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # So nobody adds up their time.
        for _ in range(12):
            if os.fork() == 0:
                while time.process_time() < 0.2:
                    pass
                os._exit(0)
        while True:
            time.sleep(1)
"""
SHORT_LIVED = """
    import os, time

    def prepare(task):
        for _ in range(400):
            if (child := os.fork()) == 0:
                begun = time.process_time()
                while time.process_time() < begun + 0.005:
                    pass
                os._exit(0)
            os.waitpid(child, 0)
"""
ORPHANS = """
    import os, time

    def prepare(task):
        for _ in range(400):
            if (child := os.fork()) == 0:
                if os.fork() == 0:
                    begun = time.process_time()
                    while time.process_time() < begun + 0.005:
                        pass
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(0.01)
"""


@pytest.mark.parametrize("code", [UNWAITED, SHORT_LIVED, ORPHANS])
def test_processes_that_end_early_count_in_preparing(run_code, monkeypatch, code):
    """The clock may allow three times as much, and a package starts many processes at once."""
    monkeypatch.setattr(Limits, "prepare_clock_seconds", 120.0)
    result = run_code(code, limits=replace(LIMITS, prepare_seconds=1.0))

    assert (result.status, result.code) == ("failed", "prepare_time_limit")
    assert "s of the processor to prepare; expected at most 1 s" in result.message


def test_a_box_that_ends_before_its_first_frame_is_no_fault_of_the_package(run_code):
    with pytest.raises(BoxUnavailableError, match="No module named 'absent'"):
        run_code("", preload=("absent",))


def test_a_first_optimiser_imports_nothing_on_the_clock(run_code):
    pytest.importorskip("torch")
    result = run_code(
        """
        import sys
        import torch

        def train(prepared, data, seed):
            before = set(sys.modules)
            torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
            print(len(set(sys.modules) - before))
            yield lambda inputs: bytes(range(8))
        """,
        limits=Limits(memory_bytes=2 << 30, prepare_seconds=60),
        packages=FAMILIES["torch"].distributions,
        preload=FAMILIES["torch"].preload,
    )

    assert (result.status, result.log_tail.strip()) == ("reached", "0"), result


# Drawn conversations; fuzz/box_channel.py has more.
def test_any_bytes_end_in_time_with_a_result(monkeypatch):
    monkeypatch.setattr(race, "Box", FakeBox)
    converse(0)
    descriptors = psutil.Process().num_fds()

    ends = [converse(number) for number in range(300)]

    assert {"reached", "protocol_broken", "silence_time_limit"} <= {end for end, _ in ends}
    assert max(seconds for _, seconds in ends) < DEADLINE_SECONDS + LATE_SECONDS
    assert psutil.Process().num_fds() == descriptors
