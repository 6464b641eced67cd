"""Verdicts of replays: their parts, convergence, replayed figures and time."""

from dataclasses import astuple, replace
from pathlib import Path
from typing import get_args

import pytest

from finishline.rules.benchmarks.definition_tables import ReachRule, RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.job import Case
from finishline.rules.verification.judge_convergence import convergence_of
from finishline.rules.verification.messages import Failure
from finishline.rules.verification.replay import judge
from finishline.rules.verification.verdict import SHARES, ReasonCode
from tests.support.verdicts import (
    HONEST_EPOCHS,
    LAPTOP,
    case_of,
    claimed,
    codes,
    replay,
    report,
    weight_of,
)


@pytest.fixture(scope="module")
def curve(digits):
    """The mean curve of the reference at batch size 64: 97.5 % is reached at epoch 8."""
    columns = zip(*[run.quality for run in digits.reference_runs_at(64)], strict=True)
    means = [sum(column) / len(column) for column in columns]
    assert means[6] < 97.5 <= means[7]
    return means


@pytest.fixture
def verdict(digits, curve):
    """Judges a claim on digits; three replays that follow the reference where none are given."""

    def judge_it(
        runs=None,
        replays=None,
        *,
        benchmark=digits,
        hardware_class="cpu-x86_64",
        hyperparameters=None,
        division="closed",
        trained_with="reference",
        drift=None,
        accelerators=0,
        **others,
    ):
        settings = {"hyperparameters": hyperparameters or {}, "trained_with": trained_with}
        claim = Claim("digits", division, "m", "f", LAPTOP, ("run_0.log",), **settings)
        if replays is None:
            slow = (0.97, 1.0, 1.04)
            replays = [replay(i, curve[:8], slowness=slow[i]) for i in range(3)]
        told = report(replays, hardware_class=hardware_class)
        system = replace(told.system, accelerator_count=accelerators)
        case = case_of(
            benchmark,
            claim,
            claimed(HONEST_EPOCHS) if runs is None else runs,
            replace(told, system=system, drift=drift),
            **others,
        )
        return judge(case)

    return judge_it


def test_the_documents_have_the_shares_of_alpha_and_every_reason():
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    table = text.partition("| test | share | limit |")[2].partition("\n\n")[0]
    codes = [code for code in get_args(ReasonCode) if not code.startswith("head_to_head_")]

    assert [float(row.split("|")[2]) for row in table.splitlines()[2:]] == list(astuple(SHARES))
    assert [code for code in codes if f"`{code}`" not in text] == [], "no row in docs/rules.md"


def reason_of(found, code):
    return next(reason for reason in found.reasons if reason.code == code)


def test_an_honest_claim_is_verified_for_four_reasons(verdict):
    honest = verdict()

    assert honest.outcome == "verified"
    assert codes(honest) == ["reached_target", "within_band", "convergence_agrees", "time_agrees"]
    assert {reason.weight for reason in honest.reasons} == {"supports"}
    assert honest.reasons[1].numbers == {"control_points": 24.0}
    assert honest.reasons[3].numbers["claimed_seconds"] == pytest.approx(0.88)


def test_one_run_where_none_is_dropped_is_judged_by_one_replay(verdict, digits, curve):
    """As DAWNBench counts: one run, nothing dropped. Its time takes two replays to compare."""
    single = replace(digits, runs=RunsRule(count=1, dropped=0))
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(2)]

    alone = verdict(claimed([8]), runs[:1], benchmark=single)
    twice = verdict(claimed([8]), runs, benchmark=single)

    agreed = ["reached_target", "within_band", "convergence_agrees"]
    assert codes(alone) == [*agreed, "time_not_compared"]
    assert alone.outcome == twice.outcome == "verified"
    assert "time_agrees" in codes(twice)


@pytest.mark.parametrize(
    ("epochs", "outcome"),
    [
        ([7, 8, None], "verified"),  # What did not converge counts as the slowest.
        ([None, None, None], "inconclusive"),
        ([7, None, None], "inconclusive"),
        ([7, 8], "inconclusive"),
        ([], "inconclusive"),
        # Three in a row count, by their median window: 8, 8, 8 here and 4, 4, 4 there.
        ([8, 8, 8, 4, 4], "verified"),
        ([4, 4, 4, 8, 4], "rejected"),
        # The slowest run is dropped from the time, so it must not lift the mean of the epochs.
        ([4.6, 4.6, 14.0], "rejected"),
    ],
)
def test_a_claim_is_judged_by_the_runs_that_count(verdict, epochs, outcome):
    found = verdict(claimed(epochs))

    assert found.outcome == outcome
    assert (outcome == "rejected") == ("converges_faster_than_replay" in codes(found))


