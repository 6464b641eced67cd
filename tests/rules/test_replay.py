"""Replays: plans, bands at control points, and reports that cannot be true."""

import hashlib
import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.errors import RuleError
from finishline.rules.measurements import RunTelemetry
from finishline.rules.run import Clock
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.control_points import (
    band_for,
    batch_size_of,
    control_points,
    first_break,
    is_calibrated,
)
from finishline.rules.verification.job import Draw, seal
from finishline.rules.verification.messages import (
    ControlPoint,
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.replay import draw_replay
from finishline.rules.verification.report_check import (
    StreamedEvent,
    check_ledgers,
    check_report,
    check_stream,
)
from server.verifications.report import (
    OffClock,
    check_amounts,
    check_off_clock,
    check_spans,
    off_clock,
)

ENTROPY = bytes(range(32))


def claim_of(**changes):
    settings = {
        "benchmark_id": "digits",
        "division": "closed",
        "model": "reference",
        "framework": "torch",
        "system": System("laptop", "cpu-x86_64", "any"),
        "run_files": ("run_0.log", "run_1.log", "run_2.log"),
    }
    return Claim(**(settings | changes))


def test_without_calibration_twice_as_many_runs_are_made(digits):
    unusual = claim_of(hyperparameters={"batch_size": 48.0})

    calibrated = draw_replay(digits, claim_of(), entropy=ENTROPY)

    assert len(draw_replay(digits, unusual, entropy=ENTROPY).seeds) == 2 * len(calibrated.seeds)


@given(st.binary(min_size=32, max_size=32))
def test_seeds_are_distinct_and_fit_32_bits(digits, entropy):
    seeds = draw_replay(digits, claim_of(), entropy=entropy).seeds

    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_nothing_stands_in_for_the_draw(digits):
    drawn = Draw(seeds=(11, 22), nonce="ab" * 32)
    assert seal(digits, "s", drawn, beside={"seeds": [1]}) == seal(digits, "s", drawn)


@pytest.mark.parametrize("start", range(6))
def test_whoever_is_told_the_nonce_draws_the_same_runs_and_seeds(digits, start):
    """Drawn again here without the rules: SHA-256 with a counter, four bytes each."""
    drawn = draw_replay(digits, claim_of(), entropy=bytes(range(start, start + 32)))
    entropy = bytes.fromhex(drawn.nonce)
    first = int.from_bytes(hashlib.sha256(b"finishline plan" + entropy).digest()[:8], "big")
    span = digits.replay.max_runs - digits.replay.min_runs + 1
    runs = digits.replay.min_runs + first % span
    seeds = [
        int.from_bytes(
            hashlib.sha256(b"finishline seed" + entropy + i.to_bytes(4, "big")).digest()[:4], "big"
        )
        for i in range(runs)
    ]

    assert list(drawn.seeds) == seeds


@pytest.mark.parametrize(
    ("hyperparameters", "calibrated"),
    [
        ({}, True),
        ({"batch_size": 64.0}, True),
        ({"batch_size": 32.0}, True),
        ({"batch_size": 128.0, "momentum": 0.9}, True),
        ({"batch_size": 48.0}, False),
        ({"momentum": 0.8}, False),
        ({"batch_size": 64.0, "epochs": 19.0}, False),
        ({"batch_size": 64.0, "dropout": 0.1}, False),  # The reference has no such setting.
    ],
)
def test_defaults_with_reference_runs_are_calibrated(digits, hyperparameters, calibrated):
    claim = claim_of(hyperparameters=hyperparameters)

    assert is_calibrated(digits, claim) is calibrated
    assert bool(band_for(digits, claim, runs=3)) is calibrated
    assert batch_size_of(digits, claim) == hyperparameters.get("batch_size", 64.0)


def test_the_band_is_that_of_the_claimed_batch_size_at_its_share_of_alpha(digits):
    curves = [run.quality for run in digits.reference_runs if run.batch_size == 32]
    alpha = digits.replay.alpha * 0.18
    expected = control_points(curves, runs=4, alpha=alpha, resolution=100 / 599)

    assert band_for(digits, claim_of(hyperparameters={"batch_size": 32.0}), runs=4) == expected


@pytest.mark.parametrize(("runs", "alpha"), [(1, 0.01), (4, 0.01), (4, 0.001)])
def test_the_band_is_the_prediction_interval_of_student_shared_by_all_evaluations(runs, alpha):
    curves = np.random.default_rng(1).normal([20.0, 80.0, 97.0], [5.0, 2.0, 0.4], (12, 3))
    n, m = 12, 3

    points = control_points(curves.tolist(), runs=runs, alpha=alpha, resolution=0.01)

    quantile = scipy.stats.t.ppf(1 - alpha / (2 * m * runs), n - 1)
    half = quantile * curves.std(axis=0, ddof=1) * np.sqrt(1 + 1 / n)
    centre = curves.mean(axis=0)
    assert [p.index for p in points] == [1, 2, 3]
    assert [p.mean for p in points] == pytest.approx(centre.tolist())
    assert [p.lower for p in points] == pytest.approx((centre - half).tolist())
    assert [p.upper for p in points] == pytest.approx((centre + half).tolist())


def test_the_band_is_never_narrower_than_the_resolution_of_the_metric():
    points = control_points([[50.0, 90.0]] * 6, runs=3, alpha=0.01, resolution=0.25)

    assert [(p.lower, p.upper) for p in points] == [(49.75, 50.25), (89.75, 90.25)]


@pytest.mark.parametrize(
    ("curves", "runs", "known"), [(5, 3, False), (6, 3, True), (1, 1, False), (0, 1, False)]
)
def test_a_band_takes_twice_as_many_reference_runs_as_replays(curves, runs, known):
    reference = [[50.0 + i, 90.0 + i] for i in range(curves)]

    assert bool(control_points(reference, runs=runs, alpha=0.01, resolution=0.1)) is known


def test_curves_count_to_the_shortest():
    points = control_points([[1.0, 2.0, 3.0], [1.5, 2.5]], runs=1, alpha=0.1, resolution=0.0)

    assert len(points) == 2


def test_all_evaluations_of_all_replays_stay_inside_as_often_as_promised():
    """Whole verifications of 3 replays of 8 evaluations at alpha = 0.1: at most 10 % break out."""
    random = np.random.default_rng(3)
    broken = 0
    trials = 1500
    for _ in range(trials):
        curves = random.normal(90.0, 1.0, (10 + 3, 8))
        points = control_points(curves[:10].tolist(), runs=3, alpha=0.1, resolution=0.0)
        broken += any(
            first_break(curve.tolist(), points, higher_is_better=True) for curve in curves[10:]
        )

    assert 0.03 < broken / trials <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / trials)


