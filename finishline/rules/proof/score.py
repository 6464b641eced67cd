"""Check that the claimed logs of a proof score to the claimed result, and its packages' indexes."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.proof.envelope import Part, Sha256, Table
from finishline.rules.proof.proof import Proof
from finishline.rules.run import curve_row
from finishline.rules.scoring.inference import InferenceResult
from finishline.rules.scoring.scoring import Result
from finishline.rules.scoring.waivers import WAIVABLE
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from finishline.rules.text import count_text, shown

Logs = Mapping[str, bytes]

RELATIVE_TOLERANCE = 1e-9
WITHOUT_LOGS = "the run logs are not in this file; check the .zip"
RUN_FIGURES = ("file", "seed", "reached", "tta_seconds", "epochs_to_target", "best_quality")
INDEX = TypeAdapter(list[tuple[str, int, Sha256]])


def check_logs(proof: Proof, logs: Logs | None) -> str | None:
    """Every file of the claim is in the bundle, unchanged, and no other is."""
    if logs is None:
        return WITHOUT_LOGS
    submission = proof.submission
    wanted = {submission.claim_sha256: "the claim"}
    if submission.against is not None:
        wanted[submission.against.claim_sha256] = "the holder's claim"
    wanted |= {log.sha256: log.file for log in submission.logs}
    for sha256, name in wanted.items():
        if hashlib.sha256(_file(logs, sha256, name=name)).hexdigest() != sha256:
            raise RuleError("its bytes differ from the upload", file=name, expected=sha256)
    more = sorted(set(logs) - set(wanted))
    if more:
        raise RuleError(f"logs/{more[0]} belongs to no run", expected="the files of the claim only")
    for log in submission.logs:
        if len(logs[log.sha256]) != log.size_bytes:
            raise RuleError(
                count_text(len(logs[log.sha256]), "byte"),
                file=log.file,
                expected=count_text(log.size_bytes, "byte"),
            )
    return None


def _file(logs: Logs, sha256: str, *, name: str) -> bytes:
    if sha256 not in logs:
        raise RuleError("not in the bundle", file=name, expected=f"logs/{sha256}")
    return logs[sha256]


def check_package(proof: Proof, logs: Logs | None) -> str | None:
    """The index of the files of each package hashes to the package that was trained."""
    if logs is None:
        return WITHOUT_LOGS
    for side in (proof.submission, proof.submission.against):
        if side is not None:
            sha256 = side.claim_sha256
            index = INDEX.validate_json(_file(logs, sha256, name="the claim"), strict=True)
            if sha256_of(index) != sha256:
                raise RuleError("not the canonical index", file=f"logs/{sha256}", expected=sha256)
    return None


class Code(Part, extra="ignore"):
    """The code of a violation."""

    code: str


class Convergence(Part, extra="ignore"):
    """Figures of a convergence check."""

    verdict: str | None = None
    factor: float | None = None
    batch_size: float | None = None
    mean: float | None = None
    lowest: float | None = None
    submission_mean: float | None = None


class Figures(Part, extra="ignore"):
    """Figures of a result that its logs tell. Earlier rules have no raw time and no convergence.

    Words may be put better by later code, and nothing rests on the interval.
    """

    clock: str
    started: int
    reached: int
    tta_seconds: float | None
    tta_display: str | None
    cv_percent: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    best_quality: float | None
    evaluation_interval_seconds: float | None
    raw_tta_seconds: float | None = None
    rcp: Convergence | None = None
    violations: list[Code]


def check_score(proof: Proof, benchmark: Benchmark, logs: Logs | None) -> str | None:
    """The claim and its logs, read and scored again, give the stored claim, runs and result."""
    if logs is None:
        return WITHOUT_LOGS
    submission, scored = proof.submission, _score(proof, benchmark, logs)
    _compare_claim(proof, scored)
    if isinstance(scored.result, InferenceResult):
        raise RuleError("an inference entry", expected="a submission with runs")
    _compare_result(submission.result, scored.result)
    for waiver in submission.waivers:
        rule = waiver.get("rule")
        if rule not in WAIVABLE:
            expected = f"one of {', '.join(WAIVABLE)}"
            raise RuleError(f"a waiver of {shown(rule)}", expected=expected)
    require_equal("runs", len(submission.runs), len(scored.result.runs))
    require_equal("curves", len(submission.curves), len(scored.runs))
    for index, (kept, run) in enumerate(zip(submission.runs, scored.result.runs, strict=True)):
        curve = [tuple(curve_row(each)) for each in scored.runs[index].evaluations]
        require_equal(f"runs[{index}].curve", submission.curves[index], curve)
        for name in RUN_FIGURES:
            require_equal(f"runs[{index}].{name}", getattr(kept, name), getattr(run, name))
    return None


def _score(proof: Proof, benchmark: Benchmark, logs: Logs) -> ScoredSubmission:
    submission = proof.submission
    return score_submission(
        _file(logs, submission.claim_sha256, name="the claim"),
        {log.file: _file(logs, log.sha256, name=log.file) for log in submission.logs},
        {benchmark.benchmark_id: benchmark},
        benchmark_id=benchmark.benchmark_id,
        division=submission.division,
        archive=True,
    )


def _compare_claim(proof: Proof, scored: ScoredSubmission) -> None:
    kept, claim = proof.submission.claim, scored.claim
    require_equal("claim.model", kept.model, claim.model)
    require_equal("claim.framework", kept.framework, claim.framework)
    require_equal("claim.precision", kept.precision, claim.precision)
    require_equal("claim.hyperparameters", kept.hyperparameters, dict(claim.hyperparameters))
    require_equal("claim.system", kept.system, claim.system)


def _compare_result(stored: Table, scored: Result) -> None:
    kept = Figures.model_validate_json(json.dumps(stored))
    codes = [sorted(each.code for each in result.violations) for result in (kept, scored)]
    require_equal("result.violations", *codes)
    for name in kept.model_fields_set - {"violations", "rcp"}:
        require_equal(f"result.{name}", getattr(kept, name), getattr(scored, name))
    if "rcp" in kept.model_fields_set:
        for name in Convergence.model_fields:
            theirs, ours = (getattr(each.rcp, name, None) for each in (kept, scored))
            require_equal(f"result.rcp.{name}", theirs, ours)


def require_equal(field: str, stored: Any, derived: Any) -> None:
    """Raise RuleError unless both are equal, where numbers may differ in their last digits."""
    if not is_equal(stored, derived):
        raise RuleError(f"stored {stored!r}", field=field, expected=f"{derived!r}")


def is_equal(stored: Any, derived: Any) -> bool:
    """Equal, where numbers may differ as two machines' last digits do."""
    if isinstance(stored, bool) or isinstance(derived, bool):
        return stored is derived
    if isinstance(stored, int | float) and isinstance(derived, int | float):
        limit = RELATIVE_TOLERANCE * max(abs(stored), abs(derived))
        return abs(stored - derived) <= limit
    return bool(stored == derived)
