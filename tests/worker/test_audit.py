"""The audit of a reference: of its synthetic step, or of its warm-up where it has none."""

from types import SimpleNamespace

import pytest
import torch

import reference_models
from finishline.rules.scoring.run import Phase
from worker.measuring import measure_apart
from worker.precision_probe import audit


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


def test_the_digits_reference_trains_in_float32_by_nine_products():
    found = audit(told("digits", batch_size=32))
    # Three convolutions and one linear layer forward; three and two backward.
    assert (found["precision"]["lowest"], found["precision"]["observed"]) == ("fp32", {"fp32": 9})
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
