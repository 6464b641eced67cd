import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from rules.benchmark import Benchmark, ReachRule, RunsRule
from rules.claim import Claim, System
from rules.errors import RuleError
from rules.judge_convergence import convergence_of
from rules.messages import Failure, ReplayEvaluation, ReplayReport, ReplayRun, WorkerSystem
from rules.run import Evaluation
from rules.scoring import RunScore
from rules.verdict import SHARES, ReasonCode, Verdict
from rules.verification import judge

LAPTOP = System("laptop", "cpu-x86_64", "any")
HONEST_EPOCHS = [7, 8, 8]
SECONDS_PER_EPOCH = 0.11

Judge = Callable[..., Verdict]


@pytest.fixture(scope="module")
def curve(digits: Benchmark) -> list[float]:
    """The mean curve of the reference at batch size 64: 97.5 % is reached at epoch 8."""
    columns = zip(*[run.quality for run in digits.reference_runs_at(64)], strict=True)
    means = [sum(column) / len(column) for column in columns]
    assert means[6] < 97.5 <= means[7]
    return means


def claimed(
    epochs: Sequence[float | None], *, seconds: Sequence[float | None] | None = None
) -> list[RunScore]:
    """Claimed runs; None did not reach the target."""
    times = seconds or [None if e is None else e * SECONDS_PER_EPOCH for e in epochs]
    return [
        RunScore(f"run_{i}.log", i, time is not None, time, epoch, 98.0, SECONDS_PER_EPOCH)
        for i, (epoch, time) in enumerate(zip(epochs, times, strict=True))
    ]


def replay(
    index: int, curve: Sequence[float], *, slowness: float = 1.0, **others: Any
) -> ReplayRun:
    evaluations = [
        ReplayEvaluation(float(j), j * 1152, j * SECONDS_PER_EPOCH * slowness, quality, {})
        for j, quality in enumerate(curve, 1)
    ]
    settings: dict[str, Any] = {
        "status": "reached",
        "tta_seconds": evaluations[-1].seconds if evaluations else None,
        "parent_seconds": 1.0,
        "child_seconds": 1.0,
        "cpu_seconds": 0.98,
    }
    return ReplayRun(
        index=index, seed=1000 + index, evaluations=evaluations, ledger={}, **(settings | others)
    )


def report(runs: Sequence[ReplayRun], *, hardware_class: str = "cpu-x86_64") -> ReplayReport:
    system = WorkerSystem("w1", hardware_class, "any", 2, 24.0, None, 0, 1, {})
    return ReplayReport(list(runs), system)


@pytest.fixture
def verdict(digits: Benchmark, curve: list[float]) -> Judge:
    """Judges a claim on digits; three replays that follow the reference where none are given."""

    def judge_it(
        runs: list[RunScore] | None = None,
        replays: Sequence[ReplayRun] | None = None,
        *,
        benchmark: Benchmark = digits,
        hardware_class: str = "cpu-x86_64",
        hyperparameters: dict[str, float] | None = None,
        division: str = "closed",
        **others: Any,
    ) -> Verdict:
        claim = Claim("digits", division, "m", "f", LAPTOP, ("run_0.log",), hyperparameters or {})
        if replays is None:
            slow = (0.97, 1.0, 1.04)
            replays = [replay(i, curve[:8], slowness=slow[i]) for i in range(3)]
        return judge(
            benchmark,
            claim,
            claimed(HONEST_EPOCHS) if runs is None else runs,
            report(replays, hardware_class=hardware_class),
            **others,
        )

    return judge_it


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.reasons]


def weight_of(verdict: Verdict, code: str) -> str:
    return next(reason.weight for reason in verdict.reasons if reason.code == code)


def test_the_shares_of_alpha_are_those_of_the_documents_and_1_together() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    table = text.partition("| test | share | limit |")[2].partition("\n\n")[0]
    documented = [float(row.split("|")[2]) for row in table.splitlines()[2:]]

    assert list(dataclasses.astuple(SHARES)) == documented
    assert sum(documented) == pytest.approx(1.0)


