"""A worker's measurements of itself: canaries, roofs and probes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from finishline.client.transport import FinishlineError
from finishline.devices import hardware_class_of
from finishline.rules.errors import RuleError
from finishline.rules.measurements import ProbeAnswer
from tests.support.processes import wait_for
from worker.child_process import Host, measure_apart
from worker.machine import peak as roofs
from worker.machine.canary import canary_gflops
from worker.machine.clock import time_calls
from worker.machine.kernels import BF16, FP32, TF32, types_of
from worker.machine.peak import Shapes, all_reduce_bus_rate, measure_figures
from worker.machine.probe import probe
from worker.machine.self_check import SelfCheck
from worker.state import WorkerState

CANARY = {"gflops": 100.0, "configuration": "numpy", "how": "best of 0.5 s"}
ROOFS = {
    "figures": {
        "gemm_bf16": {"value": 700.0, "unit": "TFLOP/s", "how": "matmul"},
        "gemm_fp32": {"value": 50.0, "unit": "TFLOP/s", "how": "matmul"},
        "all_reduce": {"value": None, "unit": "GB/s", "how": "absent: one device"},
    },
    "torch": "2.13.0",
    "cuda": None,
}


class FakeServer:
    """Keeps probes; `answers` are given one after the other, the last again and again."""

    def __init__(self):
        self.probes = []
        self.answers = [ProbeAnswer()]

    def probe(self, probe):
        self.probes.append(probe)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Measurements:
    def __init__(self):
        self.answers = {"worker.machine.canary": CANARY, "worker.machine.peak": ROOFS}
        self.orders = []

    def __call__(self, module, orders, limit_seconds, *, stop, niceness=0):
        self.orders.append((module, dict(orders)))
        self.niceness = niceness
        return self.answers[module]


OFF = ProbeAnswer(drifted=True, baseline_gflops=120.0, ratio=0.83, message="16.7 % slower")


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def measure():
    return Measurements()


@pytest.fixture
def state():
    return WorkerState()


@pytest.fixture
def self_check(server, measure, system, state):
    def make(device="cpu", **settings):
        host = Host(device=device, data_dir=Path("unused"))
        how = {"surroundings": {"kernel": "6.1"}, "measure": measure} | settings
        return SelfCheck(server, system, state, host, **how)

    return make


def wait_until(condition):
    wait_for(condition, seconds=20, what="a measurement", pause=0.005)


def test_a_canary_is_told_with_its_moment_and_attempt(self_check, server):
    checked = self_check().check("before", attempt_id="a-1")
    assert checked.drift is None
    assert checked.canary.gflops == 100.0
    [probe] = server.probes
    assert (probe.worker, probe.moment, probe.attempt_id) == ("grace", "before", "a-1")
    assert probe.figures == {}


@pytest.mark.parametrize(
    ("answers", "drift", "asked"),
    [
        ([OFF], "16.7 % slower", 3),  # It is asked three times before it is believed to be off.
        ([OFF, ProbeAnswer()], None, 2),
        ([FinishlineError("away")], None, 1),
    ],
)
def test_a_worker_is_off_after_three_bad_readings(self_check, server, answers, drift, asked):
    server.answers = answers
    assert self_check().check("before").drift == drift
    assert len(server.probes) == asked


def test_a_canary_that_fails_takes_no_worker_out(self_check, server, measure):
    measure.answers["worker.machine.canary"] = None
    assert self_check().check("before").canary is None
    measure.answers["worker.machine.canary"] = {"gflops": "fast"}
    assert self_check().check("before").canary is None
    assert server.probes == []


@pytest.mark.parametrize(("kind", "gflops"), [("gemm_bf16", 700_000.0), ("gemm_fp32", 50_000.0)])
def test_the_canary_of_an_accelerator_is_a_roof(self_check, measure, kind, gflops):
    """One without bfloat16 has a canary in float32."""
    figures = {name: ROOFS["figures"][name] for name in {"gemm_fp32", kind}}
    measure.answers["worker.machine.peak"] = ROOFS | {"figures": figures}
    canary = self_check("cuda").check("before").canary
    assert canary.gflops == gflops
    assert canary.configuration == f"torch 2.13.0 {kind} on None"
    assert measure.orders[0][1]["only"] == ("gemm_bf16", "gemm_fp32")


def test_at_its_start_a_worker_tells_its_roofs_and_its_surroundings(self_check, server):
    with self_check():
        wait_until(lambda: server.probes)
    [probe] = server.probes
    assert probe.moment == "start"
    assert probe.figures["gemm_bf16"].value == 700.0
    assert probe.figures["all_reduce"].value is None
    assert probe.host == {"kernel": "6.1", "torch": "2.13.0", "cuda": None, "hip": None}
    assert probe.canary.gflops == 100.0


def test_roofs_that_the_server_did_not_hear_are_told_again(self_check, server):
    server.answers = [FinishlineError("away"), ProbeAnswer()]
    with self_check(recheck_seconds=0.01):
        wait_until(lambda: len(server.probes) >= 2)
    assert server.probes[1].figures == server.probes[0].figures


def test_a_worker_that_is_out_measures_again_while_it_is_idle(self_check, server, state):
    server.answers = [OFF]
    state.busy = True
    with self_check(recheck_seconds=0.01):
        wait_until(lambda: len(server.probes) == 1)
        state.busy = False
        wait_until(lambda: len(server.probes) > 1)
    assert {probe.moment for probe in server.probes[1:]} == {"recheck"}


def test_a_worker_that_measures_nothing_asks_nobody(self_check, server, measure):
    with self_check(extent="off") as check:
        assert check.check("before").canary is None
    assert (server.probes, measure.orders) == ([], [])


def test_a_roof_that_is_wanted_is_measured_once(self_check, server, measure, state):
    state.roof_wanted = True
    with self_check(extent="roofs"):
        wait_until(lambda: server.probes)
    assert (server.probes[0].moment, server.probes[0].canary.gflops) == ("roof", 100.0)
    assert [module for module, _ in measure.orders] == ["worker.machine.canary"]


def test_a_roof_that_nobody_wants_or_that_fails_is_not_told(self_check, server, measure, state):
    with self_check(extent="roofs") as check:
        check.check("before")
    assert measure.orders == []
    state.roof_wanted = True
    measure.answers["worker.machine.canary"] = None
    with self_check(extent="roofs"):
        wait_until(lambda: measure.orders)
    assert server.probes == []


def test_a_quiet_worker_measures_its_roofs_once(self_check, server, measure):
    with self_check(extent="roofs", quiet_seconds=0.0) as check:
        wait_until(lambda: server.probes)
        check._measure_in_background()
    (told,) = server.probes
    assert (told.moment, told.canary) == ("start", None)
    assert set(told.figures) == set(ROOFS["figures"])
    assert told.host["kernel"] == "6.1"
    assert [module for module, _ in measure.orders] == ["worker.machine.peak"]
    assert measure.niceness == 19


def test_a_measurement_gives_way_to_an_attempt(self_check, server, measure, state):
    def broken_off(*order, stop, niceness):
        measure(*order, stop=stop)
        state.busy = len(measure.orders) == 1
        return None if stop() else ROOFS

    with self_check(extent="roofs", quiet_seconds=0.0, measure=broken_off):
        wait_until(lambda: state.busy)
        assert server.probes == []
        state.busy = False
        wait_until(lambda: server.probes)
    assert len(measure.orders) == 2


def test_a_good_reading_after_one_attempt_is_the_next_ones_before(self_check, server, measure):
    checks = self_check()
    after = checks.check("after", attempt_id="a-1")
    assert checks.check("before", attempt_id="a-2") == after
    assert [probe.attempt_id for probe in server.probes] == ["a-1"]
    # It counts once, and one that is off never does.
    checks.check("before", attempt_id="a-3")
    assert len(server.probes) == 2
    server.answers = [OFF]
    checks.check("after", attempt_id="a-3")
    told = len(server.probes)
    assert checks.check("before", attempt_id="a-4").drift == "16.7 % slower"
    assert len(server.probes) > told


@pytest.mark.parametrize(
    ("seconds", "each", "timed"),
    # Five calls warm up, fewer where they take longer than the time. At least one is timed.
    [(14.0, 2.0, 7), (6.0, 2.0, 3), (0.5, 9.0, 1)],
)
def test_calls_are_timed_until_the_time_is_up_after_a_warm_up(monkeypatch, seconds, each, timed):
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr("worker.machine.clock.time", clock)
    calls = []

    def call(_):
        calls.append(1)
        now[0] += each

    assert time_calls(call, seconds=seconds) == [each] * timed
    assert len(calls) == timed + min(5, timed)


def test_the_figure_is_that_of_the_best_product_of_float32(monkeypatch):
    multiplied = []
    monkeypatch.setattr(
        "worker.machine.canary.np.matmul", lambda *both, out: multiplied.append(both)
    )
    monkeypatch.setattr(
        "worker.machine.canary.time_calls", lambda call, *, seconds: [call(None) or 1e-3, 8.0]
    )
    # A product of two matrices of n x n takes 2 n^3 operations: 2 * 256^3 in a millisecond.
    assert canary_gflops() == pytest.approx(33.554432)
    assert {(one.shape, one.dtype.name) for both in multiplied for one in both} == {
        ((256, 256), "float32")
    }


def test_the_worker_gets_a_reading_with_what_it_may_be_compared_with():
    answer = measure_apart("worker.machine.canary", {}, 60.0)
    assert 0.1 < answer["gflops"] < 10_000
    assert "float32, one thread" in answer["configuration"]


SMALL = Shapes(gemm_sides=(16, 32), convolutions=((1, 4, 8), (2, 4, 8)), copy_bytes=4096)
ROOF_NAMES = {"gemm_fp32", "gemm_bf16", "convolution_fp32", "convolution_bf16"}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(roofs, "SHAPES", {"cpu": SMALL, "cuda": SMALL})


@pytest.mark.usefixtures("small")
def test_every_roof_of_a_processor_is_measured_and_says_how():
    figures = measure_figures("cpu", seconds_each=0.01)
    present = {name for name, figure in figures.items() if figure.value is not None}
    assert present == ROOF_NAMES | {"copy", "launch_latency"}
    assert all(figure.value is None or figure.value > 0 for figure in figures.values())
    assert "best of 2 shapes" in figures["gemm_fp32"].how
    assert figures["all_reduce"].how.startswith("absent: ")
    assert "the processor's memory" in figures["host_to_device"].how
    assert set(measure_figures("cpu", seconds_each=0.01, only=("copy",))) == {"copy"}
    late = measure_figures("cpu", seconds_each=0.01, limit_seconds=-1.0)
    assert {figure.value for figure in late.values()} == {None}


@pytest.mark.usefixtures("small")
def test_the_best_shape_is_the_roof(monkeypatch):
    # 2 * 16^3 / 1 us = 8.192 GFLOP/s, 2 * 32^3 / 100 us = 0.655
    times = {16: [1.0, 1e-6], 32: [1e-4, 1.0]}
    monkeypatch.setattr(roofs, "time_kernel", lambda kernel, *_, **__: times[kernel.shape["m"]])
    found = measure_figures("cpu", only=("gemm_fp32",))["gemm_fp32"]
    assert found.value == pytest.approx(8.192e-3)
    assert found.how.startswith("matmul 16 x 16")


@pytest.mark.usefixtures("small")
def test_what_an_accelerator_lacks_is_absent_with_its_reason(monkeypatch):
    """A device that takes the paths of an accelerator, on a machine without one."""
    monkeypatch.setattr(roofs, "check_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def refuse(kernel, *_, **__):
        raise RuleError(f"{kernel.words} was not measured")

    monkeypatch.setattr(roofs, "time_kernel", refuse)
    figures = measure_figures("cuda:0", seconds_each=0.01)
    assert {"gemm_tf32", "gemm_fp16", "gemm_fp8", "convolution_tf32"} <= set(figures)
    assert "convolution_fp8" not in figures
    assert {figure.value for figure in figures.values()} == {None}
    assert all(figure.how.startswith("absent: ") for figure in figures.values())


@pytest.mark.parametrize(
    ("capability", "hip", "names"),
    [
        ((7, 0), None, "fp32 fp16"),
        ((8, 0), None, "fp32 tf32 bf16 fp16"),
        ((9, 0), None, "fp32 tf32 bf16 fp16 fp8"),
        ((9, 4), "7.0.51831", "fp32 bf16 fp16 fp8"),  # AMD has no TF32.
    ],
)
def test_types_follow_the_compute_capability(monkeypatch, capability, hip, names):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert [kind.name for kind in types_of("cuda:0")] == names.split()


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


@pytest.mark.parametrize(
    ("processor", "cores", "accelerators", "expected"),
    [
        ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", 8, [], "cpu-intel-xeon-gold-6230-8-cores"),
        ("AMD EPYC 7B13", 1, [], "cpu-amd-epyc-7b13-1-core"),
        ("AMD Ryzen 9 7950X 16-Core Processor", 4, [], "cpu-amd-ryzen-9-7950x-4-cores"),
        ("", 2, [], "cpu-unknown-2-cores"),
        ("AMD EPYC", 8, ["NVIDIA H200"], "1x-nvidia-h200"),
        ("AMD EPYC", 8, ["NVIDIA A100-SXM4-80GB"] * 8, "8x-nvidia-a100-sxm4-80gb"),
    ],
)
def test_hardware_class_is_made_of_what_trains(processor, cores, accelerators, expected):
    assert hardware_class_of(processor, cores, accelerators) == expected


def test_a_gpu_host_has_a_class_for_its_processor(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def probed(device, hardware_class=None):
        return probe(worker="grace", hardware_class=hardware_class, threads=1, device=device)

    on_gpu, on_cpu = probed("cuda:0"), probed("cpu")
    assert (on_gpu.hardware_class, on_gpu.accelerator) == ("1x-nvidia-h200", "NVIDIA H200")
    assert on_cpu.hardware_class.startswith("cpu-")
    assert (on_cpu.accelerator, on_cpu.accelerator_count) == (None, 0)
    assert (bool(on_cpu.processor), on_cpu.processor_count >= 1) == (True, True)
    assert (on_cpu.memory_gib > 0.1, bool(on_cpu.software["torch"])) == (True, True)
    assert probed("cpu", "lab").hardware_class == "lab"


def test_worker_process_loads_neither_torch_nor_a_database():
    code = (
        "import sys, worker.__main__, worker.local, worker.machine.self_check, worker.replay, "
        "worker.commands.bench; print({'torch', 'sqlalchemy', 'fastapi'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "set()\n", ended.stderr
