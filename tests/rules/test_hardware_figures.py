"""Figures of the machine under a training: utilisation, canaries, processor share and energy."""

from dataclasses import replace

import pytest

from finishline.rules.benchmarks.accelerators import is_same_kind
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import parse_run_log
from finishline.rules.measurements import Figure, ModelWork, PrecisionAudit
from finishline.rules.run import Evaluation, Run
from finishline.rules.submissions.claim_checks import find_shared
from finishline.rules.verification.messages import ReplayEvaluation, ReplayReport, ReplayRun
from finishline.rules.verification.utilisation import best_roof_tflops, roofline, samples_per_second
from server.verifications.views import energy_to_target_joules, run_utilisations
from tests.support.verdicts import WORKER
from worker.local import processor_share
from worker.machine.sensors import counted_since, samples_per_joule
from worker.stopwatch import write_run_log

# 1 GFLOP and 10 MB a step: 100 FLOP per byte.
WORK = ModelWork(batch_size=64, step_flops=1e9, step_bytes=1e7)


@pytest.mark.parametrize(
    ("step_bytes", "roof", "bandwidth", "figures"),
    [
        (1e7, 4e11, 1e11, {"achieved_flops": 1e11, "utilisation": 0.25, "intensity": 100.0}),
        # Above the ridge the compute roof binds, and below it the bandwidth.
        (1e7, 4e11, 1e11, {"bound": "compute", "attainable_flops": 4e11}),
        (1e7, 4e11, 2e9, {"bound": "bandwidth", "attainable_flops": 2e11, "of_attainable": 0.5}),
        # What has no measured roof is absent.
        (1e7, None, 1e11, {"utilisation": None, "attainable_flops": None, "bound": None}),
        (1e7, 4e11, None, {"utilisation": 0.25, "attainable_flops": None}),
        (None, 4e11, 1e11, {"utilisation": 0.25, "intensity": None}),
    ],
)
def test_utilisation_is_achieved_by_the_measured_roof(step_bytes, roof, bandwidth, figures):
    work = replace(WORK, step_bytes=step_bytes)
    point = roofline(work, seconds_per_step=0.01, roof_flops=roof, bytes_per_second=bandwidth)
    for name, value in figures.items():
        found = getattr(point, name)
        assert found == (pytest.approx(value) if isinstance(value, float) else value), name


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


FIGURES = {"gemm_fp32": figure(0.2), "convolution_fp32": figure(0.4), "gemm_bf16": figure(9.0)}


def replayed(*, samples=6400, train=10.0, processes=1):
    """A run of 100 steps of 64 in ten seconds: 10 steps or 640 samples a second, 10 GFLOP/s."""
    early = ReplayEvaluation(1.0, 640, 1.0, 50.0, {"train": 9.0})
    last = ReplayEvaluation(2.0, samples, 2.0, 98.0, {"init": 3.0, "train": train, "eval": 5.0})
    run = ReplayRun(0, 1, "reached", [early, last], {"train": train + 1.0})
    return ReplayReport(
        runs=[run],
        system=WORKER,
        precision=PrecisionAudit("fp32", {"fp32": 9}, autocast=False),
        work=WORK,
        processes=processes,
    )