@pytest.mark.parametrize("batch_size", [32, 64, 128])
def test_one_run_in_forty_leaves_its_band(digits, batch_size):
    """Each calibrated run held against all others of its batch size, as a replay would be.

    Real curves have stragglers that a normal distribution has not, which is why one replay below
    the band does not reject a claim where one run is dropped.
    """
    curves = [run.quality for run in digits.reference_runs_at(batch_size)]
    broken = 0
    for i, curve in enumerate(curves):
        others = curves[:i] + curves[i + 1 :]
        points = control_points(others, runs=3, alpha=0.005, resolution=100 / 599)
        broken += first_break(curve, points, higher_is_better=True) is not None

    assert len(curves) >= 40
    assert broken <= 1


POINTS = [ControlPoint(1, 50.0, 40.0, 60.0), ControlPoint(2, 90.0, 88.0, 92.0)]


@pytest.mark.parametrize("curve", [[], [40.0], [60.0, 88.0], [50.0, 92.0], [50.0, 90.0, 0.0]])
def test_the_edges_are_inside_and_what_has_no_control_point_is_not_judged(curve):
    assert first_break(curve, POINTS, higher_is_better=True) is None
    assert first_break([math.nan], POINTS, higher_is_better=True) is not None


@pytest.mark.parametrize(
    ("curve", "higher_is_better", "index", "side"),
    [
        ([39.9, 90.0], True, 1, "below"),
        ([60.1, 10.0], True, 1, "above"),
        ([50.0, 87.9], True, 2, "below"),
        ([50.0, 92.1], True, 2, "above"),
        ([60.1], False, 1, "below"),  # of a loss, more is worse
        ([39.9], False, 1, "above"),
    ],
)
def test_the_first_break_tells_where_and_on_which_side(curve, higher_is_better, index, side):
    broken = first_break(curve, POINTS, higher_is_better=higher_is_better)

    assert (broken.index, broken.side) == (index, side)
    assert broken.quality == curve[index - 1]
    assert (broken.lower, broken.upper) == (POINTS[index - 1].lower, POINTS[index - 1].upper)


