import dataclasses

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.measurements import PrecisionAudit, PrecisionName
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import ReplayReport, WorkerSystem
from finishline.rules.verification.precision import (
    is_narrower,
    judge_precision,
    narrowest,
    precision_by_error,
)

CLAIM = Claim("digits", "closed", "m", "f", System("s", "cpu", "p"), ("run_0.log",))
SYSTEM = WorkerSystem("w", "other", "p", 1, 1.0, None, 0, 1, {})


def replayed(lowest: PrecisionName | None) -> ReplayReport:
    audit = PrecisionAudit(lowest=lowest, observed={"fp32": 8, "bf16": 1}, autocast=True)
    return ReplayReport(runs=[], system=SYSTEM, precision=audit)


def claiming(precision: PrecisionName | None) -> Claim:
    return dataclasses.replace(CLAIM, precision=precision)


def test_one_narrow_operation_names_the_whole_run() -> None:
    assert narrowest(["fp32", "fp32", "fp8", "bf16"]) == "fp8"
    assert narrowest(["fp32", "tf32"]) == "tf32"
    assert narrowest([]) is None


def test_bfloat16_keeps_fewer_digits_than_float16() -> None:
    assert is_narrower("bf16", "fp16")
    assert not is_narrower("fp16", "bf16")
    assert not is_narrower("fp32", "fp32")


def test_bfloat16_inside_a_claim_of_float32_is_rejected() -> None:
    (reason,) = judge_precision(claiming("fp32"), replayed("bf16"))
    assert (reason.code, reason.weight) == ("precision_differs", "rejects")
    assert "the claim states fp32, and the training touched bf16" in reason.message
    assert reason.numbers["operations_bf16"] == 1.0


@pytest.mark.parametrize(("claim", "found"), [("bf16", "bf16"), ("bf16", "fp32"), ("tf32", "fp32")])
def test_a_training_as_wide_as_claimed_or_wider_agrees(
    claim: PrecisionName, found: PrecisionName
) -> None:
    (reason,) = judge_precision(claiming(claim), replayed(found))
    assert (reason.code, reason.weight) == ("precision_agrees", "supports")


def test_tf32_inside_a_claim_of_float32_is_rejected() -> None:
    (reason,) = judge_precision(claiming("fp32"), replayed("tf32"))
    assert reason.weight == "rejects"


def test_without_claim_or_audit_there_is_nothing_to_compare() -> None:
    assert judge_precision(claiming(None), replayed("bf16")) == []
    assert judge_precision(claiming("fp32"), replayed(None)) == []
    assert judge_precision(claiming("fp32"), ReplayReport(runs=[], system=SYSTEM)) == []


def test_a_verdict_holds_the_precision_too(digits: Benchmark) -> None:
    verdict = judge(digits, claiming("fp32"), [], replayed("bf16"), runs_planned=1)
    assert verdict.outcome == "rejected"
    assert "precision_differs" in {reason.code for reason in verdict.reasons}


# Unit roundoff 2^-24, 2^-11 and 2^-9: the relative error of a product is a little below it.
@pytest.mark.parametrize(
    ("error", "name"), [(2.4e-7, "fp32"), (3e-4, "tf32"), (1.7e-3, "bf16"), (0.1, "bf16")]
)
def test_an_error_against_float64_tells_what_was_computed_in(
    error: float, name: PrecisionName
) -> None:
    assert precision_by_error(error) == name
