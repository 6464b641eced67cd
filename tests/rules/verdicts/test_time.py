"""The measured time beside the claimed one: a fact that rejects nobody."""

from collections.abc import Sequence

import pytest

from tests.support.verdicts import (
    HONEST_EPOCHS,
    Judge,
    claimed,
    codes,
    replay,
    weight_of,
)


def slowed(curve: Sequence[float], times: Sequence[float], **others: object) -> list[object]:
    return [replay(i, curve[:8], slowness=s, **others) for i, s in enumerate(times)]


def test_a_slower_replay_is_told_with_ratio_and_p_and_rejects_nobody(
    verdict: Judge, curve: list[float]
) -> None:
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05)))

    assert found.outcome == "verified"
    assert weight_of(found, "slower_than_claimed") == "note"
    reason = next(r for r in found.reasons if r.code == "slower_than_claimed")
    assert reason.numbers["ratio"] == pytest.approx(3.05, abs=0.01)
    assert reason.numbers["p_value"] < 0.01
    assert reason.message.startswith("claimed 0.88 s, measured here 2.68 s (")


def test_the_interval_is_of_the_olympic_mean_by_the_spread_of_the_replays(
    verdict: Judge, curve: list[float]
) -> None:
    """2.684 * exp(+- 4.3027 * 0.0164 * sqrt(0.449)) s, by hand."""
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05)))
    reason = next(r for r in found.reasons if r.code == "slower_than_claimed")

    assert reason.message == "claimed 0.88 s, measured here 2.68 s (2.56 to 2.81)"


def test_a_replay_slower_within_the_tolerance_is_no_flag(
    verdict: Judge, curve: list[float]
) -> None:
    found = verdict(replays=slowed(curve, (1.44, 1.45, 1.46)))

    assert weight_of(found, "time_agrees") == "supports"


def test_one_absurd_claimed_run_does_not_excuse_the_others(verdict: Judge) -> None:
    cheat = verdict(claimed(HONEST_EPOCHS, seconds=[0.1, 0.1, 1000.0]))

    assert weight_of(cheat, "slower_than_claimed") == "note"


@pytest.mark.parametrize("cpu_seconds", [0.6, 0.79])
def test_times_of_a_processor_that_was_shared_are_not_compared(
    verdict: Judge, curve: list[float], cpu_seconds: float
) -> None:
    noisy = verdict(replays=slowed(curve, (3.0, 3.1, 3.05), cpu_seconds=cpu_seconds))

    assert noisy.outcome == "verified"
    assert weight_of(noisy, "noisy_host") == "note"
    assert noisy.reasons[3].numbers["cpu_share"] == pytest.approx(cpu_seconds)
    assert "slower_than_claimed" not in codes(noisy)


def test_four_fifths_of_a_processor_are_quiet(verdict: Judge, curve: list[float]) -> None:
    assert "noisy_host" not in codes(verdict(replays=slowed(curve, (1, 1.1, 1), cpu_seconds=0.8)))


def test_time_is_compared_on_the_same_hardware_class_only(verdict: Judge) -> None:
    found = verdict(hardware_class="h100-sxm-80gb-x8")

    assert found.outcome == "verified"
    assert weight_of(found, "hardware_differs") == "note"


def test_the_time_of_code_of_its_own_is_not_compared(verdict: Judge, curve: list[float]) -> None:
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05)), trained_with="own")

    assert weight_of(found, "time_not_compared") == "note"
    assert "code of its own" in found.reasons[3].message


def test_times_of_a_worker_that_drifted_are_compared_with_nothing(
    verdict: Judge, curve: list[float]
) -> None:
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05)), drift="4 % slower than its baseline")

    assert weight_of(found, "worker_drifted") == "note"
    assert "slower_than_claimed" not in codes(found)


def test_on_an_accelerator_the_processor_share_tells_nothing(
    verdict: Judge, curve: list[float]
) -> None:
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05), cpu_seconds=0.1), accelerators=8)

    assert "slower_than_claimed" in codes(found)


def test_a_claim_of_no_time_at_all_breaks_nothing(verdict: Judge) -> None:
    found = verdict(claimed(HONEST_EPOCHS, seconds=[0.0, 0.0, 0.0]))

    assert weight_of(found, "slower_than_claimed") == "note"
