"""Runs that end at a budget: the last evaluation whose predictions arrived by then counts."""

import pytest

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
