"""Scores of a run in a box, its stamps against the truth, and its end: a target or a budget."""

import ast
import ctypes
import itertools
import os
import platform
import statistics
import struct
import time

import pytest

from perf.box import LATEST_SECONDS, draw_schedule, lateness
from tests.worker.sandbox.conftest import LIMITS, share_right
from worker.sandbox.processors import SHORTEST_SLICE_NS, waking_first
from worker.sandbox.protocol import ArraySpec, Limits

MANY = Limits(**(vars(LIMITS) | {"max_evaluations": 12}))


def slow_share_right(predictions):
    time.sleep(0.1)
    return share_right(predictions)


@pytest.mark.nightly
def test_a_slow_score_delays_neither_the_answer_nor_the_stamp(run_code):
    result = run_code(
        """
        import time

        def train(prepared, data, seed):
            waits, ends = [], []
            for _ in range(11):
                asked = time.perf_counter()
                def predict(inputs):
                    waits.append(time.perf_counter() - asked)
                    ends.append(time.perf_counter())
                    return bytes(8)
                yield predict
            print([waits, ends])
        """,
        limits=MANY,
        score=slow_share_right,
    )

    waits, ends = ast.literal_eval(result.log_tail)
    true = [later - earlier for earlier, later in itertools.pairwise(ends)]
    stamps = [ask.seconds for ask in result.asks]
    measured = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    lateness = [abs(a - b) for a, b in zip(measured, true, strict=True)]
    assert (result.status, len(result.asks)) == ("not_reached", 11)
    # A busy machine wakes a process late at times; a score would delay every answer.
    assert statistics.quantiles(waits)[0] <= LATEST_SECONDS
    assert statistics.quantiles(lateness)[0] <= LATEST_SECONDS


@pytest.mark.parametrize(
    "then",
    [
        "return",
        "os._exit(9)",
        "raise ValueError",
        "while True: yield lambda inputs: bytes(8)",
        "yield lambda inputs: [1]",
        "yield lambda inputs: bytes(range(8))",
        "time.sleep(60)",
    ],
)
def test_the_first_ask_at_the_target_counts_whatever_follows(run_code, then):
    told = []
    begun = time.monotonic()

    result = run_code(
        f"""
        import os, time

        def train(prepared, data, seed):
            yield lambda inputs: bytes(8)
            yield lambda inputs: bytes(range(8))
            {then}
            yield
        """,
        score=slow_share_right,
        on_ask=told.append,
    )

    assert (result.status, result.code, result.message) == ("reached", None, None)
    assert [(ask.number, ask.quality) for ask in told] == [(1, 0.125), (2, 1.0)]
    assert result.asks == tuple(told)
    assert (result.seconds, result.ledger) == (told[1].seconds, told[1].ledger)
    assert time.monotonic() - begun < 15


def test_a_failed_score_ends_the_run_with_its_error(run_code):
    def score(predictions):
        raise LookupError("no such score")

    with pytest.raises(LookupError, match="no such score"):
        run_code(
            """
            import time

            def train(prepared, data, seed):
                yield lambda inputs: bytes(8)
                time.sleep(60)
            """,
            score=score,
        )


@pytest.mark.parametrize("without", [(float("nan"), 0.5), (0.5, float("inf"))])
def test_predictions_without_a_quality_are_the_packages_fault(run_code, without):
    told = []

    result = run_code(
        """
        def train(prepared, data, seed):
            yield lambda inputs: bytes(8)
            yield lambda inputs: bytes([255] * 8)
            yield lambda inputs: bytes(range(8))
        """,
        score=lambda predictions: without if max(predictions) == 255 else (0.5, 0.5),
        on_ask=told.append,
    )

    assert (result.status, result.code) == ("failed", "protocol_broken")
    assert "no quality" in result.message
    assert result.asks == tuple(told)
    assert [ask.quality for ask in told] == [0.5]