def test_the_documents_explain_every_reason_of_a_verdict() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    codes = [code for code in get_args(ReasonCode) if not code.startswith("duel_")]

    assert [code for code in codes if f"`{code}`" not in text] == []


def test_an_honest_claim_is_verified_for_four_reasons(verdict: Judge) -> None:
    honest = verdict()

    assert honest.outcome == "verified"
    assert codes(honest) == [
        "reached_target",
        "within_band",
        "convergence_agrees",
        "time_agrees",
    ]
    assert {reason.weight for reason in honest.reasons} == {"supports"}
    assert honest.reasons[1].numbers == {"control_points": 24.0}
    assert honest.reasons[3].numbers["claimed_seconds"] == pytest.approx(0.88)


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


def test_one_slow_run_does_not_hide_times_that_are_too_short(verdict: Judge) -> None:
    cheat = verdict(claimed(HONEST_EPOCHS, seconds=[0.1, 0.1, 1000.0]))

    assert cheat.outcome == "rejected"
    assert "slower_than_claimed" in codes(cheat)


def test_a_run_that_did_not_converge_counts_as_the_slowest(verdict: Judge) -> None:
    assert verdict(claimed([7, 8, None])).outcome == "verified"


def test_a_claim_slower_than_the_replay_is_verified(verdict: Judge) -> None:
    assert verdict(claimed([11, 12, 12])).outcome == "verified"


def test_a_replay_slower_than_claimed_beyond_tolerance_is_held_against_it(
    verdict: Judge, curve: list[float]
) -> None:
    slow = [replay(i, curve[:8], slowness=s) for i, s in enumerate((3.0, 3.1, 3.05))]

    found = verdict(replays=slow)

    assert found.outcome == "rejected"
    assert weight_of(found, "slower_than_claimed") == "rejects"
    assert found.reasons[3].numbers["ratio"] == pytest.approx(3.05, abs=0.01)
    assert found.reasons[3].numbers["tolerated_ratio"] == 1.5


def test_a_replay_slower_within_the_tolerance_agrees(verdict: Judge, curve: list[float]) -> None:
    slow = [replay(i, curve[:8], slowness=s) for i, s in enumerate((1.44, 1.45, 1.46))]

    assert verdict(replays=slow).outcome == "verified"


@pytest.mark.parametrize("cpu_seconds", [(0.6, 0.6, 0.6), (1.9, 0.6, None)])
def test_on_a_noisy_host_time_is_not_held_against_the_claim(
    verdict: Judge, curve: list[float], cpu_seconds: Sequence[float | None]
) -> None:
    slow = [
        replay(i, curve[:8], slowness=s, parent_seconds=2.0, cpu_seconds=cpu_seconds[i])
        for i, s in enumerate((3.0, 3.1, 3.05))
    ]

    noisy = verdict(replays=slow)

    assert noisy.outcome == "verified"
    assert weight_of(noisy, "noisy_host") == "note"
    assert noisy.reasons[3].numbers["cpu_share"] == pytest.approx(0.3)


def test_a_processor_that_was_the_replays_for_four_fifths_is_quiet(
    verdict: Judge, curve: list[float]
) -> None:
    def judged(cpu_seconds: float) -> list[str]:
        slow = [
            replay(i, curve[:8], slowness=s, cpu_seconds=cpu_seconds)
            for i, s in enumerate((1.8, 1.81, 1.82))
        ]
        return codes(verdict(replays=slow))

    assert "slower_than_claimed" in judged(0.8)
    assert "noisy_host" in judged(0.79)