SYSTEM = WorkerSystem("w", "cpu", "any", 2, 24.0, None, 0, 1, {})


SEEDS = [11, 12]


def make_run(index):
    evaluations = [ReplayEvaluation(float(j), j * 100, j * 0.5, 90.0 + j, {}) for j in (1, 2, 3)]
    return ReplayRun(
        index=index,
        seed=SEEDS[index],
        status="reached",
        evaluations=evaluations,
        ledger={},
        tta_seconds=1.5,
        parent_seconds=1.5,
        child_seconds=1.5,
        cpu_seconds=1.5,
    )


def report(**changes):
    """A consistent report, but for what is changed in its second run."""
    return ReplayReport([make_run(0), replace(make_run(1), **changes)], SYSTEM)


AT_ONCE = [ReplayEvaluation(j / 2, j, 0.4, 97.0 + j, {}) for j in (1, 2)]


@pytest.mark.parametrize(
    ("changes", "stop_at"),
    [
        ({}, "target"),
        ({"status": "not_reached", "tta_seconds": None}, "target"),
        (
            {"evaluations": AT_ONCE, "tta_seconds": 0.4, "parent_seconds": 0.4}
            | {"child_seconds": 0.4},
            "target",
        ),
        ({"tta_seconds": 0.5}, "end"),
        ({"tta_seconds": 1.0}, "end"),
        ({"tta_seconds": 1.5}, "end"),
    ],
)
def test_a_consistent_report_passes(changes, stop_at):
    check_report(report(**changes), seeds=SEEDS, stop_at=stop_at)


BACKWARDS = [ReplayEvaluation(1.0, 100, 0.9, 91.0, {}), ReplayEvaluation(2.0, 200, 0.8, 98.0, {})]


NEGATIVE = [ReplayEvaluation(1.0, 100, -0.1, 98.0, {})]


@pytest.mark.parametrize(
    ("changes", "stop_at", "field"),
    [
        ({"seed": 13}, "target", "runs.seed"),
        ({"index": 0}, "target", "runs[1].index"),
        ({"evaluations": BACKWARDS, "tta_seconds": 0.8}, "target", "runs[1].evaluations.seconds"),
        ({"evaluations": NEGATIVE, "tta_seconds": -0.1}, "target", "runs[1].evaluations.seconds"),
        ({"evaluations": []}, "target", "runs[1].tta_seconds"),
        ({"tta_seconds": None}, "target", "runs[1].tta_seconds"),
        ({"tta_seconds": 0.7}, "target", "runs[1].tta_seconds"),
        ({"tta_seconds": 1.0}, "target", "runs[1].tta_seconds"),  # it went on after its target
        ({"tta_seconds": 0.0}, "end", "runs[1].tta_seconds"),
        ({"tta_seconds": 0.7}, "end", "runs[1].tta_seconds"),
        ({"tta_seconds": 2.0}, "end", "runs[1].tta_seconds"),
        ({"parent_seconds": 0.0}, "target", "runs[1].parent_seconds"),
        ({"child_seconds": None}, "target", "runs[1].child_seconds"),
    ],
)
def test_an_impossible_report_is_refused_by_field(changes, stop_at, field):
    with pytest.raises(RuleError) as refused:
        check_report(report(**changes), seeds=SEEDS, stop_at=stop_at)
    assert refused.value.field == field
    assert "12" not in str(refused.value), "a seed is told"


