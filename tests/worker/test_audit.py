"""The audit of a reference, its precision, and an attempt between its canaries."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

import reference_models
from finishline.rules.measurements import Canary, ProbeAnswer
from finishline.rules.run import Phase
from worker.child_process import Host, measure_apart
from worker.machine.precision import (
    audit,
    audit_step,
    canary_errors,
    precision_by_flags,
    read_flags,
)
from worker.machine.self_check import Audited, Checked, SelfCheck
from worker.replay import Attempts
from worker.state import WorkerState


def told(reference, **hyperparameters):
    where = {"device": "cpu", "data_dir": "unused"}
    return where | {"reference": reference, "hyperparameters": hyperparameters}


@pytest.fixture
def trainer(monkeypatch):
    reached = []

    def add(*phases, narrow=False):
        def train(config, *, seed, device, data_dir):
            for phase in phases:
                yield phase
                reached.append(phase)
                if phase is Phase.WARMUP:
                    kind = torch.bfloat16 if narrow else torch.float32
                    torch.ones(2, 2, dtype=kind) @ torch.ones(2, 2, dtype=kind)

        module = SimpleNamespace(DATA_SET_SHA256=None, configure=dict, train=train)
        monkeypatch.setitem(__import__("sys").modules, "fake_audited", module)
        monkeypatch.setitem(reference_models.REFERENCES, "audited", "fake_audited")
        return reached

    return add


@pytest.mark.parametrize(("precision", "name"), [(None, "fp32"), ("bf16", "bf16")])
def test_the_digits_reference_trains_by_nine_products_in_its_precision(precision, name):
    found = audit(told("digits", batch_size=32) | {"precision": precision})
    # Three convolutions and one linear layer forward; three and two backward.
    assert (found["precision"]["lowest"], found["precision"]["observed"]) == (name, {name: 9})
    assert found["precision"]["scope"] == "one training step"
    assert found["work"]["batch_size"] == 32
    assert found["work"]["step_flops"] > 0


def test_without_a_synthetic_step_the_warm_up_is_watched_and_the_training_never_begins(trainer):
    reached = trainer(Phase.WARMUP, Phase.DATA, Phase.TRAIN, narrow=True)
    found = audit(told("audited"))
    assert found["precision"]["lowest"] == "bf16"
    assert found["precision"]["scope"] == "the warm-up"
    assert found["work"] is None
    assert reached == [Phase.WARMUP]


def test_compiled_code_is_listed_as_opaque(trainer):
    trainer(Phase.COMPILE, Phase.WARMUP, Phase.DATA)
    assert audit(told("audited"))["precision"]["opaque"] == ["compiled code"]


def test_work_is_counted_of_a_step_that_is_not_compiled_even_where_the_training_is():
    small = {"batch_size": 8, "width": 4}
    plain, compiled = audit(told("cifar10", **small)), audit(told("cifar10", compile=1, **small))
    assert compiled["work"] == plain["work"]
    assert plain["work"]["step_flops"] > 0
    assert [each["precision"]["opaque"] for each in (plain, compiled)] == [[], ["compiled code"]]


def test_an_audit_answers_in_a_process_of_its_own():
    answer = measure_apart("worker.machine.precision", told("digits", batch_size=64), 120.0)
    assert answer["work"]["batch_size"] == 64


AUDIT = {
    "precision": {
        "lowest": "fp32", "observed": {"fp32": 9}, "autocast": False, "flags": {}, "opaque": [],
        "canary_errors": {"matmul": 2e-7}, "scope": "one training step",
    },
    "work": {"batch_size": 64, "step_flops": 9e8, "step_bytes": 8e6},
}  # fmt: skip
OFF = ProbeAnswer(drifted=True, message="5.0 % slower than its own baseline")


class FakeSelfCheck:
    def __init__(self):
        self.off = set()
        self.moments = []

    def check(self, moment, *, attempt_id=None):
        self.moments.append((moment, attempt_id))
        answer = OFF if moment in self.off else ProbeAnswer()
        return Checked(Canary(100.0, "numpy", "best"), answer)

    def audit(self, job):
        return TypeAdapter(Audited).validate_python(AUDIT)


@pytest.fixture
def self_check():
    return FakeSelfCheck()


@pytest.fixture
def reports(server_client, fake_server, system, host, self_check):
    def make(job):
        fake_server.job = job
        Attempts(server_client, system, host, WorkerState(), self_check).make(job.attempt_id)
        return fake_server.bodies("report")

    return make


def test_a_report_has_both_canaries_and_the_audit(reports, make_job, self_check):
    [report] = reports(make_job("climb", seeds=(1, 2)))
    assert [canary["gflops"] for canary in report["canaries"]] == [100.0, 100.0]
    assert self_check.moments == [("before", "attempt-1"), ("after", "attempt-1")]
    assert report["precision"]["lowest"] == "fp32"
    assert report["work"]["step_flops"] == 9e8
    assert (report["drift"], report["failure"]) == (None, None)


def test_a_worker_that_is_off_before_an_attempt_trains_nothing(reports, make_job, self_check):
    self_check.off = {"before"}
    [report] = reports(make_job("climb"))
    assert report["runs"] == []
    failure = report["failure"]
    assert (failure["code"], failure["kind"]) == ("worker_drifted", "infrastructure")
    assert "5.0 % slower" in failure["message"]


def test_a_worker_that_is_off_afterwards_says_so(reports, make_job, self_check):
    self_check.off = {"after"}
    [report] = reports(make_job("climb"))
    assert [run["status"] for run in report["runs"]] == ["reached"]
    assert report["drift"].startswith("5.0 % slower")
    assert report["failure"] is None


@pytest.mark.parametrize("answer", [AUDIT, None, {"precision": {"lowest": "fp33"}}])
def test_a_training_with_the_same_settings_is_audited_once(make_job, system, answer):
    asked = []

    def measure(module, orders, limit_seconds, **_):
        asked.append(orders["hyperparameters"])
        return answer

    host = Host(device="cpu", data_dir=Path("unused"))
    checks = SelfCheck(None, system, WorkerState(), host, surroundings={}, measure=measure)
    first = checks.audit(make_job("climb"))
    assert (first.precision is not None) == (answer is AUDIT)
    assert checks.audit(make_job("climb", seeds=(7,))) == first
    checks.audit(make_job("climb", hyperparameters={"batch_size": 32}))
    assert asked == [{"batch_size": 64}, {"batch_size": 32}]
    # Runs that differ in their settings have no common audit.
    job = make_job("climb", seeds=(1, 2), hyperparameters_by_run=tuple(asked))
    assert checks.audit(job).precision is None
    assert len(asked) == 2


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


def step(model, *, autocast=None, dtype=torch.float32):
    def run():
        x = torch.zeros(2, 1, 8, 8, dtype=dtype)
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            loss = model(x).float().sum()
        loss.backward()

    return run


def audited(run):
    return audit_step(run, "cpu", scope="one training step")


def times(dtype, *, product=True):
    """A narrow product, or a narrow sum, as a step."""
    narrow = torch.ones(32, 32).to(dtype)
    if dtype is torch.int8:
        return lambda: torch._int_mm(narrow, narrow)
    return lambda: narrow @ narrow if product else narrow * 2


@pytest.mark.parametrize(
    ("autocast", "more", "lowest", "observed"),
    [
        # A convolution and a linear layer forward. Backward the convolution is one operation and
        # the linear layer two products.
        (None, None, "fp32", {"fp32": 5}),
        (torch.bfloat16, None, "bf16", None),
        (torch.float16, None, "fp16", None),
        (None, times(torch.bfloat16), "bf16", {"fp32": 5, "bf16": 1}),
        (None, times(torch.bfloat16, product=False), "fp32", {"fp32": 5}),
    ],
)
def test_the_lowest_precision_of_a_product_counts(model, autocast, more, lowest, observed):
    audit = audited(lambda: (step(model, autocast=autocast)(), more and more()))
    assert (audit.lowest, audit.autocast) == (lowest, autocast is not None)
    assert observed is None or audit.observed == observed
    assert autocast is not None or audit.opaque == []


@pytest.mark.parametrize(
    ("run", "lowest"),
    [(times(torch.int8), "int8"), (times(torch.float64), "fp64"),
     (times(torch.float32, product=False), None)],
)  # fmt: skip
def test_integer_products_and_double_precision_are_told_apart(run, lowest):
    assert audited(run).lowest == lowest


def test_fused_attention_is_counted_and_its_inside_is_listed_as_opaque():
    q = torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16)
    audit = audited(lambda: nn.functional.scaled_dot_product_attention(q, q, q))
    assert audit.lowest == "bf16"
    assert any(name.startswith("inside of _scaled_dot_product") for name in audit.opaque)


def test_an_operation_of_somebodys_own_is_listed_as_opaque():
    library = torch.library.Library("audit_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CPU")
    audit = audited(lambda: torch.ops.audit_test.twice(torch.ones(2)))
    library._destroy()
    assert audit.opaque == ["audit_test::twice"]


def test_the_canary_of_a_processor_is_as_exact_as_float32():
    errors = canary_errors("cpu")
    assert set(errors) == {"matmul", "convolution"}
    assert all(1e-9 < error < 1e-6 for error in errors.values())


def test_a_product_in_secret_tf32_is_found_by_the_canary(model, monkeypatch):
    real = torch.matmul

    def shortened(left, right):  # Keeps ten bits of each operand, as a TF32 unit does.
        if left.dtype is torch.float32:
            mask = torch.tensor(~0x1FFF, dtype=torch.int32)
            left, right = ((x.view(torch.int32) & mask).view(torch.float32) for x in (left, right))
        return real(left, right)

    monkeypatch.setattr(torch, "matmul", shortened)
    audit = audited(step(model))
    assert audit.canary_errors["matmul"] > 1e-4
    assert audit.lowest == "tf32"


HIGHEST = {"float32_matmul_precision": "highest"}


@pytest.mark.parametrize(
    ("capability", "flags", "expected"),
    [
        ((9, 0), {"cudnn.allow_tf32": "True"}, "tf32"),
        ((9, 0), {"cuda.matmul": "tf32"}, "tf32"),
        ((9, 0), {"cuda.matmul.allow_tf32": "False", "cudnn.allow_tf32": "False"}, "fp32"),
        ((7, 0), {"cudnn.allow_tf32": "True"}, "fp32"),
        (None, HIGHEST, "fp32"),  # A processor.
        (None, HIGHEST | {"mkldnn.matmul": "bf16"}, "bf16"),
        (None, {"float32_matmul_precision": "medium"}, "bf16"),
    ],
)
def test_float32_is_shortened_where_allowed(monkeypatch, capability, flags, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precision_by_flags(flags, "cpu" if capability is None else "cuda") == expected


def test_a_flag_that_cannot_be_read_is_left_out(monkeypatch):
    class Refusing:
        @property
        def allow_tf32(self):
            raise RuntimeError("mixed old and new settings")

    monkeypatch.setattr(torch.backends.cuda, "matmul", Refusing())
    flags = read_flags()
    assert "cuda.matmul.allow_tf32" not in flags
    assert "cuda.matmul" not in flags
    assert "cudnn.allow_tf32" in flags
