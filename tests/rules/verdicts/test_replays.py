"""The replays: whether they stay in the band, reach the target, and are all there."""

from typing import Any

import pytest

from finishline.rules.verification.messages import Failure, ReplayRun
from tests.support.verdicts import (
    Judge,
    claimed,
    codes,
    replay,
    weight_of,
)


def test_replays_below_the_band_reject(verdict: Judge, curve: list[float]) -> None:
    low = [*curve[:5], 70.0]
    runs = [
        replay(0, curve[:8]),
        *[replay(i, low, status="below_band", tta_seconds=None) for i in (1, 2)],
    ]

    found = verdict(replays=runs)

    assert found.outcome == "rejected"
    assert weight_of(found, "below_band") == "rejects"
    assert [r.numbers["evaluation"] for r in found.reasons if r.code == "below_band"] == [6.0, 6.0]
    assert "did_not_reach" in codes(found)


def test_one_replay_below_the_band_is_dropped_as_the_slowest(
    verdict: Judge, curve: list[float]
) -> None:
    runs = [
        replay(0, curve[:8]),
        replay(1, curve[:8], slowness=1.1),
        replay(2, [*curve[:5], 70.0], status="below_band", tta_seconds=None),
    ]

    found = verdict(replays=runs)

    assert found.outcome == "verified"
    assert weight_of(found, "below_band") == "note"


def test_a_replay_above_the_band_leaves_the_verdict_open(
    verdict: Judge, curve: list[float]
) -> None:
    fast = [replay(i, [curve[0], curve[1], curve[2], 99.0]) for i in range(3)]

    found = verdict(replays=fast)

    assert found.outcome == "inconclusive"
    assert weight_of(found, "above_band") == "leaves_open"


def test_a_single_evaluation_is_held_against_the_band(verdict: Judge, curve: list[float]) -> None:
    runs = [replay(0, curve[:1], status="not_reached", tta_seconds=None)]

    assert weight_of(verdict(replays=runs), "within_band") == "supports"


def test_one_replay_may_miss_the_target_and_two_may_not(verdict: Judge, curve: list[float]) -> None:
    def missed(index: int) -> ReplayRun:
        return replay(index, curve[:7], status="not_reached", tta_seconds=None)

    one = verdict(replays=[replay(0, curve[:8]), replay(1, curve[:8], slowness=1.1), missed(2)])
    two = verdict(replays=[replay(0, curve[:8]), missed(1), missed(2)])

    assert one.outcome == "verified"
    assert two.outcome == "rejected"
    assert weight_of(two, "did_not_reach") == "rejects"
    assert two.reasons[0].numbers == {"reached": 1.0, "started": 3.0}


def test_what_a_worker_calls_reached_must_be_in_its_evaluations(
    verdict: Judge, curve: list[float]
) -> None:
    liars = [replay(i, curve[:7]) for i in range(3)]
    empty = [replay(i, []) for i in range(3)]

    assert verdict(replays=liars).outcome == "rejected"
    assert verdict(replays=empty).outcome == "rejected"


@pytest.mark.parametrize(
    ("kind", "code", "outcome"),
    [
        ("infrastructure", "child_died", "inconclusive"),
        ("infrastructure", "clock_mismatch", "inconclusive"),
        ("rules", "data_set_differs", "inconclusive"),
        ("submitter", "training_diverged", "rejected"),
        ("time_limit", "run_time_limit", "rejected"),
    ],
)
def test_only_failures_of_the_claim_count_against_it(
    verdict: Judge, curve: list[float], kind: Any, code: Any, outcome: str
) -> None:
    failure = Failure(kind, code, "it failed", "look")
    failed = [
        replay(i, curve[:3], status="failed", tta_seconds=None, failure=failure) for i in (1, 2)
    ]

    found = verdict(replays=[replay(0, curve[:8]), *failed])

    assert found.outcome == outcome
    if outcome == "inconclusive":
        assert weight_of(found, "infrastructure") == "leaves_open"


def test_a_replay_that_failed_after_its_crossing_did_not_reach(
    verdict: Judge, curve: list[float]
) -> None:
    failure = Failure("submitter", "training_diverged", "it failed", "look")
    failed = [
        replay(i, curve[:8], status="failed", tta_seconds=None, failure=failure) for i in (1, 2)
    ]

    assert codes(verdict(replays=[replay(0, curve[:8]), *failed]))[0] == "did_not_reach"


def test_replays_that_were_cancelled_do_not_count_against_a_claim(
    verdict: Judge, curve: list[float]
) -> None:
    cancelled = [replay(i, curve[:3], status="cancelled", tta_seconds=None) for i in (1, 2)]

    found = verdict(replays=[replay(0, curve[:8]), *cancelled])

    assert found.outcome == "inconclusive"
    assert found.reasons[0].numbers == {"reached": 1.0, "started": 1.0, "planned": 3.0}


@pytest.mark.parametrize("runs_planned", [None, 3])
def test_a_report_without_runs_decides_nothing(verdict: Judge, runs_planned: int | None) -> None:
    found = verdict(replays=[], runs_planned=runs_planned)

    assert found.outcome == "inconclusive"
    assert "within_band" not in codes(found)


def test_fewer_replays_than_planned_do_not_verify(verdict: Judge, curve: list[float]) -> None:
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(3)]

    assert verdict(replays=runs, runs_planned=3).outcome == "verified"
    assert verdict(replays=runs, runs_planned=4).outcome == "inconclusive"


def test_fewer_replays_than_planned_do_not_save_a_claim_from_rejection(
    verdict: Judge, curve: list[float]
) -> None:
    runs = [replay(0, curve[:8])]

    assert verdict(claimed([4, 4, 4]), runs, runs_planned=3).outcome == "rejected"