@pytest.mark.parametrize(
    ("report", "figures", "missing", "rate"),
    [
        (replayed(), {}, "no measured roof", 640.0),
        (
            replace(replayed(), precision=PrecisionAudit("fp8", {}, autocast=False)),
            FIGURES,
            "no measured roof in fp8",
            640.0,
        ),
        (
            replace(replayed(), precision=None),
            FIGURES,
            "precision of the training is unknown",
            640.0,
        ),
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


def test_the_rate_is_that_up_to_the_last_evaluation():
    seconds = [(1, 640, 1.0), (2, 1280, 2.0), (3, 1920, 4.0)]
    told = [ReplayEvaluation(float(j), n, s, 98.0, {"train": s}) for j, n, s in seconds]

    assert samples_per_second(ReplayRun(0, 1, "reached", told, {})) == pytest.approx(480.0)


def test_a_run_without_an_evaluation_has_no_utilisation():
    none = replace(replayed(), runs=[ReplayRun(0, 1, "failed", [], {})])
    assert run_utilisations(none, FIGURES)[0].samples_per_second is None
    assert run_utilisations(replace(none, runs=[]), FIGURES) == ()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5", True),
        ("8x NVIDIA A100-SXM4-40GB", "nvidia_a100", True),
        ("Tesla T4", "NVIDIA T4 GPU", True),
        ("Tesla V100-SXM2-16GB", "V100 SXM3 32GB", True),
        ("AMD Instinct MI300X OAM", "MI300X", True),
        ("TPUv3", "Google Cloud TPU v3", True),
        ("Gaudi 2", "Gaudi2", True),
        ("RTX A6000", "NVIDIA A6000", True),
        ("NVIDIA GPU", "H100", True),  # Tells nothing.
        ("H100 80GB", "A100 80GB", False),
        ("H200", "GH200 480GB", False),
        ("L40", "L40S", False),
        ("A10G", "A100", False),
        ("GeForce RTX 3090", "GeForce RTX 4090", False),
        ("TPU v5e", "TPU v5p", False),
        ("Radeon RX 6800XT", "RX 6900XT", False),
        ("GeForce RTX 4090 Laptop GPU", "RTX 4090", False),
        ("A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100", False),
        ("GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti", False),
        ("GeForce RTX 3080Ti", "RTX 3080 Ti", True),
    ],
)
def test_names_of_one_accelerator_are_told_from_those_of_two(one, other, same):
    assert is_same_kind(one, other) is is_same_kind(other, one) is same


@pytest.mark.parametrize(
    ("cpu_seconds", "seconds", "threads", "expected"),
    [
        (9.0, 10.0, 1, 0.9),
        (10.1, 10.0, 1, 1.0),  # Two clocks, read one after the other.
        (15.0, 10.0, 2, 0.75),
        (None, 10.0, 1, None),
        (0.0, 0.0, 1, None),
        (1.0, None, 1, None),
    ],
)
def test_share_is_processor_time_per_thread(cpu_seconds, seconds, threads, expected):
    assert processor_share(cpu_seconds, seconds, threads=threads) == expected


def logged(digits, *, more="", **others):
    run = Run("run_0.log", "mlperf", (Evaluation(1.0, 0.8, 97.6),), "success", 0.8, **others)
    text = write_run_log(run, benchmark=digits, started_at_ms=1000) + more
    return parse_run_log(text.encode(), name="run_0.log", benchmark=digits)


@pytest.mark.parametrize(("share", "remarks"), [(0.62, 1), (0.899, 1), (0.9, 0), (None, 0)])
def test_a_run_with_less_than_nine_tenths_of_its_processor_is_remarked_on(digits, share, remarks):
    run = logged(digits, processor_share=share)

    assert run.processor_share == share
    found = find_shared([run])
    assert len(found) == remarks
    assert all(f"{share:.0%} of its processor" in str(remark) for remark in found)


@pytest.mark.parametrize("value", ["-0.1", "1.5", '"half"', "true"])
def test_a_share_that_is_none_is_refused(digits, value):
    line = ':::MLLOG {"time_ms": 2000, "event_type": "POINT_IN_TIME", "key": "processor_share", '
    with pytest.raises(LogFormatError) as caught:
        logged(digits, more=line + f'"value": {value}}}\n')
    assert caught.value.field == "processor_share"
    assert caught.value.expected == "a number from 0 to 1"


@pytest.mark.parametrize(
    ("before", "after", "joules"), [(10.0, 12.5, 2.5), (10.0, 10.0, 0.0), (90.0, 4.0, 14.0)]
)
def test_a_counter_that_went_on_or_wrapped_counts_the_difference(before, after, joules):
    assert counted_since(before, after, wraps_at=100.0) == joules


def test_figures_of_energy_are_absent_without_energy():
    for joules, figure in ((None, None), (0.0, None), (50.0, 2.0), (0.5, 200.0)):
        assert samples_per_joule(100, joules) == figure
    # The mean of runs that were all measured.
    for runs, mean in (([100.0, 200.0, 600.0], 300.0), ([100.0, None, 600.0], None), ([], None)):
        assert energy_to_target_joules(runs) == mean
