"""Check a proof bundle without trusting its maker: derive every figure again from its contents.

The signature is checked elsewhere: these rules know no cryptography but hashes.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from finishline.rules.benchmarks.benchmark import Benchmark, ReferenceRun, read_benchmark
from finishline.rules.benchmarks.calibration import calibrated_by
from finishline.rules.errors import RuleError
from finishline.rules.proof.duel import check_duel_plan, check_duel_verdict, is_duel
from finishline.rules.proof.entry import (
    check_entry_runs,
    check_entry_verdict,
    check_package,
    check_plan,
)
from finishline.rules.proof.proof import (
    PARTS,
    AttemptPart,
    Proof,
    SubmissionPart,
    part_hashes,
    read_proof,
)
from finishline.rules.proof.replay import (
    check_band,
    check_calibration,
    check_own_curves,
    check_posted,
    check_runs,
    check_seeds,
    check_times,
    check_verdict,
)
from finishline.rules.proof.score import Logs, check_logs, check_score
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.entry import REPEAT

Outcome = Literal["pass", "fail", "open"]
MAY_BE_TRIED_AGAIN = "infrastructure"


@dataclass(frozen=True)
class Check:
    """One check: name, outcome, the values compared, and the reason if it did not pass.

    `open` is a check that lacks the data it needs.
    """

    name: str
    result: Outcome
    compared: str
    why: str = ""


@dataclass(frozen=True)
class _Step:
    """A check to make. It returns why it is open, or None, and raises RuleError if it fails."""

    name: str
    compared: str
    make: Callable[[], str | None]


def check_proof(document: Mapping[str, Any], logs: Logs | None) -> list[Check]:
    """Every check of a bundle but its signature. `logs` holds its files by hash, None without.

    A document that is no proof fails the first check, "format", and has no other.
    """
    try:
        proof = read_proof(document)
    except RuleError as error:
        return [Check("format", "fail", "every field of the document", str(error))]
    checks = [
        Check("format", "pass", "every field of the document"),
        _made(_Step("parts", "SHA-256 of each part", lambda: _parts(document, proof))),
        _made(_Step("definition", "benchmark text and its SHA-256", lambda: _definition(proof))),
    ]
    if checks[-1].result == "fail":
        return checks
    benchmark = judging_benchmark(proof)
    return checks + [_made(step) for step in _steps(proof, benchmark, claim_of(proof), logs)]


def _steps(proof: Proof, benchmark: Benchmark, claim: Claim, logs: Logs | None) -> list[_Step]:
    if claim.package is not None or is_duel(proof):
        return _package_steps(proof, benchmark, claim, logs)
    draw, report = proof.draw, proof.report
    replays = "no report" if report is None else count_text(len(report.runs), "replay")
    points = count_text(len(proof.plan.control_points), "control point")
    files = f"{count_text(len(proof.submission.logs), 'log')} and the claim"
    return [
        _Step("logs", f"SHA-256 of {files}", lambda: check_logs(proof, logs)),
        _Step("score", "result scored again from the logs",
              lambda: check_score(proof, benchmark, logs)),
        _Step("seal", f"{count_text(len(draw.seeds), 'seed')} and nonce against the seal",
              lambda: check_seeds(proof, benchmark, claim, only_seal=True)),
        _Step("seeds", f"{count_text(draw.runs, 'run')} and seeds drawn again from the nonce",
              lambda: check_seeds(proof, benchmark, claim, only_seal=False)),
        _Step("calibration", "the runs of the reference that judged, against the seal",
              lambda: check_calibration(proof, benchmark)),
        _Step("band", f"{points} computed again",
              lambda: check_band(proof, benchmark, claim)),
        _Step("runs", f"every sealed seed reported, in order: {replays}",
              lambda: check_runs(proof)),
        _Step("times", "seconds against the ledger of every evaluation",
              lambda: check_times(proof, benchmark)),
        _Step("posted", "every evaluation as it was posted, by the server's clock",
              lambda: check_posted(proof, benchmark)),
        _Step("curves", "each run against the others, the calibrated and the claimed",
              lambda: check_own_curves(proof, benchmark)),
        _Step("attempts", f"number of attempts ({len(proof.attempts)}) and how each ended",
              lambda: _attempts(proof)),
        _Step("verdict", "outcome, reasons and numbers judged again",
              lambda: check_verdict(proof, benchmark, claim)),
    ]  # fmt: skip


def _package_steps(
    proof: Proof, benchmark: Benchmark, claim: Claim, logs: Logs | None
) -> list[_Step]:
    """Checks of the measurement of a package, or of a duel of two."""
    draw, report, against = proof.draw, proof.report, proof.submission.against
    runs = "no report" if report is None else count_text(len(report.runs), "run")
    sides = [claim] if against is None else [claim, _claim_in(proof, against)]

    def check_drawn() -> str | None:
        if is_duel(proof):
            return check_duel_plan(proof, benchmark, sides)
        return check_plan(proof, benchmark, claim)

    def check_judged() -> str | None:
        if is_duel(proof):
            return check_duel_verdict(proof, benchmark, sides)
        return check_entry_verdict(proof, benchmark, claim)

    return [
        _Step("logs", "SHA-256 of the index of each package", lambda: check_logs(proof, logs)),
        _Step("package", "the files' names, sizes and hashes against each package's hash",
              lambda: check_package(proof, logs)),
        _Step("seal", f"{count_text(len(draw.seeds), 'seed')} and nonce against the seal",
              lambda: check_seeds(proof, benchmark, claim, only_seal=True)),
        _Step("seeds", f"{count_text(draw.runs, 'run')} and seeds drawn again from the nonce",
              check_drawn),
        _Step("runs", f"every sealed seed reported, in order: {runs}",
              lambda: check_entry_runs(proof, benchmark)),
        _Step("times", "seconds against the ledger of every evaluation",
              lambda: check_times(proof, benchmark)),
        _Step("posted", "every evaluation as it was posted, by the server's clock",
              lambda: check_posted(proof, benchmark)),
        _Step("attempts", f"number of attempts ({len(proof.attempts)}) and how each ended",
              lambda: _attempts(proof)),
        _Step("verdict", "outcome, reasons and numbers judged again",
              check_judged),
    ]  # fmt: skip


def _made(step: _Step) -> Check:
    try:
        why = step.make()
    except (
        RuleError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        # Impossible figures may fail anywhere in the rules: that is a finding.
        found = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return Check(step.name, "fail", step.compared, found or type(error).__name__)
    return Check(step.name, "pass" if why is None else "open", step.compared, why or "")


def benchmark_of(proof: Proof) -> Benchmark:
    """The definition in a proof. Raises BenchmarkError."""
    text = proof.benchmark.definition.encode()
    return read_benchmark(text, file=f"{proof.benchmark.id}.toml")


def judging_benchmark(proof: Proof) -> Benchmark:
    """The definition with the calibrated runs that judged: its own, or an adopted calibration's."""
    benchmark = benchmark_of(proof)
    if proof.calibration is None:
        return benchmark
    runs = [
        ReferenceRun(run.batch_size, run.seed, tuple(run.quality)) for run in proof.calibration.runs
    ]
    return calibrated_by(benchmark, runs)


