"""What a verification established, in words."""

from typing import Any

from web.verdicts import (
    published_check,
    reads_between_evaluations,
    standing_words,
    why_not_timed,
)


def check(*codes: str, **changes: Any) -> dict[str, Any]:
    messages = {
        "hardware_differs": "time was not compared: the claim was made on gpu-a, the replay on b",
    }
    reasons = [{"code": code, "message": messages.get(code, code)} for code in codes]
    return {"id": "v", "kind": "replay", "outcome": "verified", "reasons": reasons} | changes


def test_a_page_says_why_the_time_was_not_compared() -> None:
    found = check("convergence_agrees", "hardware_differs")
    assert why_not_timed(found) == (
        "time was not compared: the claim was made on gpu-a, the replay on b"
    )
    assert why_not_timed(check("convergence_agrees")) == "its time was not compared"
    assert why_not_timed(None) == "its time was not compared"


def test_a_row_stands_as_its_evidence_with_the_check_of_a_claim() -> None:
    assert standing_words({"evidence": "measured", "check": None}) == "measured"
    claim = {"evidence": "claimed", "check": "epochs_agree"}
    assert standing_words(claim) == "claimed · epochs agree"
    assert standing_words(claim | {"check": "none"}) == "claimed"
    assert standing_words(claim | {"withdrawal": {"by": "alice"}}) == "withdrawn"


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
