from dataclasses import replace

import pytest

from finishline.rules.scoring.measurements import Figure, ModelWork, PrecisionAudit
from finishline.rules.scoring.utilisation import (
    best_roof_tflops,
    roofline,
    run_utilisations,
    samples_per_second,
)
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)

# 1 GFLOP and 10 MB a step: 100 FLOP per byte.
WORK = ModelWork(batch_size=64, step_flops=1e9, step_bytes=1e7)


def test_utilisation_is_achieved_by_the_measured_roof():
    point = roofline(WORK, seconds_per_step=0.01, roof_flops=4e11, bytes_per_second=1e11)
    assert point.achieved_flops == pytest.approx(1e11)
    assert point.utilisation == pytest.approx(0.25)
    assert point.intensity == pytest.approx(100.0)


def test_above_the_ridge_the_compute_roof_binds_and_below_it_the_bandwidth():
    high = roofline(WORK, seconds_per_step=0.01, roof_flops=4e11, bytes_per_second=1e11)
    assert (high.bound, high.attainable_flops) == ("compute", 4e11)
    low = roofline(WORK, seconds_per_step=0.01, roof_flops=4e11, bytes_per_second=2e9)
    assert low.bound == "bandwidth"
    assert low.attainable_flops == pytest.approx(2e11)
    assert low.of_attainable == pytest.approx(0.5)


def test_what_has_no_measured_roof_is_absent():
    point = roofline(WORK, seconds_per_step=0.01, roof_flops=None, bytes_per_second=1e11)
    assert (point.utilisation, point.attainable_flops, point.bound) == (None, None, None)
    no_copy = roofline(WORK, seconds_per_step=0.01, roof_flops=4e11, bytes_per_second=None)
    assert no_copy.utilisation == pytest.approx(0.25)
    assert no_copy.attainable_flops is None


def test_a_step_without_time_is_refused():
    with pytest.raises(ValueError, match="seconds_per_step is 0"):
        roofline(WORK, seconds_per_step=0.0, roof_flops=1.0, bytes_per_second=1.0)


def figure(value):
    return Figure(value, "TFLOP/s", "measured")


def test_the_roof_is_the_best_of_matmul_and_convolution_in_the_same_type():
    figures = {
        "gemm_fp32": figure(1.0),
        "convolution_fp32": figure(2.0),
        "gemm_bf16": figure(9.0),
        "convolution_bf16": figure(None),
    }
    assert best_roof_tflops(figures, "fp32") == 2.0
    assert best_roof_tflops(figures, "bf16") == 9.0
    assert best_roof_tflops(figures, "fp8") is None


SYSTEM = WorkerSystem("w", "cpu-test", "p", 2, 1.0, None, 0, 1, {})
FIGURES = {"gemm_fp32": figure(0.2), "convolution_fp32": figure(0.4), "gemm_bf16": figure(9.0)}


def replayed(*, samples=6400, train=10.0, processes=1):
    """A run of 100 steps of 64 in ten seconds: 10 steps or 640 samples a second, 10 GFLOP/s."""
    early = ReplayEvaluation(1.0, 640, 1.0, 50.0, {"train": 9.0})
    last = ReplayEvaluation(2.0, samples, 2.0, 98.0, {"init": 3.0, "train": train, "eval": 5.0})
    run = ReplayRun(0, 1, "reached", [early, last], {"train": train + 1.0})
    return ReplayReport(
        runs=[run],
        system=SYSTEM,
        precision=PrecisionAudit("fp32", {"fp32": 9}, autocast=False),
        work=WORK,
        processes=processes,
    )


def test_a_replay_is_held_against_the_roof_of_its_worker_in_its_precision():
    [found] = run_utilisations(replayed(), FIGURES)
    assert found.samples_per_second == pytest.approx(640.0)
    assert found.achieved_flops == pytest.approx(1e10)
    assert (found.roof_flops, found.precision) == (4e11, "fp32")
    assert found.utilisation == pytest.approx(0.025)
    assert found.intensity == pytest.approx(100.0)
    assert (found.run, found.missing) == (0, None)


def test_several_processes_have_a_roof_each():
    [found] = run_utilisations(replayed(processes=2), FIGURES)
    assert found.utilisation == pytest.approx(0.0125)


@pytest.mark.parametrize(
    ("report", "figures", "missing", "rate"),
    [
        (replayed(), {}, "the worker does not measure itself", 640.0),
        (
            replace(replayed(), precision=PrecisionAudit("fp8", {}, autocast=False)),
            FIGURES,
            "no measured roof in fp8",
            640.0,
        ),
        (replace(replayed(), precision=None), FIGURES, "precision of the training was not", 640.0),
        (replace(replayed(), work=None), FIGURES, "the work of a step was not counted", 640.0),
        (replace(replayed(), work=replace(WORK, batch_size=0)), FIGURES, "not counted", 640.0),
        (replayed(train=0.0), FIGURES, "no evaluation was measured", None),
        (replayed(samples=0), FIGURES, "no evaluation was measured", None),
    ],
)
def test_what_is_not_known_of_a_replay_is_absent_with_its_reason(report, figures, missing, rate):
    [found] = run_utilisations(report, figures)
    assert found.utilisation is None
    assert missing in found.missing
    assert found.samples_per_second == (None if rate is None else pytest.approx(rate))


def test_a_step_whose_bytes_nobody_counted_has_no_intensity():
    point = roofline(
        replace(WORK, step_bytes=None),
        seconds_per_step=0.01,
        roof_flops=4e11,
        bytes_per_second=1e11,
    )
    assert (point.intensity, point.utilisation) == (None, pytest.approx(0.25))


def test_the_rate_is_that_up_to_the_last_evaluation():
    seconds = [(1, 640, 1.0), (2, 1280, 2.0), (3, 1920, 4.0)]
    told = [ReplayEvaluation(float(j), n, s, 98.0, {"train": s}) for j, n, s in seconds]

    assert samples_per_second(ReplayRun(0, 1, "reached", told, {})) == pytest.approx(480.0)


def test_a_run_without_an_evaluation_has_no_utilisation():
    none = replace(replayed(), runs=[ReplayRun(0, 1, "failed", [], {})])
    assert run_utilisations(none, FIGURES)[0].samples_per_second is None
    assert run_utilisations(replace(none, runs=[]), FIGURES) == ()
