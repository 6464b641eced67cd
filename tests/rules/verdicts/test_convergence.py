"""The claimed epochs against calibrated runs and replays."""

import dataclasses

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, ReachRule
from finishline.rules.scoring.run import Evaluation
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.judge_convergence import convergence_of
from tests.support.verdicts import (
    HONEST_EPOCHS,
    LAPTOP,
    Judge,
    claimed,
    codes,
    replay,
    report,
    weight_of,
)


def test_a_claim_of_40_percent_fewer_epochs_is_rejected_with_the_reason(verdict: Judge) -> None:
    cheat = verdict(claimed([0.6 * e for e in HONEST_EPOCHS]))

    assert cheat.outcome == "rejected"
    assert weight_of(cheat, "converges_faster_than_replay") == "rejects"
    numbers = cheat.reasons[2].numbers
    assert numbers["claimed_mean_epochs"] == pytest.approx(4.8)
    assert numbers["reference_mean_epochs"] == pytest.approx(7.7, abs=0.05)
    assert numbers["reference_runs"] == 43.0  # 40 calibrated runs and the 3 replays
    assert numbers["claimed_mean_epochs"] < numbers["lowest_mean_epochs"] < 7.0


def test_one_slow_run_does_not_hide_runs_that_converge_too_fast(verdict: Judge) -> None:
    """The slowest run is dropped from the time, so it must not lift the mean of the epochs."""
    cheat = verdict(claimed([4.6, 4.6, 14.0]))

    assert cheat.outcome == "rejected"
    assert "converges_faster_than_replay" in codes(cheat)


def test_in_the_open_division_a_faster_claim_is_left_open_not_rejected(verdict: Judge) -> None:
    """The submitter's model may be another than the reference."""
    found = verdict(claimed([0.6 * e for e in HONEST_EPOCHS]), division="open")

    assert found.outcome == "inconclusive"
    assert weight_of(found, "converges_faster_than_replay") == "leaves_open"


def test_convergence_is_compared_on_any_hardware(verdict: Judge) -> None:
    assert verdict(claimed([4, 4, 4]), hardware_class="h200").outcome == "rejected"


def test_a_claim_that_tells_no_epochs_is_left_open(verdict: Judge) -> None:
    silent = claimed([7, 8, 8])
    silent[1] = dataclasses.replace(silent[1], epochs_to_target=None)

    found = verdict(silent)

    assert found.outcome == "inconclusive"
    assert weight_of(found, "claim_has_no_time") == "leaves_open"


def test_without_calibration_the_replays_alone_are_the_reference(
    verdict: Judge, curve: list[float]
) -> None:
    settings = {"batch_size": 24.0}  # below the smallest calibrated one
    runs = [replay(i, [*curve[: 6 + i % 2], 97.6]) for i in range(6)]  # 7, 8, 7, 8, 7, 8 epochs

    honest = verdict(claimed([7, 8, 8]), runs, hyperparameters=settings)
    cheat = verdict(claimed([4, 4, 4]), runs, hyperparameters=settings)

    assert (honest.outcome, cheat.outcome) == ("verified", "rejected")
    assert "within_band" not in codes(honest)
    assert honest.reasons[1].numbers["reference_runs"] == 6.0
    assert honest.reasons[1].numbers["reference_mean_epochs"] == 7.5


def test_between_calibrated_batch_sizes_the_interpolated_reference_joins_the_replays(
    verdict: Judge, curve: list[float]
) -> None:
    """48 lies half way between 32 (7.2 epochs) and 64 (7.675); it counts as 2 x 3 runs."""
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(6)]

    found = verdict(claimed([7, 8, 8]), runs, hyperparameters={"batch_size": 48.0})
    no_replays = verdict(claimed([4, 4, 4]), [], hyperparameters={"batch_size": 48.0})

    numbers = next(r.numbers for r in found.reasons if r.code == "convergence_agrees")
    assert numbers["reference_runs"] == 12.0
    assert numbers["reference_mean_epochs"] == pytest.approx((6 * 7.4375 + 6 * 8.0) / 12)
    assert "within_band" not in codes(found)
    assert no_replays.outcome == "rejected"


