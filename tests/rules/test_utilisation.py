import pytest

from rules.measurements import Figure, ModelWork
from rules.utilisation import best_roof_tflops, roofline

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