def test_a_benchmark_without_a_replay_is_not_judged(verdict, cifar10):
    with pytest.raises(RuleError, match="no replay policy"):
        verdict(benchmark=replace(cifar10, replay=None))


def test_a_claim_of_40_percent_fewer_epochs_is_rejected_with_the_reason(verdict):
    cheat = verdict(claimed([0.6 * e for e in HONEST_EPOCHS]))

    assert cheat.outcome == "rejected"
    assert weight_of(cheat, "converges_faster_than_replay") == "rejects"
    numbers = cheat.reasons[2].numbers
    assert numbers["claimed_mean_epochs"] == pytest.approx(4.8)
    assert numbers["reference_mean_epochs"] == pytest.approx(7.7, abs=0.05)
    assert numbers["reference_runs"] == 43.0  # 40 calibrated runs and the 3 replays
    assert numbers["claimed_mean_epochs"] < numbers["lowest_mean_epochs"] < 7.0


@pytest.mark.parametrize(
    ("where", "outcome", "weight"),
    [
        # The submitter's model may be another than the reference.
        ({"division": "open"}, "inconclusive", "leaves_open"),
        ({"hardware_class": "h200"}, "rejected", "rejects"),
        ({"replays": [], "runs_planned": 3}, "rejected", "rejects"),
    ],
)
def test_faster_claim_is_rejected_outside_open(verdict, where, outcome, weight):
    found = verdict(claimed([4, 4, 4]), **where)

    assert found.outcome == outcome
    assert weight_of(found, "converges_faster_than_replay") == weight


def test_a_claim_that_tells_no_epochs_is_left_open(verdict):
    silent = claimed([7, 8, 8])
    silent[1] = replace(silent[1], epochs_to_target=None)

    found = verdict(silent)

    assert found.outcome == "inconclusive"
    assert weight_of(found, "claim_has_no_time") == "leaves_open"


def test_without_calibration_the_replays_alone_are_the_reference(verdict, curve):
    settings = {"batch_size": 24.0}  # below the smallest calibrated one
    runs = [replay(i, [*curve[: 6 + i % 2], 97.6]) for i in range(6)]  # 7, 8, 7, 8, 7, 8 epochs
    equal = [replay(i, curve[:8]) for i in range(6)]

    honest = verdict(claimed([7, 8, 8]), runs, hyperparameters=settings)
    cheat = verdict(claimed([4, 4, 4]), runs, hyperparameters=settings)
    # Replays of 8 epochs each have no scatter, but 7 is within the rounding of epochs.
    rounded = verdict(claimed([7, 7, 7]), equal, hyperparameters=settings)

    outcomes = [found.outcome for found in (honest, cheat, rounded)]
    assert outcomes == ["verified", "rejected", "verified"]
    assert "within_band" not in codes(honest)
    assert honest.reasons[1].numbers["reference_runs"] == 6.0
    assert honest.reasons[1].numbers["reference_mean_epochs"] == 7.5


@pytest.mark.parametrize(
    ("settings", "replays", "runs", "mean"),
    [
        # 48 lies half way between 32 (7.2 epochs) and 64 (7.675); it counts as 2 x 3 runs.
        ({"batch_size": 48.0}, 6, 12.0, (6 * 7.4375 + 6 * 8.0) / 12),
        ({"batch_size": 48.0}, 1, 7.0, (6 * 7.4375 + 8.0) / 7),
        # With other settings the replays alone are the reference.
        ({"batch_size": 48.0, "momentum": 0.8}, 6, 6.0, 8.0),
    ],
)
def test_interpolated_reference_joins_the_replays(verdict, curve, settings, replays, runs, mean):
    replayed = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(replays)]

    found = verdict(claimed([7, 8, 8]), replayed, hyperparameters=settings)

    numbers = reason_of(found, "convergence_agrees").numbers
    assert (numbers["reference_runs"], numbers["reference_mean_epochs"]) == (
        runs,
        pytest.approx(mean),
    )
    assert "within_band" not in codes(found)


def test_a_reference_without_replays_rejects_and_a_single_replay_is_none(verdict, curve):
    between = verdict(claimed([4, 4, 4]), [], hyperparameters={"batch_size": 48.0})
    single = [replay(0, curve[:8])]
    below = verdict(claimed([7, 8, 8]), single, hyperparameters={"batch_size": 24.0})

    assert between.outcome == "rejected"
    assert weight_of(below, "claim_has_no_time") == "leaves_open"


