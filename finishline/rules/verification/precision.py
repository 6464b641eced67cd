"""Precision labels: find the narrowest floating type, and compare a claim with its audit."""

from collections.abc import Iterable

from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.messages import ReplayReport, Training
from finishline.rules.verification.verdict import Reason

# From wide to narrow. Of the two types of 16 bits bfloat16 keeps fewer digits.
WIDE_TO_NARROW: tuple[PrecisionName, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
# Those that the operands of a product show.
NARROW: tuple[PrecisionName, ...] = ("fp16", "bf16")
# Relative errors of a product of normal numbers: about 1e-7, 3e-4 and 2e-3.
LARGEST_FP32_ERROR = 1e-5
LARGEST_TF32_ERROR = 8e-4


def is_narrower(one: PrecisionName, other: PrecisionName) -> bool:
    """Whether `one` keeps less of a number than `other`."""
    return WIDE_TO_NARROW.index(one) > WIDE_TO_NARROW.index(other)


def narrowest(names: Iterable[PrecisionName]) -> PrecisionName | None:
    """The narrowest of some types, which names the whole run; None of none.

    Source: MLPerf training_rules.adoc, appendix on utilisation: the lowest precision touched
    is the label of the run.
    """
    return max(names, key=WIDE_TO_NARROW.index, default=None)


def precision_by_error(relative_error: float) -> PrecisionName:
    """Type that a float32 product was really computed in, by its error against float64."""
    if relative_error <= LARGEST_FP32_ERROR:
        return "fp32"
    return "tf32" if relative_error <= LARGEST_TF32_ERROR else "bf16"


def judge_precision(claim: Claim, report: ReplayReport) -> list[Reason]:
    """Compare the precision a claim states with the types the replay's training really touched.

    Narrower than claimed is rejected. A claim without a precision, or a replay without an audit,
    has nothing to compare.
    """
    audit = report.precision
    if claim.precision is None or audit is None or audit.lowest is None:
        return []
    numbers = {f"operations_{name}": float(count) for name, count in audit.observed.items()}
    if is_narrower(audit.lowest, claim.precision):
        message = (
            f"the claim states {claim.precision}, and the training touched {audit.lowest} "
            f"in a matmul or convolution ({audit.scope})"
        )
        return [Reason("precision_differs", "rejects", message, numbers)]
    message = f"nothing narrower than the claimed {claim.precision} was touched ({audit.scope})"
    return [Reason("precision_agrees", "supports", message, numbers)]


def check_trained_in(report: ReplayReport, trainings: Iterable[Training]) -> None:
    """Raise RuleError if the audited training touched nothing as narrow as its type of 16 bits.

    A worker of an earlier release trains in the reference's own precision, whatever it is told.
    """
    audited = next((each for each in trainings if "profile" in each.measure), None)
    wanted = None if audited is None else audited.precision
    lowest = None if report.precision is None else report.precision.lowest
    if wanted in NARROW and lowest is not None and is_narrower(wanted, lowest):
        raise RuleError(
            f"the training touched nothing narrower than {lowest}",
            field="precision",
            expected=f"{wanted}; update the worker",
        )


def audits_differ(report: ReplayReport, other: ReplayReport) -> bool:
    """Whether two workers found different precisions in one training."""
    found = [each.precision.lowest for each in (report, other) if each.precision is not None]
    return len({lowest for lowest in found if lowest is not None}) > 1
