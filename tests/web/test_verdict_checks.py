"""A verdict in four checks."""

from typing import Any

import pytest

from web.verdicts import verdict_checks


def replay(*reasons: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "replay", "outcome": "verified", "reasons": list(reasons)}


def reason(code: str, weight: str, message: str = "said", **numbers: float) -> dict[str, Any]:
    return {"code": code, "weight": weight, "message": message, "numbers": numbers}


def test_the_four_checks_stand_in_one_order_whatever_was_compared() -> None:
    checks = verdict_checks(replay(reason("reached_target", "supports", "3 of 3 replays reached")))

    assert [check.name for check in checks] == [
        "Reached the target", "Learned like the reference", "Same number of epochs", "Same speed",
    ]  # fmt: skip
    assert [check.word for check in checks] == ["yes", *["not compared"] * 3]
    assert checks[0].text == "3 of 3 replays reached."


def test_a_fixed_stop_has_no_first_evaluation_at_the_target() -> None:
    at_stop = reason("reached_target", "supports", mean=0.79, p_value=0.001)
    assert verdict_checks(replay(at_stop))[0].name == "Beat the target at the fixed stop"


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.08, "An epoch was 12.5× faster here than claimed."),
        (0.97, "An epoch was 1.03× faster here than claimed."),
        (0.9996, "An epoch took as long as claimed, within 1\u00a0% (0.9996×). Limit 1.5×."),
        (1.004, "An epoch took as long as claimed, within 1\u00a0% (1.004×). Limit 1.5×."),
        (1.07, "An epoch took 1.07× as long as claimed, within the limit. Limit 1.5×."),
        (33.0, "An epoch took 33× as long as claimed. Limit 1.5×."),
    ],
)
def test_the_speed_says_which_of_the_two_was_faster(ratio: float, said: str) -> None:
    timed = reason("time_agrees", "supports", ratio=ratio, tolerated_ratio=1.5)
    assert verdict_checks(replay(timed))[3].text == said


def test_the_heaviest_reason_speaks_for_its_check() -> None:
    busy = reason("noisy_host", "note", "time was not compared: the worker was busy")
    slow = reason("slower_than_claimed", "rejects", ratio=2.0, tolerated_ratio=1.5)
    assert verdict_checks(replay(busy, slow))[3].word == "no"
    assert verdict_checks(replay(busy))[3].text == "Not compared: the worker was busy."
    assert verdict_checks(replay(busy))[3].word == "not compared"


def test_other_kinds_have_no_such_checks() -> None:
    assert verdict_checks({"kind": "latency", "outcome": "verified", "reasons": []}) == []
    assert verdict_checks({"kind": "replay", "outcome": None, "reasons": []}) == []
