"""Timing a trained model in the training process: real torch, real ONNX Runtime."""

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from finishline.rules.verification.messages import LatencyOrder
from reference_models import digits
from worker.machine.latency import (
    BackendAbsentError,
    measure_latency,
    prepare_compiled,
    prepare_eager,
    prepare_onnxruntime,
)

ORDER = LatencyOrder(items=8, warmup_items=3, output_tolerance=1e-4)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).requires_grad_(False)


@pytest.fixture
def items():
    return [(torch.randn(1, 4),) for _ in range(20)]


def measure(model, items, order=ORDER, **backends):
    return list(measure_latency(model, items, order, device="cpu", backends=backends))


def test_warm_up_and_as_many_items_as_ordered_are_timed(model, items):
    [found] = measure(model, items, eager=prepare_eager)
    assert (len(found.milliseconds), found.largest_difference, found.absence) == (3 + 8, 0.0, None)
    assert min(found.milliseconds) > 0
    assert sum(found.milliseconds) / 1000 <= found.seconds
    assert found.cpu_seconds > 0


def test_a_small_set_goes_round_in_whole_passes_in_inference_mode(items):
    model = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 3)).requires_grad_(False)
    seen, modes = [], []

    def prepare(*_):
        def call(x):
            seen.append(x)
            modes.append((model.training, torch.is_inference_mode_enabled()))
            return model(x)

        return call

    [found] = measure(model, items[:3], eager=prepare)
    assert (len(found.milliseconds), found.passes) == (3 + 9, 3.0)  # Two passes are two short.
    assert all(x is item[0] for x, item in zip(seen, items[:3] * 4, strict=True))
    assert set(modes) == {(False, True)}


@pytest.mark.parametrize(
    ("seconds_each", "samples"),
    [
        (0.1, 8),  # All in a second: nothing is cut.
        (4.5, 5),  # 20 s are over within the second sample: as few as will do.
        (20.0, 1),  # 40 s are over in the warm-up: one sample, so that there is a figure.
        (11.0, 1),  # 40 s are over after the first sample.
    ],
)
def test_a_slow_model_ends_with_fewer_items(model, items, monkeypatch, seconds_each, samples):
    now = [7.0]
    monkeypatch.setattr("worker.machine.latency.time", FakeTime(now))
    limits = {"fewest_items": 5, "enough_seconds": 20.0, "most_seconds": 40.0}
    order = LatencyOrder(items=8, warmup_items=3, output_tolerance=1e-4, **limits)

    def prepare(*_):
        def call(x):
            now[0] += seconds_each
            return model(x)

        return call

    [found] = measure(model, items, order, eager=prepare)
    assert len(found.milliseconds) == 3 + samples
    assert found.passes == pytest.approx(samples / 8)
    assert found.milliseconds == pytest.approx([seconds_each * 1000] * (3 + samples))
    assert (found.seconds, found.cpu_seconds) == pytest.approx([seconds_each * (3 + samples)] * 2)


class FakeTime:
    def __init__(self, now):
        self.perf_counter = self.process_time = lambda: now[0]
        self.perf_counter_ns = lambda: int(now[0] * 1e9)


def test_an_absent_backend_is_told_and_does_not_stop_the_others(model, items):
    def refuse(*_):
        raise BackendAbsentError("compile_failed", "no compiler")

    backends = {"eager": prepare_eager, "compiled": refuse, "onnxruntime": prepare_eager}
    found = measure(model, items, **backends)
    assert [item.backend for item in found] == ["eager", "compiled", "onnxruntime"]
    absences = [item.absence and (item.absence.code, item.absence.message) for item in found]
    assert absences == [None, ("compile_failed", "no compiler"), None]
    assert found[1].milliseconds == []


@pytest.mark.parametrize(
    ("factor", "agrees"), [(1.00005, True), (1.001, False), (float("nan"), False)]
)
def test_a_backend_whose_outputs_differ_has_no_latency(model, items, factor, agrees):
    def prepare(*_):
        return lambda x: model(x) * factor

    found = measure(model, items, eager=prepare_eager, compiled=prepare)[1]
    assert (found.absence is None, bool(found.milliseconds)) == (agrees, agrees)
    if not agrees:
        assert found.absence.code == "outputs_differ"


def test_every_output_of_a_backend_is_held_against_eagers(model, items):
    def prepare(second):
        return lambda *_: lambda x: (x, torch.full((1, 2), second))

    order = replace(ORDER, output_tolerance=0.0)
    found = measure(model, items, order, eager=prepare(1.0), compiled=prepare(1.0 + 1e-6))
    assert [item.absence and item.absence.code for item in found] == [None, "outputs_differ"]


def test_an_accelerator_is_waited_for_at_both_edges_of_every_item(model, items, monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: told.append(device))

    def prepare(*_):
        return lambda x: told.append("item") or model(x)

    found = list(measure_latency(model, items, ORDER, device="cuda:1", backends={"eager": prepare}))
    assert told == ["cuda:1", "item", "cuda:1"] * 11
    assert len(found[0].milliseconds) == 11


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's exporter, of torch
def test_onnx_runtime_agrees_with_eager_on_the_images_of_digits(tmp_path):
    model = digits.build_model().requires_grad_(False)
    items = digits.evaluation_items(device="cpu", data_dir=tmp_path)
    assert (len(items), items[0][0].shape) == (599, (1, 1, 8, 8))
    eager, onnx = measure(model, items, eager=prepare_eager, onnxruntime=prepare_onnxruntime)
    assert onnx.absence is None, onnx.absence
    assert 0 < onnx.largest_difference < 1e-5
    assert (len(eager.milliseconds), len(onnx.milliseconds)) == (11, 11)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_without_onnx_the_reason_says_what_to_install(model, items, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        BackendAbsentError, match=r"pip install 'finishline-server\[onnx\]'"
    ) as absent:
        prepare_onnxruntime(model, items[0], "cpu")
    assert absent.value.code == "not_installed"


def test_onnx_runtime_is_measured_on_a_processor_only(model, items):
    with pytest.raises(BackendAbsentError, match="not on cuda") as absent:
        prepare_onnxruntime(model, items[0], "cuda")
    assert absent.value.code == "not_supported"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("No working C++ compiler found\nin /usr/bin"), "compile_failed"),
        (ValueError("a bug"), "compile_failed"),
        (RuntimeError("torch.compile is not supported on Python 3.99+"), "not_supported"),
        (MemoryError("no room"), None),  # Running out of memory is no absence.
    ],
)
def test_a_model_that_does_not_compile_says_why(model, items, monkeypatch, error, code):
    def refuse_to_compile(*_, **__):
        raise error

    monkeypatch.setattr(torch, "compile", refuse_to_compile)
    with pytest.raises(MemoryError if code is None else BackendAbsentError) as absent:
        prepare_compiled(model, items[0], "cpu")
    assert str(absent.value) == str(error).splitlines()[0]
    assert code is None or absent.value.code == code


def test_an_export_that_fails_is_told(items):
    class Branching(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(BackendAbsentError) as absent:
        prepare_onnxruntime(Branching(), items[0], "cpu")
    assert absent.value.code == "export_failed"
