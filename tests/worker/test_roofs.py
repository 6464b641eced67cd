"""Roofs, on small shapes and on a processor that plays an accelerator."""

import subprocess
import sys

import pytest
import torch

from worker import roofs
from worker.roofs import (
    BF16,
    FP32,
    TF32,
    Device,
    Roofs,
    Shapes,
    all_reduce_bus_rate,
    find_device,
    types_of,
)

SMALL = Shapes(gemm_sides=(16, 32), convolutions=((1, 4, 8), (2, 4, 8)), copy_bytes=4096)
ROOFS = {"gemm_fp32", "gemm_bf16", "convolution_fp32", "convolution_bf16"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(roofs, "SHAPES", {"cpu": SMALL, "cuda": SMALL})


@pytest.fixture
def waits():
    """How often the device was waited for."""
    return []


@pytest.fixture
def accelerator(waits):
    """A device that takes the paths of an accelerator and computes on the processor."""
    return Device("cuda", "cpu", 1, (9, 0), lambda: waits.append(1))


def test_every_roof_of_a_processor_is_measured_and_says_how():
    figures = Roofs(find_device("cpu"), seconds_each=0.01).figures()
    assert ROOFS | {"copy", "launch_latency"} == {
        name for name, figure in figures.items() if figure.value is not None
    }
    assert all(figure.value is None or figure.value > 0 for figure in figures.values())
    assert "best of 2 shapes" in figures["gemm_fp32"].how
    assert figures["all_reduce"].how == "absent: one device has nobody to reduce with"
    assert "the processor's memory" in figures["host_to_device"].how


def test_the_best_shape_is_the_roof(monkeypatch):
    times = {16: 1e-6, 32: 1e-4}  # 2 * 16^3 / 1 us = 8.192 GFLOP/s, 2 * 32^3 / 100 us = 0.655

    def played(self, step, *, seconds):
        return times[step().shape[0]]

    monkeypatch.setattr(Roofs, "_best", played)
    found = Roofs(find_device("cpu")).figures(only=("gemm_fp32",))["gemm_fp32"]
    assert found.value == pytest.approx(8.192e-3)
    assert found.how.startswith("matmul 16 x 16")


def test_flops_of_a_convolution_are_two_for_each_product(monkeypatch):
    monkeypatch.setattr(Roofs, "_best", lambda self, step, *, seconds: 1e-6 * step().shape[0])
    found = Roofs(find_device("cpu")).figures(only=("convolution_fp32",))["convolution_fp32"]
    assert found.value == pytest.approx(2 * 4 * 4 * 9 * 8 * 8 / 1e-6 / 1e12)


def test_an_accelerator_is_waited_for_and_what_it_lacks_is_absent(accelerator, waits):
    figures = Roofs(accelerator, seconds_each=0.01).figures()
    assert {"gemm_tf32", "gemm_fp16", "gemm_fp8", "convolution_tf32"} <= set(figures)
    assert "convolution_fp8" not in figures
    assert waits
    # A processor has no pinned memory to send from, as an accelerator without a driver has none.
    assert figures["host_to_device"].value is None
    assert figures["host_to_device"].how.startswith("absent: ")


def test_without_time_left_a_figure_is_absent_and_not_nought():
    figures = Roofs(find_device("cpu"), seconds_each=0.01).figures(limit_seconds=-1.0)
    assert {figure.value for figure in figures.values()} == {None}
    assert "no time left" in figures["copy"].how


def test_only_the_figures_asked_for_are_measured():
    assert set(Roofs(find_device("cpu"), seconds_each=0.01).figures(only=("copy",))) == {"copy"}


def test_types_follow_the_compute_capability():
    def names(*capability):
        return [kind.name for kind in types_of("cuda", capability)]

    assert names(7, 0) == ["fp32", "fp16"]
    assert names(8, 0) == ["fp32", "tf32", "bf16", "fp16"]
    assert names(9, 0) == ["fp32", "tf32", "bf16", "fp16", "fp8"]


def test_float32_is_tf32_only_while_it_is_switched_on():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with TF32.switched_on():
        assert torch.backends.cuda.matmul.allow_tf32
        with FP32.switched_on():
            assert not torch.backends.cudnn.allow_tf32
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
    assert BF16.dtype is torch.bfloat16


def test_a_link_carries_two_parts_less_those_that_stay():
    # nccl-tests: 8 ranks, 1 GB in 10 ms: algorithm bandwidth 100 GB/s, bus bandwidth 175 GB/s.
    assert all_reduce_bus_rate(1e9, 8, 0.01) == pytest.approx(175e9)


def test_a_device_that_is_not_there_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="'cuda' was asked for"):
        find_device("cuda")


def test_a_worker_that_measures_loads_no_torch():
    code = (
        "import sys, worker.self_check, worker.attempt_checks, worker.bench, worker.sensors;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_device_that_is_measured_is_the_one_that_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda name: (9, 0))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    find_device("cuda:1").synchronise()
    assert waited == ["cuda:1"]