def test_logits_that_are_no_finite_numbers_break_the_protocol(run_code):
    """An argmax takes NaN for the largest, so that their quality may well be finite."""
    result = run_code(
        """
        import array

        def train(prepared, data, seed):
            yield lambda inputs: array.array("f", [0.5, float("nan")])
        """,
        prediction=ArraySpec("float32", (2,)),
        score=lambda predictions: (1.0, 1.0),
    )

    assert (result.status, result.code) == ("failed", "protocol_broken")
    assert "NaN" in result.message


def test_a_cancelled_run_scores_nothing_more(run_code):
    scored = []

    def score(predictions):
        scored.append(predictions)
        time.sleep(1.0)
        return 0.0, 0.0

    result = run_code(
        """
        import time

        def train(prepared, data, seed):
            yield lambda inputs: bytes(8)
            yield lambda inputs: bytes(range(8))
            time.sleep(60)
        """,
        score=score,
        stop=lambda: bool(scored),
    )

    assert (result.status, result.message) == ("cancelled", "the run was cancelled")
    assert (len(scored), len(result.asks)) == (1, 1)


BUDGET = 1.0
HALF = "bytes([0, 1, 2, 3, 0, 0, 0, 0])"
RIGHT = "bytes(range(8))"


@pytest.fixture
def run(run_code):
    def send(*lines):
        body = "\n    ".join(lines)
        code = f"import time\n\ndef train(prepared, data, seed):\n    {body}\n"
        return run_code(code, budget_seconds=BUDGET)

    return send


# At the end of a budget the last evaluation whose predictions arrived by then counts.
def test_it_trains_on_past_the_target_to_the_end(run):
    found = run(
        f"yield lambda inputs: {RIGHT}",
        "time.sleep(0.3)",
        f"yield lambda inputs: {HALF}",
        "time.sleep(60)",
    )

    assert [ask.quality for ask in found.asks] == [1.0, 0.5]
    assert (found.status, found.code) == ("reached", None)
    assert found.seconds == found.asks[-1].seconds
    assert 0.3 <= found.seconds < BUDGET


def test_it_may_end_before(run):
    found = run(f"yield lambda inputs: {HALF}")

    assert (found.status, found.asks[-1].quality) == ("reached", 0.5)


@pytest.mark.parametrize("late", ["time.sleep(1.2)", "pass"])
def test_a_late_evaluation_does_not_count(run, late):
    slow = "(time.sleep(1.2), " + RIGHT + ")[1]" if late == "pass" else RIGHT
    found = run(late, f"yield lambda inputs: {slow}", "time.sleep(60)")

    assert (found.status, found.asks, found.seconds) == ("not_reached", (), None)


def test_a_crash_is_no_end(run):
    found = run(f"yield lambda inputs: {RIGHT}", "raise ValueError")

    assert (found.status, found.code) == ("failed", "entry_died")


def test_prepare_is_told_the_budget(run_code):
    found = run_code(
        """
        def prepare(task):
            return task["budget_seconds"]

        def train(prepared, data, seed):
            yield lambda inputs: bytes([int(prepared)] * 8)
        """,
        budget_seconds=BUDGET,
    )

    assert found.asks[-1].quality == pytest.approx(1 / 8)


GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2] if part.isdigit())


@pytest.mark.nightly
@pytest.mark.parametrize("lies", [False, True], ids=["honest clocks", "lying clocks"])
def test_stamps_are_never_early_and_as_late_as_the_transfer(lies):
    schedules = [draw_schedule(seed) for seed in range(20)]
    late = sorted(late for each in schedules if each.lies == lies for late in lateness(each))

    assert len(late) == 40
    assert late[0] >= 0
    # A busy machine wakes the worker late at times; perf/box.py has the whole distribution.
    assert late[len(late) // 4] <= LATEST_SECONDS


def slice_ns():
    answer = ctypes.create_string_buffer(56)
    number = GET_ATTRIBUTES[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, answer, 56, 0) == 0
    return int(struct.unpack_from("Q", answer, 24)[0])


@pytest.mark.skipif(KERNEL < (6, 12), reason="slices of their own length need Linux 6.12")
def test_slices_are_short_while_it_lasts_and_the_kernels_own_after_it():
    before = slice_ns()
    with waking_first():
        assert slice_ns() == SHORTEST_SLICE_NS < before
    assert slice_ns() == before