def test_a_single_replay_joins_the_interpolated_reference_and_alone_is_none(
    verdict: Judge, curve: list[float]
) -> None:
    single = [replay(0, curve[:8])]

    between = verdict(claimed([7, 8, 8]), single, hyperparameters={"batch_size": 48.0})
    below = verdict(claimed([7, 8, 8]), single, hyperparameters={"batch_size": 24.0})

    numbers = next(r.numbers for r in between.reasons if r.code == "convergence_agrees")
    assert numbers["reference_runs"] == 7.0
    assert numbers["reference_mean_epochs"] == pytest.approx((6 * 7.4375 + 8.0) / 7)
    assert weight_of(below, "claim_has_no_time") == "leaves_open"


def test_where_nothing_bounds_the_claimed_epochs_the_words_say_so(
    verdict: Judge, curve: list[float]
) -> None:
    """Two replays alone, far apart, allow a mean of no epochs at all."""
    settings = {"batch_size": 48.0, "momentum": 0.8}
    late = [*curve[:6], *[96.0] * 6, *curve[6:8]]
    apart = verdict(
        claimed([7, 8, 8]), [replay(0, curve[:8]), replay(1, late)], hyperparameters=settings
    )
    bounded = verdict(claimed([7, 8, 8]))

    reason = next(r for r in apart.reasons if r.code == "convergence_agrees")
    assert reason.numbers["lowest_mean_epochs"] == 0.0
    assert reason.message.endswith(
        "(which are too few, or too far apart, to call any mean too low)"
    )
    reason = next(r for r in bounded.reasons if r.code == "convergence_agrees")
    assert f"(least allowed {reason.numbers['lowest_mean_epochs']:.2f})" in reason.message


UP = [90.0, 95.5, 99.5]  # 97.5 lies half way from the second to the third


@pytest.mark.parametrize(
    ("curves", "interval", "expected"),
    [
        ([UP, UP, UP], 1.0, (2.5, 2.5, 2.5)),
        ([UP, UP, UP[:2]], 1.0, (2.5, 2.5, None)),
        ([UP, UP, UP], 0.5, (3, 3, 3)),  # evaluated twice in each epoch
        ([UP, UP, UP[2:]], 1.0, (3, 3, 3)),  # nothing lies before the first evaluation
        ([UP, UP, [90.0, 91.0]], 1.0, (3, 3, 3)),  # a log that ends elsewhere than its curve
        ([], 1.0, (3, 3, 3)),
    ],
)
def test_epochs_are_read_off_between_evaluations_where_every_curve_allows_it(
    digits: Benchmark,
    curve: list[float],
    curves: list[list[float]],
    interval: float,
    expected: tuple[float | None, ...],
) -> None:
    claim = Claim("digits", "closed", "m", "f", LAPTOP, ("run_0.log",))
    told = [
        [Evaluation(j * interval, j * 0.1, q) for j, q in enumerate(qualities, 1)]
        for qualities in curves
    ]
    runs = claimed([3, 3, None if None in expected else 3])

    for replays in ([], [replay(0, curve[:8])]):
        found = convergence_of(digits, claim, runs, report(replays), curves=told)

        assert found is not None
        assert found.claimed == expected
        assert found.quantum == pytest.approx(0.1 if 2.5 in expected else 1.0)


def test_with_settings_of_its_own_only_the_replays_are_the_reference(
    verdict: Judge, curve: list[float]
) -> None:
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(6)]

    found = verdict(claimed([7, 8, 8]), runs, hyperparameters={"batch_size": 48.0, "momentum": 0.8})

    numbers = next(r.numbers for r in found.reasons if r.code == "convergence_agrees")
    assert numbers["reference_runs"] == 6.0


def test_equal_replays_still_allow_the_claim_to_be_one_evaluation_earlier(
    verdict: Judge, curve: list[float]
) -> None:
    """Six replays of 8 epochs each have no scatter, but 7 is within the rounding of epochs."""
    runs = [replay(i, curve[:8]) for i in range(6)]

    assert verdict(claimed([7, 7, 7]), runs, hyperparameters={"batch_size": 24.0}).outcome == (
        "verified"
    )


def test_the_reference_is_held_to_the_benchmarks_own_reach_rule(
    verdict: Judge, digits: Benchmark, curve: list[float]
) -> None:
    """With three in a row the reference needs about two epochs more than for the first."""
    strict = dataclasses.replace(digits, reach=ReachRule("sustained", 3))
    runs = [replay(i, curve[:10], slowness=1 + i / 20) for i in range(3)]

    found = verdict(claimed([9, 10, 10]), runs, benchmark=strict)

    assert found.reasons[2].numbers["reference_mean_epochs"] == pytest.approx(9.8, abs=0.2)
