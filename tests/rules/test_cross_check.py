"""Trainings of one claim compared: cross-checks, equal seeds, reruns and precision."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from finishline.rules.measurements import PrecisionAudit
from finishline.rules.run import Evaluation
from finishline.rules.verification.cross_check import compare_runs, curve_distance
from finishline.rules.verification.messages import ReplayEvaluation, ReplayReport, ReplayRun
from finishline.rules.verification.replay import judge, judge_precision
from finishline.rules.verification.utilisation import is_narrower
from server.boards.compare import compare_replays
from server.verifications.judge import drawn_runs
from tests.support.verdicts import CLAIM, WORKER, case_of, trained
from worker.machine.precision import narrowest, precision_by_error

NONCES = [bytes([i]).hex() * 32 for i in range(200)]


def run_of(qualities, *, pace=1.0, status="reached", first_epoch=1):
    evaluations = [
        ReplayEvaluation(float(j), j * 100, j * pace, quality, {})
        for j, quality in enumerate(qualities, first_epoch)
    ]
    return ReplayRun(0, 7, status, evaluations, {})


def test_the_draw_follows_from_nonce_and_report():
    def draw(told):
        return [drawn_runs(nonce, told, among=range(5), organisers=False) for nonce in NONCES]

    drawn = draw({"a": 1})
    assert drawn == draw({"a": 1}) != draw({"a": 2})
    assert {len(each) for each in drawn} == {1}
    assert {each[0] for each in drawn} == {0, 1, 2, 3, 4}
    # Only runs that count are drawn, and of an organiser's worker one in ten.
    assert drawn_runs(NONCES[0], {}, among=[], organisers=False) == []
    assert drawn_runs(NONCES[0], {}, among=[3], organisers=False) == [3]
    drawn = [drawn_runs(nonce, {}, among=range(5), organisers=True) for nonce in NONCES]
    assert 60 < sum(map(len, drawn)) < 140  # of 1000


SHORT = run_of([10.0, 50.0, 90.0], status="not_reached")
LONG = run_of([10.0, 50.0, 90.0, 95.0])


@pytest.mark.parametrize(
    ("first", "other", "limit", "name", "agrees"),
    [
        # 3 s: 5 % of the longer and 0.25 s.
        (run_of([10.0, 50.0, 90.0]), run_of([10.0, 50.0, 90.0], pace=1.13), None, "paced", True),
        (run_of([10.0, 50.0, 90.0]), run_of([10.0, 50.0, 90.0], pace=1.15), None, "paced", False),
        # The rms of 0, 0.3, 0 is 0.173.
        (LONG, run_of([10.0, 50.3, 90.0]), 0.18, "agrees", True),
        (LONG, run_of([10.0, 50.3, 90.0]), 0.17, "agrees", False),
        # A run that missed the target ends no earlier than the other.
        (SHORT, LONG, 0.2, "agrees", False),
        (LONG, SHORT, 0.2, "agrees", False),
        (SHORT, run_of([10.0, 50.0, 90.0]), 0.2, "agrees", True),
        # Neither leaves an evaluation out, which takes time.
        (LONG, run_of([50.0, 90.0, 95.0], first_epoch=2), 0.2, "agrees", False),
        (run_of([50.0, 90.0, 95.0], first_epoch=2), LONG, None, "agrees", False),
    ],
)
def test_pace_and_curve_of_a_run_agree_within_their_limits(first, other, limit, name, agrees):
    assert getattr(compare_runs(first, other, limit=limit), name) is agrees
    assert compare_runs(LONG, run_of([10.0, 50.0]), limit=limit) is None


def evaluations(quality):
    return [Evaluation(float(j), 0.11 * j, q) for j, q in enumerate(quality, 1)]


def until_target(quality):
    return list(quality[: next(j for j, q in enumerate(quality, 1) if q >= 97.5)])


def test_the_distance_is_that_of_the_epochs_both_have():
    first = evaluations([10.0, 20.0, 30.0, 40.0])
    second = evaluations([13.0, 24.0, 30.0])

    assert curve_distance(first, second) == pytest.approx((25 / 3) ** 0.5)
    assert curve_distance(first, second[:2]) is None


def test_any_two_shipped_seeds_are_further_apart_than_the_limit(digits):
    limit = digits.replay.equal_seed_distance
    assert limit > 0.19  # Two hosts differed by that much at most.
    for batch_size in (32, 64, 128):
        known = [until_target(run.quality) for run in digits.reference_runs_at(batch_size)]
        nearest = min(
            curve_distance(evaluations(one), evaluations(other)) or 0.0
            for i, one in enumerate(known)
            for other in known[:i]
        )
        assert nearest > limit


TORCH = dataclasses.replace(WORKER, software={"torch": "2.13.0"})


def replay_report(seconds, *, quality=98.0, **system):
    """Runs that ended at these seconds, each an epoch later than the one before."""
    status = "reached" if quality >= 97.5 else "not_reached"
    runs = []
    for index, end in enumerate(seconds):
        run = trained([(end / 2, 50.0), (end, quality)], index=index, status=status)
        first, last = run.evaluations
        last = dataclasses.replace(last, epoch=2.0 + index)
        runs.append(dataclasses.replace(run, evaluations=[first, last]))
    return ReplayReport(runs, dataclasses.replace(TORCH, **system))


def test_the_p_value_is_that_of_welchs_test_on_log_times(digits):
    first, second = [1.0, 1.1, 1.05, 0.98], [1.3, 1.25, 1.4]
    times, epochs = compare_replays(digits, replay_report(first), replay_report(second))
    wanted = stats.ttest_ind(np.log(first), np.log(second), equal_var=False).pvalue

    assert times.p_value == pytest.approx(wanted)
    assert times.ratio == pytest.approx(1.0325 / (3.95 / 3))
    assert (times.figure, times.comparable) == ("tta_seconds", True)
    assert (epochs.first_mean, epochs.second_mean) == (3.5, 3.0)


def test_times_on_other_hardware_are_not_compared_but_epochs_are(digits):
    times, epochs = compare_replays(
        digits, replay_report([1.0, 1.1]), replay_report([2.0, 2.1], hardware_class="gpu")
    )

    assert (times.comparable, times.p_value) == (False, None)
    assert (epochs.comparable, epochs.p_value) == (True, pytest.approx(1.0))


A100 = dataclasses.replace(WORKER, hardware_class="other")


def replayed(lowest):
    audit = PrecisionAudit(lowest=lowest, observed={"fp32": 8, "bf16": 1}, autocast=True)
    return ReplayReport(runs=[], system=A100, precision=audit)


def claiming(precision):
    return dataclasses.replace(CLAIM, precision=precision)


def test_one_narrow_operation_names_the_whole_run():
    assert narrowest(["fp32", "fp32", "fp8", "bf16"]) == "fp8"
    assert narrowest(["fp32", "tf32"]) == "tf32"
    assert narrowest([]) is None
    # bfloat16 keeps fewer digits than float16.
    assert is_narrower("bf16", "fp16")
    assert not is_narrower("fp16", "bf16")
    assert not is_narrower("fp32", "fp32")


def test_bfloat16_inside_a_claim_of_float32_is_rejected():
    (reason,) = judge_precision(claiming("fp32"), replayed("bf16"))
    assert (reason.code, reason.weight) == ("precision_differs", "rejects")
    assert "the claim states fp32, and the training touched bf16" in reason.message
    assert reason.numbers["operations_bf16"] == 1.0


@pytest.mark.parametrize(
    ("claim", "found", "weights"),
    [
        ("bf16", "bf16", ["supports"]), ("bf16", "fp32", ["supports"]),
        ("tf32", "fp32", ["supports"]), ("fp32", "tf32", ["rejects"]), (None, "bf16", []),
        ("fp32", None, []),
    ],
)  # fmt: skip
def test_a_training_as_wide_as_claimed_or_wider_agrees(claim, found, weights):
    reasons = judge_precision(claiming(claim), replayed(found))
    assert [reason.weight for reason in reasons] == weights
    assert judge_precision(claiming(claim), ReplayReport(runs=[], system=A100)) == []


def test_verdict_holds_the_precision_too(digits):
    verdict = judge(case_of(digits, claiming("fp32"), [], replayed("bf16"), runs_planned=1))
    assert "precision_differs" in {reason.code for reason in verdict.reasons}


# Unit roundoff 2^-24, 2^-11 and 2^-9: the relative error of a product is a little below it.
@pytest.mark.parametrize(
    ("error", "name"), [(2.4e-7, "fp32"), (3e-4, "tf32"), (1.7e-3, "bf16"), (0.1, "bf16")]
)
def test_an_error_against_float64_tells_what_was_computed_in(error, name):
    assert precision_by_error(error) == name