def test_a_noisy_host_takes_nothing_from_a_replay_that_was_not_slow(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [
        replay(i, curve[:8], slowness=s, cpu_seconds=0.3) for i, s in enumerate((1.1, 1.2, 1.3))
    ]

    assert weight_of(verdict(replays=replays), "time_agrees") == "supports"


def test_a_pace_beyond_the_tolerance_by_no_more_than_chance_agrees_and_says_so(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [replay(i, curve[:8], slowness=s) for i, s in enumerate((0.6, 1.1, 9.0))]
    found = verdict(replays=replays)
    (agrees,) = (reason for reason in found.reasons if reason.code == "time_agrees")

    assert agrees.numbers["ratio"] > agrees.numbers["tolerated_ratio"] == 1.5
    assert agrees.message.endswith("the tolerated 1.50, but not by more than chance may do")
    assert verdict().reasons[3].message.endswith("times the claimed seconds per epoch")


@pytest.mark.parametrize(
    ("slowness", "cpu_seconds", "explained"),
    [
        # Much slower, and by too little to be sure of it: p is between the two limits.
        ((3.0, 5.0, 8.0), 0.98, False),
        # Plainly slower, and a processor that was the replay's for a quarter explains four times.
        ((9.9, 10.0, 10.1), 0.25, False),
        ((3.9, 4.0, 4.1), 0.25, True),
    ],
)
def test_a_claim_far_faster_than_noise_explains_is_never_verified(
    verdict: Judge,
    curve: list[float],
    slowness: Sequence[float],
    cpu_seconds: float,
    explained: bool,
) -> None:
    replays = [
        replay(i, curve[:8], slowness=s, cpu_seconds=cpu_seconds) for i, s in enumerate(slowness)
    ]

    found = verdict(replays=replays)

    assert ("time_not_confirmed" in codes(found)) is not explained
    assert ("other work" in found.reasons[3].message) is (cpu_seconds < 0.8)
    assert found.outcome == ("verified" if explained else "inconclusive")


def test_what_leaves_a_time_open_tells_how_much_other_work_explains(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [
        replay(i, curve[:8], slowness=s, cpu_seconds=0.25) for i, s in enumerate((9.9, 10.0, 10.1))
    ]

    (reason,) = (r for r in verdict(replays=replays).reasons if r.code == "time_not_confirmed")

    assert reason.weight == "leaves_open"
    assert "10.00 times the claimed seconds per epoch, of which other work explains 4.00" in (
        reason.message
    )
    assert reason.numbers["cpu_share"] == pytest.approx(0.25)


def test_several_threads_explain_no_more_than_a_processor_of_its_own(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [replay(i, curve[:8], slowness=s, cpu_seconds=2.0) for i, s in enumerate((3, 5, 8))]

    (reason,) = (r for r in verdict(replays=replays).reasons if r.code == "time_not_confirmed")

    assert reason.numbers["cpu_share"] == 1.0


def test_in_the_open_division_a_faster_claim_is_left_open_not_rejected(verdict: Judge) -> None:
    """The submitter's model may be another than the reference."""
    found = verdict(claimed([0.6 * e for e in HONEST_EPOCHS]), division="open")

    assert found.outcome == "inconclusive"
    assert weight_of(found, "converges_faster_than_replay") == "leaves_open"


def test_time_is_compared_on_the_same_hardware_class_only(verdict: Judge) -> None:
    other = verdict(hardware_class="h200")

    assert weight_of(other, "hardware_differs") == "note"
    assert "time_agrees" not in codes(other)
    assert "cpu-x86_64" in other.reasons[3].message
    assert "h200" in other.reasons[3].message


def test_times_of_a_worker_that_drifted_are_compared_with_nothing(
    digits: Benchmark, curve: list[float]
) -> None:
    claim = Claim("digits", "closed", "m", "f", LAPTOP, ("run_0.log",))
    slow = report([replay(i, curve[:8], slowness=3.0) for i in range(3)])
    assert judge(digits, claim, claimed(HONEST_EPOCHS), slow).outcome == "rejected"
    drifted = dataclasses.replace(slow, drift="60 % slower than its own baseline")
    found = judge(digits, claim, claimed(HONEST_EPOCHS), drifted)
    assert found.outcome == "verified"
    assert weight_of(found, "worker_drifted") == "note"
    assert "slower_than_claimed" not in codes(found)


def test_convergence_is_compared_on_any_hardware(verdict: Judge) -> None:
    assert verdict(claimed([4, 4, 4]), hardware_class="h200").outcome == "rejected"


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


def test_a_single_evaluation_is_held_against_the_band(verdict: Judge, curve: list[float]) -> None:
    runs = [replay(0, curve[:1], status="not_reached", tta_seconds=None)]

    assert weight_of(verdict(replays=runs), "within_band") == "supports"


def test_one_run_where_none_is_dropped_is_judged_by_one_replay(
    verdict: Judge, digits: Benchmark, curve: list[float]
) -> None:
    """As DAWNBench counts: one run, nothing dropped. Its time takes two replays to compare."""
    single = dataclasses.replace(digits, runs=RunsRule(count=1, dropped=0))
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(2)]

    alone = verdict(claimed([8]), runs[:1], benchmark=single)
    twice = verdict(claimed([8]), runs, benchmark=single)

    assert codes(alone) == [
        "reached_target",
        "within_band",
        "convergence_agrees",
        "time_not_compared",
    ]
    assert alone.outcome == twice.outcome == "verified"
    assert "time_agrees" in codes(twice)


def test_fewer_replays_than_planned_do_not_verify(verdict: Judge, curve: list[float]) -> None:
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(3)]

    assert verdict(replays=runs, runs_planned=3).outcome == "verified"
    assert verdict(replays=runs, runs_planned=4).outcome == "inconclusive"


def test_fewer_replays_than_planned_do_not_save_a_claim_from_rejection(
    verdict: Judge, curve: list[float]
) -> None:
    runs = [replay(0, curve[:8])]

    assert verdict(claimed([4, 4, 4]), runs, runs_planned=3).outcome == "rejected"


def test_a_claim_that_tells_no_epochs_is_left_open(verdict: Judge) -> None:
    silent = claimed([7, 8, 8])
    silent[1] = dataclasses.replace(silent[1], epochs_to_target=None)

    found = verdict(silent)

    assert found.outcome == "inconclusive"
    assert weight_of(found, "claim_has_no_time") == "leaves_open"


@pytest.mark.parametrize("epochs", [[None, None, None], [7, None, None], [7, 8], []])
def test_a_claim_that_has_no_result_is_never_verified(
    verdict: Judge, epochs: list[float | None]
) -> None:
    assert verdict(claimed(epochs)).outcome == "inconclusive"


def test_a_claim_of_no_time_at_all_is_rejected_and_breaks_nothing(verdict: Judge) -> None:
    found = verdict(claimed(HONEST_EPOCHS, seconds=[0.0, 0.0, 0.0]))

    assert found.outcome == "rejected"
    assert "slower_than_claimed" in codes(found)


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


def test_a_claim_of_fewer_epochs_at_an_honest_time_has_a_slow_pace_not_a_slow_replay(
    verdict: Judge,
) -> None:
    """Epochs and pace are judged apart: too few epochs are no matter of the clock."""
    found = verdict(claimed([4, 4, 4], seconds=[0.8, 0.88, 0.9]))

    assert {r.code for r in found.reasons if r.weight == "rejects"} == {
        "converges_faster_than_replay"
    }
    numbers = next(r.numbers for r in found.reasons if r.code == "time_agrees")
    assert numbers["claimed_seconds_per_epoch"] == pytest.approx(0.22)
    assert numbers["replayed_seconds_per_epoch"] == pytest.approx(0.11, rel=0.02)
    assert numbers["ratio"] == pytest.approx(0.5, rel=0.02)


def test_a_pace_beyond_tolerance_is_caught_though_the_times_would_pass(verdict: Judge) -> None:
    """Twice the epochs at the replays' time: each epoch is claimed to take half as long."""
    found = verdict(claimed([15, 16, 16], seconds=[0.87, 0.88, 0.89]))

    assert found.outcome == "rejected"
    assert weight_of(found, "slower_than_claimed") == "rejects"
    assert "seconds per epoch" in next(
        r.message for r in found.reasons if r.code == "slower_than_claimed"
    )


def test_one_run_of_too_few_epochs_and_one_of_too_few_seconds_do_not_hide_each_other(
    verdict: Judge,
) -> None:
    """Each is dropped where its own factor is averaged, but of the times one of them is ranked.

    1 epoch at the honest pace, 8 epochs at a twentieth of it, and one honest run: the middle of
    epochs and of paces is honest, that of the times is 1 epoch's.
    """
    pace = SECONDS_PER_EPOCH
    found = verdict(claimed([1, 8, 8], seconds=[pace, 8 * pace / 20, 8 * pace]))

    assert found.outcome == "rejected"
    assert "convergence_agrees" in codes(found)
    (slower,) = (r for r in found.reasons if r.weight == "rejects")
    assert slower.code == "slower_than_claimed"
    assert slower.numbers["claimed_seconds"] == pytest.approx(pace)
    assert slower.numbers["claimed_seconds_per_epoch"] == pytest.approx(pace / 8)
    assert slower.numbers["ratio"] == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("silent", ["claim", "replay"])
def test_where_a_run_tells_no_epochs_whole_times_are_compared(
    verdict: Judge, curve: list[float], silent: str
) -> None:
    """The claim's time is the middle of 0.77, 0.88 and a run that missed the target."""
    runs = claimed([7, 8, None])
    replays = [replay(i, curve[:8], slowness=3 + i / 20) for i in range(3)]
    if silent == "claim":
        runs[0] = dataclasses.replace(runs[0], epochs_to_target=None)
    else:
        untold = [dataclasses.replace(e, epoch=0.0) for e in replays[2].evaluations]
        replays[2] = dataclasses.replace(replays[2], evaluations=untold)

    found = verdict(runs, replays)

    (slower,) = (r for r in found.reasons if r.code == "slower_than_claimed")
    assert "3.05 times the claimed time, " in slower.message
    assert slower.numbers["claimed_seconds"] == pytest.approx(0.88)
    assert slower.numbers["replayed_mean_seconds"] == pytest.approx(3.05 * 0.88)
    assert "claimed_seconds_per_epoch" not in slower.numbers


def test_equal_replays_still_allow_the_claim_to_be_one_evaluation_earlier(
    verdict: Judge, curve: list[float]
) -> None:
    """Six replays of 8 epochs each have no scatter, but 7 is within the rounding of epochs."""
    runs = [replay(i, curve[:8]) for i in range(6)]

    assert verdict(claimed([7, 7, 7]), runs, hyperparameters={"batch_size": 24.0}).outcome == (
        "verified"
    )


def test_more_runs_than_needed_are_judged_by_those_that_count(verdict: Judge) -> None:
    """Three in a row count, by their median window: 8, 8, 8 here and 4, 4, 4 there."""
    assert verdict(claimed([8, 8, 8, 4, 4])).outcome == "verified"
    assert verdict(claimed([4, 4, 4, 8, 4])).outcome == "rejected"


def test_the_reference_is_held_to_the_benchmarks_own_reach_rule(
    verdict: Judge, digits: Benchmark, curve: list[float]
) -> None:
    """With three in a row the reference needs about two epochs more than for the first."""
    strict = dataclasses.replace(digits, reach=ReachRule("sustained", 3))
    runs = [replay(i, curve[:10], slowness=1 + i / 20) for i in range(3)]

    found = verdict(claimed([9, 10, 10]), runs, benchmark=strict)

    assert found.reasons[2].numbers["reference_mean_epochs"] == pytest.approx(9.8, abs=0.2)


def test_a_benchmark_without_a_replay_is_not_judged(verdict: Judge, cifar10: Benchmark) -> None:
    with pytest.raises(RuleError, match="no replay policy"):
        verdict(benchmark=dataclasses.replace(cifar10, replay=None))


def test_on_an_accelerator_the_processor_share_tells_nothing(
    digits: Benchmark, curve: list[float]
) -> None:
    system = WorkerSystem("w1", "cpu-x86_64", "any", 2, 24.0, "H200", 1, 1, {})
    runs = [replay(i, curve[:8], slowness=3 + i / 20, cpu_seconds=0.1) for i in range(3)]
    claim = Claim("digits", "closed", "m", "f", LAPTOP, ("run_0.log",))

    found = judge(digits, claim, claimed(HONEST_EPOCHS), ReplayReport(runs, system))

    assert weight_of(found, "slower_than_claimed") == "rejects"
