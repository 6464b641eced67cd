"""Check that the claimed logs of a proof score to the claimed result."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.proof.proof import Proof, Table
from finishline.rules.scoring.convergence import RcpVerdict
from finishline.rules.scoring.inference import InferenceResult
from finishline.rules.scoring.run import curve_row
from finishline.rules.scoring.waivers import WAIVABLE
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from finishline.rules.text import count_text, shown

Logs = Mapping[str, bytes]

RELATIVE_TOLERANCE = 1e-9
WITHOUT_LOGS = "the run logs are not in this file; check the .zip"
# A result's words may be put better by later code; its figures stay. Its interval is another one
# under earlier rules, and nothing rests on it.
FIGURES = (
    "clock", "started", "reached", "tta_seconds", "raw_tta_seconds", "tta_display",
    "cv_percent", "epochs_to_target", "cost_usd", "best_quality", "evaluation_interval_seconds",
)  # fmt: skip
RCP_FIGURES = ("verdict", "factor", "batch_size", "mean", "lowest", "submission_mean")
RUN_FIGURES = ("file", "seed", "reached", "tta_seconds", "epochs_to_target", "best_quality")


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
        if sha256 not in logs:
            raise RuleError("not in the bundle", file=name, expected=f"logs/{sha256}")
        if hashlib.sha256(logs[sha256]).hexdigest() != sha256:
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


def check_score(proof: Proof, benchmark: Benchmark, logs: Logs | None) -> str | None:
    """The claim and its logs, read and scored again, give the stored claim, runs and result."""
    if logs is None:
        return WITHOUT_LOGS
    scored = _score(proof, benchmark, logs)
    _compare_claim(proof, scored)
    if isinstance(scored.result, InferenceResult):
        raise RuleError("an inference entry", expected="a submission with runs")
    stored = proof.submission.result
    for name in FIGURES:
        if name in stored or name != "raw_tta_seconds":  # A result of earlier rules lacks it.
            _require_equal(f"result.{name}", stored.get(name), getattr(scored.result, name))
    if "rcp" in stored:  # As above.
        _compare_convergence(stored["rcp"], scored.result.rcp)
    broken = sorted(violation.code for violation in scored.result.violations)
    listed = sorted(str(item.get("code")) for item in stored.get("violations") or [])
    _require_equal("result.violations", listed, broken)
    for waiver in proof.submission.waivers:
        if waiver.get("rule") not in WAIVABLE:
            found = f"a waiver of {shown(waiver.get('rule'))}"
            raise RuleError(found, expected=f"one of {', '.join(WAIVABLE)}")
    if len(proof.submission.runs) != len(scored.result.runs):
        raise RuleError(
            count_text(len(proof.submission.runs), "run"),
            expected=count_text(len(scored.result.runs), "run"),
        )
    for index, (kept, run) in enumerate(
        zip(proof.submission.runs, scored.result.runs, strict=True)
    ):
        curve = [curve_row(evaluation) for evaluation in scored.runs[index].evaluations]
        _require_equal(f"runs[{index}].curve", proof.submission.curves[index], curve)
        for name in RUN_FIGURES:
            _require_equal(f"runs[{index}].{name}", getattr(kept, name), getattr(run, name))
    return None


def _score(proof: Proof, benchmark: Benchmark, logs: Logs) -> ScoredSubmission:
    submission = proof.submission
    return score_submission(
        logs[submission.claim_sha256],
        {log.file: logs[log.sha256] for log in submission.logs},
        {benchmark.benchmark_id: benchmark},
        benchmark_id=benchmark.benchmark_id,
        division=submission.division,
        archive=True,
    )


def _compare_claim(proof: Proof, scored: ScoredSubmission) -> None:
    kept, claim = proof.submission.claim, scored.claim
    _require_equal("claim.model", kept.model, claim.model)
    _require_equal("claim.framework", kept.framework, claim.framework)
    _require_equal("claim.precision", kept.precision, claim.precision)
    _require_equal("claim.hyperparameters", dict(kept.hyperparameters), dict(claim.hyperparameters))
    _require_equal("claim.system", asdict(kept.system), asdict(claim.system))


def _compare_convergence(stored: Table | None, derived: RcpVerdict | None) -> None:
    kept, found = stored or {}, vars(derived) if derived is not None else {}
    for name in RCP_FIGURES:
        _require_equal(f"result.rcp.{name}", kept.get(name), found.get(name))


def _require_equal(name: str, stored: Any, derived: Any) -> None:
    if not is_equal(stored, derived):
        raise RuleError(f"stored {stored!r}", field=name, expected=f"{derived!r}")


def is_equal(stored: Any, derived: Any) -> bool:
    """Equal, where numbers may differ as two machines' last digits do."""
    if isinstance(stored, bool) or isinstance(derived, bool):
        return stored is derived
    if isinstance(stored, int | float) and isinstance(derived, int | float):
        limit = RELATIVE_TOLERANCE * max(abs(stored), abs(derived))
        return abs(stored - derived) <= limit
    return bool(stored == derived)
