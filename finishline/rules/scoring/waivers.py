"""Rules that an organiser may waive for one submission, and the effect of it on the result."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

# Rules on how a result is shown to be one. Those on whether it is true are never waived: a copied
# log, a quality that cannot be, a success without the target, a log that contradicts its claim.
WaivableRule = Literal[
    "too_few_runs",
    "no_seed",
    "no_convergence",
    "batch_size_differs",
    "missing_rcp",
    "converges_too_fast",
    "preparation_missing",
    "same_program",
]
WAIVABLE: dict[WaivableRule, str] = {
    "too_few_runs": "fewer runs than the benchmark asks for",
    "no_seed": "a log without its seed",
    "no_convergence": "a log that does not tell how far the run had trained",
    "batch_size_differs": "runs without one batch size that all of them log",
    "missing_rcp": "no reference convergence points to judge it by",
    "converges_too_fast": "convergence faster than the reference points allow",
    "preparation_missing": "a log without the start of its preparation",
    "same_program": "a package that is the same program as an earlier entry",
}


def broken_rules(violations: Iterable[Mapping[str, Any]], waived: Collection[str]) -> list[str]:
    """Codes of the rules that a result breaks and that nobody waived, each once, in order.

    `violations` are as they are stored, `rules.violations.Violation` as tables.
    """
    codes = dict.fromkeys(violation["code"] for violation in violations)
    return [code for code in codes if code not in waived]
