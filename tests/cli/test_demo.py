"""What the demo says at its end."""

from finishline.cli.commands.up import outcome_line

CLAIMED = {"evidence": "claimed", "unranked_reason": "claimed: the epochs agree"}


def test_a_busy_machine_is_named_as_the_reason() -> None:
    verification = {"reasons": [{"code": "within_band"}, {"code": "noisy_host"}]}
    said = outcome_line(CLAIMED, verification).plain
    assert said.endswith("took part of the processor; run it again on a quiet machine.")
    assert outcome_line(CLAIMED, {"reasons": []}).plain == (
        "Not measured: claimed: the epochs agree."
    )