@pytest.mark.parametrize(
    ("field", "amount", "wrong"),
    [
        ("energy_joules", 1e12, 1e308),
        ("temperature_max_celsius", 99.0, -1e308),
        ("utilisation_mean_percent", 100.0, 100.5),
        ("communication_share", 1.0, 1.5),
    ],
)
def test_an_amount_that_no_worker_measures_is_refused_by_field(field, amount, wrong):
    check_amounts(report(telemetry=RunTelemetry(**{field: amount})))
    with pytest.raises(RuleError) as refused:
        check_amounts(report(telemetry=RunTelemetry(**{field: wrong})))
    assert refused.value.field == f"runs[1].telemetry.{field}"


MLPERF, DAWNBENCH = Clock("mlperf"), Clock("dawnbench")


LEDGER = {"init": 2.0, "train": 1.0, "eval": 0.5}


RUN = ReplayRun(
    index=0,
    seed=1,
    status="reached",
    evaluations=[ReplayEvaluation(1.0, 100, 1.5, 98.0, LEDGER)],
    ledger=LEDGER,
    tta_seconds=1.5,
    parent_seconds=1.5,
    child_seconds=1.5,
)


REPORT = ReplayReport([RUN], SYSTEM)


@pytest.mark.parametrize(
    ("clock", "ledger", "field", "told"),
    [
        (DAWNBENCH, LEDGER, "runs[0].evaluations[0].seconds", "3.0 s by its ledger"),
        # No phase loses seconds, though the total grows.
        (MLPERF, LEDGER | {"eval": 0.0, "train": 9.0}, "runs[0].ledger", "eval loses seconds"),
        (MLPERF, LEDGER | {"thinking": 1.0}, "runs[0].ledger", "thinking"),
    ],
)
def test_seconds_are_those_of_the_ledger_on_the_clock(clock, ledger, field, told):
    check_ledgers(RUN, MLPERF, division="closed")
    with pytest.raises(RuleError) as refused:
        check_ledgers(replace(RUN, ledger=ledger), clock, division="closed")
    assert refused.value.field == field
    assert told in str(refused.value)


def test_the_clocks_of_a_run_span_its_ledger_after_the_preparation():
    check_spans(RUN)
    with pytest.raises(RuleError, match=r"1\.500 s, as its ledger adds up"):
        check_spans(replace(RUN, parent_seconds=3.5))


def test_what_each_clock_leaves_out():
    assert off_clock(RUN, MLPERF) == OffClock(preparation=2.0)
    assert off_clock(RUN, DAWNBENCH) == OffClock(evaluation=0.5)


def test_preparation_takes_at_most_twice_the_calibrated():
    # 2 * 1.0 + 0.25 = 2.25 s, 2 * 0.8 + 0.25 = 1.85 s; the run prepared for 2 s.
    check_off_clock(REPORT, MLPERF, [OffClock(preparation=1.0)])
    check_off_clock(REPORT, MLPERF, [])  # Nothing is calibrated.
    with pytest.raises(RuleError, match=r"at most 1\.850 s of preparation"):
        check_off_clock(REPORT, MLPERF, [OffClock(preparation=0.8)])


@pytest.mark.parametrize(
    ("seen_seconds", "passes"), [(99.6, False), (99.7, True), (102.2, True), (102.3, False)]
)
def test_the_server_sees_no_less_than_a_run_tells_and_little_more(seen_seconds, passes):
    """Of 100 s: 0.1 % and 0.25 s less, for two clocks and a late post; 2 % and 0.25 s more."""
    ledger = {"warmup": 1.0, "train": 100.0}
    evaluation = ReplayEvaluation(1.0, 1152, seconds=100.0, quality=98.0, ledger=ledger)
    run = ReplayRun(0, 7, "reached", [evaluation], ledger, tta_seconds=100.0)
    posted = [
        StreamedEvent(10.0, 0, "run_started"),
        StreamedEvent(11.0, 0, "phase", phase="train", ledger={"warmup": 1.0}),
        StreamedEvent(11.0 + seen_seconds, 0, "evaluation", None, 1.0, 1152, 100.0, 98.0, ledger),
    ]
    refused = nullcontext() if passes else pytest.raises(RuleError, match=r"2 % and 0\.25 s")

    with refused:
        check_stream(ReplayReport([run], SYSTEM), posted, MLPERF)