def claim_of(proof: Proof) -> Claim:
    """The claim in a proof, as far as a replay is planned and judged by it."""
    return _claim_in(proof, proof.submission)


def _claim_in(proof: Proof, submission: SubmissionPart) -> Claim:
    return Claim(
        benchmark_id=proof.benchmark.id,
        division=submission.division,
        model=submission.claim.model,
        framework=submission.claim.framework,
        system=submission.claim.system,
        run_files=tuple(log.file for log in submission.logs),
        hyperparameters=submission.claim.hyperparameters,
        precision=submission.claim.precision,
        trained_with=submission.claim.trained_with or "reference",
        package=submission.claim_sha256 if submission.claim.trained_with == "package" else None,
        deterministic=bool(proof.draw.beside.get(REPEAT)),
    )


def _parts(document: Mapping[str, Any], proof: Proof) -> None:
    found = part_hashes(document)
    wrong = [name for name in PARTS if proof.parts.get(name) != found[name]]
    if wrong or set(proof.parts) != set(PARTS):
        named = ", ".join(wrong) or "parts"
        raise RuleError(f"changed since it was hashed: {named}", expected="the hashes in `parts`")


def _definition(proof: Proof) -> None:
    found = hashlib.sha256(proof.benchmark.definition.encode()).hexdigest()
    if found != proof.benchmark.sha256:
        raise RuleError(f"the text has {found[:16]}…", expected=f"{proof.benchmark.sha256[:16]}…")
    benchmark_of(proof)  # It has the id that the proof names.


def _attempts(proof: Proof) -> None:
    """Check that only machine failures were retried: else a bad replay could be thrown away."""
    attempts = proof.attempts
    if [attempt.number for attempt in attempts] != list(range(1, len(attempts) + 1)):
        raise RuleError("attempts are missing", expected="attempts numbered from 1 without a gap")
    if not attempts or len(attempts) > proof.plan.max_attempts:
        raise RuleError(
            count_text(len(attempts), "attempt"),
            expected=f"1 to {count_text(proof.plan.max_attempts, 'attempt')}",
        )
    for attempt in attempts[:-1]:
        _require_excused(attempt)
    last, state = attempts[-1], proof.verification.state
    wanted = {
        "done": ("done",),
        "failed": ("failed", "lost"),
        "cancelled": ("cancelled", "done", "failed", "lost"),
    }[state]
    if last.state not in wanted:
        raise RuleError(
            f"attempt {last.number} is {last.state}", expected=f"{' or '.join(wanted)} at the end"
        )


def _require_excused(attempt: AttemptPart) -> None:
    kind = attempt.failure.kind if attempt.failure is not None else None
    if attempt.state not in ("lost", "failed") or kind != MAY_BE_TRIED_AGAIN:
        raise RuleError(
            f"attempt {attempt.number} was tried again after {kind or attempt.state}",
            expected=f"another attempt only after a failure of kind {MAY_BE_TRIED_AGAIN}",
        )