def test_where_nothing_bounds_the_claimed_epochs_the_words_say_so(verdict, curve):
    """Two replays alone, far apart, allow a mean of no epochs at all."""
    settings = {"batch_size": 48.0, "momentum": 0.8}
    late = [*curve[:6], *[96.0] * 6, *curve[6:8]]
    apart = verdict(
        claimed([7, 8, 8]), [replay(0, curve[:8]), replay(1, late)], hyperparameters=settings
    )

    unbounded = reason_of(apart, "convergence_agrees")
    bounded = reason_of(verdict(claimed([7, 8, 8])), "convergence_agrees")
    assert unbounded.numbers["lowest_mean_epochs"] == 0.0
    assert "too few, or too far apart" in unbounded.message
    assert f"(least allowed {bounded.numbers['lowest_mean_epochs']:.2f})" in bounded.message


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
def test_epochs_are_read_off_between_evaluations(digits, curve, curves, interval, expected):
    claim = Claim("digits", "closed", "m", "f", LAPTOP, ("run_0.log",))
    told = [
        [Evaluation(j * interval, j * 0.1, q) for j, q in enumerate(qualities, 1)]
        for qualities in curves
    ]
    runs = claimed([3, 3, None if None in expected else 3])

    for replays in ([], [replay(0, curve[:8])]):
        found = convergence_of(Case(digits, (), report(replays), claim, runs, told))

        assert found is not None
        assert found.claimed == expected
        assert found.quantum == pytest.approx(0.1 if 2.5 in expected else 1.0)


def test_the_reference_is_held_to_the_benchmarks_own_reach_rule(verdict, digits, curve):
    """With three in a row the reference needs about two epochs more than for the first."""
    strict = replace(digits, reach=ReachRule("sustained", 3))
    runs = [replay(i, curve[:10], slowness=1 + i / 20) for i in range(3)]

    found = verdict(claimed([9, 10, 10]), runs, benchmark=strict)

    assert found.reasons[2].numbers["reference_mean_epochs"] == pytest.approx(9.8, abs=0.2)


@pytest.mark.parametrize(
    ("low", "outcome", "weight"), [((1, 2), "rejected", "rejects"), ((2,), "verified", "note")]
)
def test_replays_below_the_band_reject_and_one_is_dropped(verdict, curve, low, outcome, weight):
    how = {"status": "below_band", "tta_seconds": None}
    found = verdict(
        replays=[
            replay(i, [*curve[:5], 70.0], **how)
            if i in low
            else replay(i, curve[:8], slowness=1 + i / 10)
            for i in range(3)
        ]
    )

    assert found.outcome == outcome
    assert weight_of(found, "below_band") == weight
    below = [r.numbers["evaluation"] for r in found.reasons if r.code == "below_band"]
    assert below == [6.0] * len(low)
    assert ("did_not_reach" in codes(found)) == (outcome == "rejected")


def test_a_replay_above_the_band_leaves_the_verdict_open(verdict, curve):
    fast = [replay(i, [curve[0], curve[1], curve[2], 99.0]) for i in range(3)]

    found = verdict(replays=fast)

    assert found.outcome == "inconclusive"
    assert weight_of(found, "above_band") == "leaves_open"


def test_a_single_evaluation_is_held_against_the_band(verdict, curve):
    runs = [replay(0, curve[:1], status="not_reached", tta_seconds=None)]

    assert weight_of(verdict(replays=runs), "within_band") == "supports"


def test_one_replay_may_miss_the_target_and_two_may_not(verdict, curve):
    def missed(index):
        return replay(index, curve[:7], status="not_reached", tta_seconds=None)

    one = verdict(replays=[replay(0, curve[:8]), replay(1, curve[:8], slowness=1.1), missed(2)])
    two = verdict(replays=[replay(0, curve[:8]), missed(1), missed(2)])

    assert one.outcome == "verified"
    assert two.outcome == "rejected"
    assert weight_of(two, "did_not_reach") == "rejects"
    assert two.reasons[0].numbers == {"reached": 1.0, "started": 3.0}


def test_what_a_worker_calls_reached_must_be_in_its_evaluations(verdict, curve):
    liars = [replay(i, curve[:7]) for i in range(3)]
    empty = [replay(i, []) for i in range(3)]

    assert verdict(replays=liars).outcome == "rejected"
    assert verdict(replays=empty).outcome == "rejected"


@pytest.mark.parametrize(
    ("kind", "code", "epochs", "outcome"),
    [
        ("infrastructure", "child_died", 3, "inconclusive"),
        ("infrastructure", "clock_mismatch", 3, "inconclusive"),
        ("rules", "data_set_differs", 3, "inconclusive"),
        ("submitter", "training_diverged", 3, "rejected"),
        ("submitter", "training_diverged", 8, "rejected"),  # after its crossing
        ("time_limit", "run_time_limit", 3, "rejected"),
    ],
)
def test_only_failures_of_the_claim_count_against_it(verdict, curve, kind, code, epochs, outcome):
    how = {"status": "failed", "tta_seconds": None, "failure": Failure(kind, code, "it", "look")}
    failed = [replay(i, curve[:epochs], **how) for i in (1, 2)]

    found = verdict(replays=[replay(0, curve[:8]), *failed])

    assert found.outcome == outcome
    if outcome == "inconclusive":
        assert weight_of(found, "infrastructure") == "leaves_open"
    else:
        assert codes(found)[0] == "did_not_reach"


