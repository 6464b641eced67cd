"""The audit of a reference, its precision, and an attempt between its canaries."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import reference_models
from finishline.rules.scoring.measurements import Canary, ProbeAnswer
from finishline.rules.scoring.run import Phase
from worker.measuring import measure_apart
from worker.precision_probe import audit, audit_step, canary_errors, precision_by_flags, read_flags
from worker.replay import AttemptChecks, replay
from worker.self_check import Checked
from worker.state import WorkerState


def told(reference, **hyperparameters):
    return {
        "reference": reference,
        "hyperparameters": hyperparameters,
        "device": "cpu",
        "data_dir": "unused",
    }


@pytest.fixture
def trainer(monkeypatch):
    """Adds a reference without a synthetic step; tells the phases it got to."""
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
    assert (plain["precision"]["opaque"], compiled["precision"]["opaque"]) == (
        [],
        ["compiled code"],
    )


def test_an_audit_answers_in_a_process_of_its_own():
    answer = measure_apart("worker.precision_probe", told("digits"), 120.0)
    assert answer["precision"]["lowest"] == "fp32"
    assert answer["work"]["batch_size"] == 64


def test_an_audit_of_settings_the_reference_refuses_is_absent():
    assert measure_apart("worker.precision_probe", told("digits", batch_size=-1), 120.0) is None


AUDIT = {
    "precision": {
        "lowest": "fp32",
        "observed": {"fp32": 9},
        "autocast": False,
        "flags": {},
        "canary_errors": {"matmul": 2e-7},
        "opaque": [],
        "scope": "one training step",
    },
    "work": {"batch_size": 64, "step_flops": 9e8, "step_bytes": 8e6},
}


OFF = ProbeAnswer(drifted=True, message="5.0 % slower than its own baseline")


class FakeSelfCheck:
    """Answers by moment."""

    def __init__(self):
        self.off = set()
        self.fit = True
        self.moments = []

    def check(self, moment, *, attempt_id=None):
        self.moments.append((moment, attempt_id))
        answer = OFF if moment in self.off else ProbeAnswer()
        return Checked(Canary(100.0, "numpy", "best"), answer)

    def is_fit(self):
        return self.fit


@pytest.fixture
def self_check():
    return FakeSelfCheck()


@pytest.fixture
def audits():
    """What was asked of the audit."""
    return []


@pytest.fixture
def checks(self_check, audits):
    def measure(module, orders, limit_seconds):
        audits.append((module, orders["reference"], orders["hyperparameters"]))
        return AUDIT

    return AttemptChecks(self_check, device="cpu", data_dir=Path("unused"), measure=measure)


@pytest.fixture
def report_of(server_client, fake_server, system, host, checks):
    def make(job):
        replay(
            job,
            server=server_client,
            system=system,
            host=host,
            state=WorkerState(),
            checks=checks,
        )
        return fake_server.bodies("report")[-1]

    return make


def test_a_report_has_both_canaries_and_the_audit(report_of, make_job, self_check):
    report = report_of(make_job("climb", seeds=(1, 2)))
    assert [canary["gflops"] for canary in report["canaries"]] == [100.0, 100.0]
    assert self_check.moments == [("before", "attempt-1"), ("after", "attempt-1")]
    assert report["precision"]["lowest"] == "fp32"
    assert report["work"]["step_flops"] == 9e8
    assert report["drift"] is None
    assert report["failure"] is None


def test_a_worker_that_is_off_before_an_attempt_trains_nothing(report_of, make_job, self_check):
    self_check.off = {"before"}
    report = report_of(make_job("climb"))
    assert report["runs"] == []
    assert report["failure"]["code"] == "worker_drifted"
    assert report["failure"]["kind"] == "infrastructure"
    assert "5.0 % slower" in report["failure"]["message"]


def test_a_worker_that_is_off_afterwards_reports_its_runs_and_says_so(
    report_of, make_job, self_check
):
    self_check.off = {"after"}
    report = report_of(make_job("climb"))
    assert [run["status"] for run in report["runs"]] == ["reached"]
    assert report["drift"].startswith("5.0 % slower")
    assert report["failure"] is None


def test_a_worker_that_is_out_does_not_ask_for_an_attempt(
    make_job, self_check, server_client, fake_server, system, host, checks
):
    self_check.fit = False
    replay(
        make_job(),
        server=server_client,
        system=system,
        host=host,
        state=WorkerState(),
        checks=checks,
    )
    assert fake_server.posts == []


def test_a_training_with_the_same_settings_is_audited_once(checks, make_job, audits):
    first = checks.audit(make_job("climb"))
    assert checks.audit(make_job("climb", seeds=(7,))) == first
    checks.audit(make_job("climb", hyperparameters={"batch_size": 32}))
    assert [settings for _, _, settings in audits] == [{"batch_size": 64}, {"batch_size": 32}]


def test_runs_that_differ_in_their_settings_have_no_common_audit(checks, make_job, audits):
    tables = ({"batch_size": 64}, {"batch_size": 32})
    job = make_job("climb", seeds=(1, 2), hyperparameters_by_run=tables)
    assert checks.audit(job).precision is None
    assert audits == []


@pytest.mark.parametrize("answer", [None, {"precision": {"lowest": "fp33"}}])
def test_an_audit_that_fails_is_absent(self_check, make_job, answer):
    checks = AttemptChecks(
        self_check, device="cpu", data_dir=Path("unused"), measure=lambda *_: answer
    )
    assert checks.audit(make_job()).precision is None


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


def test_a_step_in_float32_touches_nothing_narrower(model):
    audit = audited(step(model))
    assert audit.lowest == "fp32"
    # A convolution and a linear layer forward; backward the convolution is one operation and the
    # linear layer two products.
    assert audit.observed == {"fp32": 5}
    assert audit.autocast is False
    assert audit.opaque == []


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16")])
def test_autocast_is_seen_by_what_it_makes_of_the_operands(model, dtype, name):
    audit = audited(step(model, autocast=dtype))
    assert audit.lowest == name
    assert audit.autocast is True


def test_one_narrow_product_among_wide_ones_is_found(model):
    def run():
        step(model)()
        torch.ones(2, 2, dtype=torch.bfloat16) @ torch.ones(2, 2, dtype=torch.bfloat16)

    audit = audited(run)
    assert (audit.lowest, audit.observed["bf16"], audit.observed["fp32"]) == ("bf16", 1, 5)


def test_narrow_types_outside_of_products_do_not_count(model):
    def run():
        step(model)()
        torch.ones(2, dtype=torch.bfloat16) * 2

    assert audited(run).lowest == "fp32"


def test_integer_products_and_double_precision_are_told_apart():
    def integers():
        torch._int_mm(torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8))

    assert audited(integers).lowest == "int8"
    assert audited(lambda: torch.ones(2, 2).double() @ torch.ones(2, 2).double()).lowest == "fp64"


def test_a_step_without_products_has_no_label():
    assert audited(lambda: torch.ones(2) + 1).lowest is None


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


@pytest.mark.parametrize(
    ("capability", "flags", "expected"),
    [
        ((9, 0), {"cudnn.allow_tf32": "True"}, "tf32"),
        ((9, 0), {"cuda.matmul": "tf32"}, "tf32"),
        ((9, 0), {"cuda.matmul.allow_tf32": "False", "cudnn.allow_tf32": "False"}, "fp32"),
        ((7, 0), {"cudnn.allow_tf32": "True"}, "fp32"),
    ],
)
def test_an_accelerator_shortens_float32_where_it_can_and_is_allowed_to(
    monkeypatch, capability, flags, expected
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precision_by_flags(flags, "cuda") == expected


def test_a_processor_shortens_float32_only_where_it_is_told_to():
    highest = {"float32_matmul_precision": "highest"}
    assert precision_by_flags(highest, "cpu") == "fp32"
    assert precision_by_flags(highest | {"mkldnn.matmul": "bf16"}, "cpu") == "bf16"
    assert precision_by_flags({"float32_matmul_precision": "medium"}, "cpu") == "bf16"


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
