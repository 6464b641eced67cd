from collections.abc import Callable
from typing import Any

import pytest

from web.progress import expected_evaluations, replay_rows, state_sentence

Make = dict[str, Callable[..., dict[str, Any]]]
NO_CLAIMED_LATENCY = {"code": "claim_has_no_latency", "weight": "leaves_open"}


def test_runs_are_expected_to_reach_the_target_where_the_reference_does(make: Make) -> None:
    assert expected_evaluations(make["verification"]()) == 8
    assert expected_evaluations(make["verification"](control_points=[])) is None


def test_a_loss_is_reached_from_above(make: Make) -> None:
    falling = [{"index": i, "mean": m, "lower": m, "upper": m} for i, m in enumerate([3.0, 1.0], 1)]
    target = {"metric": "loss", "value": 1.5, "unit": "nats/byte", "direction": "lower"}
    assert expected_evaluations(make["verification"](control_points=falling, target=target)) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "queued", "outcome": None}, "Waiting for a worker"),
        ({"state": "running", "outcome": None}, "on worker-b. Attempt 2 starts again"),
        ({"state": "queued", "outcome": None}, "attempt 1 lost its worker, which is not charged"),
        ({"state": "queued", "outcome": None, "kind": "latency"}, "to train and time the model"),
        ({"state": "cancelled", "outcome": None}, "cancelled"),
        (
            {"state": "running", "outcome": None, "cancelled_at": "2026-11-23T12:00:00Z"},
            "Cancelled: replaying 3 runs on worker-b first; they count, without a verdict.",
        ),
        ({"state": "failed", "outcome": None}, "No attempt could finish"),
        ({"outcome": "verified"}, "supports the claim"),
        ({"outcome": "rejected"}, "contradicts the claim"),
        ({"outcome": "inconclusive"}, "could not confirm the claim"),
        ({"outcome": "verified", "runs_planned": None}, "its runs supports"),
        ({"kind": "calibration", "outcome": None}, "The reference was measured in 3 runs."),
        (
            {"kind": "latency", "outcome": "inconclusive", "reasons": [NO_CLAIMED_LATENCY]},
            "the submission claims none to compare with",
        ),
        (
            {"kind": "calibration", "state": "cancelled", "outcome": None},
            "This calibration was cancelled, without a result for the reference.",
        ),
    ],
)
def test_every_state_is_one_sentence(make: Make, changes: dict[str, Any], words: str) -> None:
    assert words in state_sentence(make["verification"](**changes))


def test_the_table_twin_has_every_evaluation_with_its_band(make: Make) -> None:
    rows = replay_rows(make["verification"]())
    assert len(rows) == 3 * 8
    assert rows[3]["band"]["index"] == 4
    assert replay_rows(make["verification"](report=None)) == []
