"""The precision audit, on steps whose types are known."""

import pytest
import torch
from torch import nn

from worker.precision_probe import (
    audit_step,
    canary_errors,
    precision_by_flags,
    read_flags,
)


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
