"""What a verification established, in words."""

from typing import Any

import pytest

from web.verdicts import (
    is_convergence_only,
    published_check,
    reads_between_evaluations,
    scope_sentence,
    standing_words,
)


def check(*codes: str, **changes: Any) -> dict[str, Any]:
    messages = {
        "hardware_differs": "time was not compared: the claim was made on gpu-a, the replay on b",
        "noisy_host": "time was not compared: the worker's processor was shared with other work",
    }
    reasons = [{"code": code, "message": messages.get(code, code)} for code in codes]
    return {"id": "v", "kind": "replay", "outcome": "verified", "reasons": reasons} | changes


@pytest.mark.parametrize("code", ["hardware_differs", "noisy_host", "time_not_compared"])
def test_verified_without_its_time_says_that_only_convergence_was(code: str) -> None:
    found = check("convergence_agrees", code)

    assert is_convergence_only(found)
    assert str(scope_sentence(found)).startswith("Only convergence was verified")


def test_the_sentence_says_why_the_time_was_not_compared() -> None:
    words = scope_sentence(check("hardware_differs"))
    assert words is not None
    assert words.endswith("because the claim was made on gpu-a, the replay on b.")


def test_a_time_beyond_the_tolerance_is_not_confirmed_by_replays_that_scatter() -> None:
    """Six times slower with a p-value above the test's share of alpha, as a busy machine had it."""
    numbers = {"ratio": 6.38, "tolerated_ratio": 1.5, "p_value": 0.0012}
    reason = {"code": "time_agrees", "message": "6.38 times the claimed", "numbers": numbers}
    found = check("convergence_agrees") | {"reasons": [reason]}

    assert is_convergence_only(found)
    assert str(scope_sentence(found)).endswith("is not confirmed: 6.38 times the claimed.")
    exactly = found | {"reasons": [reason | {"numbers": numbers | {"ratio": 1.5}}]}
    assert not is_convergence_only(exactly)


def test_a_time_that_was_compared_counts_as_verified() -> None:
    found = check("convergence_agrees", "time_agrees")

    assert not is_convergence_only(found)
    assert "both checked" in str(scope_sentence(found))


def test_no_verdict_has_no_scope() -> None:
    assert scope_sentence(None) is None
    assert scope_sentence(check(outcome=None)) is None
    assert scope_sentence(check("did_not_reach", outcome="rejected")) is None


def test_a_row_stands_as_its_evidence_with_the_check_of_a_claim() -> None:
    assert standing_words({"evidence": "measured", "check": None}) == "measured"
    claim = {"evidence": "claimed", "check": "epochs_agree"}
    assert standing_words(claim) == "claimed · epochs agree"
    assert standing_words(claim | {"check": "none"}) == "claimed"
    assert standing_words(claim | {"withdrawal": {"by": "alice"}}) == "withdrawn"


def test_a_latency_that_was_not_compared_stands_as_claimed() -> None:
    words = scope_sentence(check("latency_not_compared", kind="latency"))
    assert words == "The latency stands as claimed: latency_not_compared."


def test_the_published_check_is_the_one_the_status_rests_on() -> None:
    assert published_check({"published_verification": "v"}, [check(id="u"), check()]) == check()
    assert published_check({"published_verification": None}, [check()]) is None


def test_epochs_that_differ_from_the_submissions_own_are_told_to_be_read_off() -> None:
    """7, 8 and 7 whole epochs, whose curves cross the target after 6.89 on average."""
    whole = {"result": {"epochs_to_target": 7.3333}}

    def judged(epochs: float) -> dict[str, Any]:
        numbers = {"claimed_mean_epochs": epochs}
        return {"reasons": [{"code": "convergence_agrees", "numbers": numbers}, {"code": "x"}]}

    assert reads_between_evaluations(judged(6.8903), whole)
    assert not reads_between_evaluations(judged(7.3331), whole)
    assert not reads_between_evaluations(judged(6.8903), {"result": {"epochs_to_target": None}})
    assert not reads_between_evaluations({"reasons": []}, whole)