def test_replays_that_were_cancelled_do_not_count_against_a_claim(verdict, curve):
    cancelled = [replay(i, curve[:3], status="cancelled", tta_seconds=None) for i in (1, 2)]

    found = verdict(replays=[replay(0, curve[:8]), *cancelled])

    assert found.outcome == "inconclusive"
    assert found.reasons[0].numbers == {"reached": 1.0, "started": 1.0, "planned": 3.0}


@pytest.mark.parametrize("runs_planned", [None, 3])
def test_a_report_without_runs_decides_nothing(verdict, runs_planned):
    found = verdict(replays=[], runs_planned=runs_planned)

    assert found.outcome == "inconclusive"
    assert "within_band" not in codes(found)


def test_fewer_replays_than_planned_do_not_verify(verdict, curve):
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(3)]

    assert verdict(replays=runs, runs_planned=3).outcome == "verified"
    assert verdict(replays=runs, runs_planned=4).outcome == "inconclusive"


def slowed(curve, times, **others):
    return [replay(i, curve[:8], slowness=s, **others) for i, s in enumerate(times)]


def test_a_slower_replay_is_told_with_ratio_and_p_and_rejects_nobody(verdict, curve):
    """The interval by hand: 2.684 * exp(+- 4.3027 * 0.0164 * sqrt(0.449)) s."""
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05)))

    assert found.outcome == "verified"
    reason = reason_of(found, "slower_than_claimed")
    assert reason.weight == "note"
    assert reason.numbers["ratio"] == pytest.approx(3.05, abs=0.01)
    assert reason.numbers["p_value"] < 0.01
    assert reason.message.startswith(
        "measured 2.68 s, 3.05 times the claimed 0.88 s, tolerated 1.5 times (p = "
    )


def test_slower_mean_is_named_though_chance_may_explain_it(verdict, curve):
    """Three runs at 1.2, 1.6 and 2.4 times the claimed time: the mean is beyond 1.5, p is not."""
    reason = reason_of(verdict(replays=slowed(curve, (1.2, 1.6, 2.4))), "slower_than_claimed")

    assert "1.6 times the claimed 0.88 s" in reason.message
    assert reason.numbers["p_value"] > 0.1


@pytest.mark.parametrize(
    ("how", "others", "code"),
    [
        ({"cpu_seconds": 0.1}, {}, "slower_than_claimed"),
        ({}, {"hardware_class": "h100-sxm-80gb-x8"}, "hardware_differs"),
        ({}, {"trained_with": "own"}, "time_not_compared"),
        ({}, {"drift": "4 % slower than its baseline"}, "worker_drifted"),
    ],
)
def test_only_like_times_are_compared(verdict, curve, how, others, code):
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05), **how), **others)

    assert found.outcome == "verified"
    assert weight_of(found, code) == "note"
    assert ("slower_than_claimed" in codes(found)) == (code == "slower_than_claimed")


@pytest.mark.parametrize(
    ("how", "others", "share"),
    [
        ({"cpu_seconds": 0.79}, {}, 0.79),
        ({"cpu_seconds": 0.8}, {}, None),
        # On an accelerator the processor's time tells nothing. A sandbox's own share does.
        ({"cpu_seconds": 0.1}, {"accelerators": 8}, None),
        ({"cpu_seconds": 0.1, "processor_share": 0.9}, {}, None),
        ({"processor_share": 0.4}, {"accelerators": 8}, 0.4),
    ],
)
def test_disturbed_time_is_compared_and_noted(verdict, curve, how, others, share):
    found = verdict(replays=slowed(curve, (3.0, 3.1, 3.05), **how), **others)

    assert weight_of(found, "slower_than_claimed") == "note"
    assert ("noisy_host" in codes(found)) == (share is not None)
    if share is not None:
        assert weight_of(found, "noisy_host") == "note"
        assert reason_of(found, "noisy_host").numbers["cpu_share"] == pytest.approx(share)


@pytest.mark.parametrize("seconds", [[0.1, 0.1, 1000.0], [0.0, 0.0, 0.0]])
def test_one_absurd_claimed_run_or_no_time_at_all_excuses_nothing(verdict, seconds):
    found = verdict(claimed(HONEST_EPOCHS, seconds=seconds))

    assert weight_of(found, "slower_than_claimed") == "note"


def test_a_replay_slower_within_the_tolerance_is_no_flag(verdict, curve):
    found = verdict(replays=slowed(curve, (1.44, 1.45, 1.46)))

    assert weight_of(found, "time_agrees") == "supports"
