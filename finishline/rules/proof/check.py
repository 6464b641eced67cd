"""Check a proof without trusting its maker: derive every figure again from its contents.

The signature is checked elsewhere: these rules need only hashes.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from finishline.rules.benchmarks.benchmark import Benchmark, read_benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.proof.proof import (
    PARTS,
    Part,
    Proof,
    Sha256,
    Table,
    part_hashes,
    read_part,
)
from finishline.rules.run import Evaluation, curve_row, evaluation_of
from finishline.rules.scoring.latency import InferenceResult
from finishline.rules.scoring.scoring import Result
from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.submissions.claim import MAX_TRAINED_SEED, Claim
from finishline.rules.submissions.submission import score_submission
from finishline.rules.text import count_text, shown
from finishline.rules.verification.calibration import calibrated_by, judged_beside
from finishline.rules.verification.control_points import (
    KnownCurve,
    band_for,
    calibrated_curves,
    check_curves,
)
from finishline.rules.verification.job import (
    REPEAT,
    Case,
    Contest,
    Draw,
    Purpose,
    Request,
    beside_of,
    seal,
)
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport, Training
from finishline.rules.verification.purposes import PURPOSES
from finishline.rules.verification.report_check import (
    CLOCK_SLACK_SECONDS,
    check_ledgers,
    check_report,
    check_second_halves,
    check_stream,
)

Logs = Mapping[str, bytes]

MAY_BE_TRIED_AGAIN = "infrastructure"
# Reasons about the workers rather than the replay. Some leave the verdict open.
OF_WORKERS = frozenset({"no_second_worker", "cross_check_differs"})
TOLERANCE_SECONDS = 1e-6
RELATIVE_TOLERANCE = 1e-9
NONCE = re.compile("[0-9a-f]{64}")
NO_REPORT = "the verification ended without a report"
WITHOUT_LOGS = "the run logs are not in this file; check the .zip"
RUN_FIGURES = ("file", "seed", "reached", "tta_seconds", "epochs_to_target", "best_quality")
RCP_FIGURES = ("verdict", "factor", "batch_size", "mean", "lowest", "submission_mean")
INDEX = TypeAdapter(list[tuple[str, int, Sha256]])
LAST_STATES = {
    "done": ("done",),
    "failed": ("failed", "lost"),
    "cancelled": ("cancelled", "done", "failed", "lost"),
}


@dataclass(frozen=True)
class Check:
    """One check: name, outcome ("open" without its data), compared values, and the reason."""

    name: str
    result: Literal["pass", "fail", "open"]
    compared: str
    why: str = ""


@dataclass(frozen=True)
class Evidence:
    """A parsed proof: its purpose, the trained claims, and the files by hash.

    `benchmark` has the calibrated runs of the verdict. `logs` is None without the files.
    """

    proof: Proof
    purpose: Purpose
    benchmark: Benchmark
    claims: Sequence[Claim]
    logs: Logs | None

    def plan(self) -> list[Training]:
        """Plan the trainings again from the nonce. Raises RuleError if that is impossible."""
        draw = self.proof.draw
        if not NONCE.fullmatch(draw.nonce):
            raise RuleError("no nonce", field="draw.nonce", expected="64 hex digits")
        if len(self.claims) != self.purpose.claims:
            found = count_text(len(self.claims), "submission")
            raise RuleError(found, field="submission.against", expected=f"{self.purpose.claims}")
        unable = self.purpose.why_not(self.benchmark, self.claims)
        if unable is not None:
            raise RuleError(unable, field="submission", expected=f"a {self.purpose.name}")
        wishes = {"pairs": len(draw.seeds) // 2}
        if not self.proof.submission.logs:  # The reference has as many runs as are wanted.
            wishes["runs"] = len(draw.seeds)
        nonce = bytes.fromhex(draw.nonce)
        request = Request(self.benchmark, nonce, claims=self.claims, wishes=wishes)
        return self.purpose.plan(request)

    def own_seeds(self) -> list[int]:
        """Draw the claim's seeds, which earlier versions trained first, by the nonce."""
        if self.claims[0].trained_with != "reference":
            return []
        nonce, count = bytes.fromhex(self.proof.draw.nonce), self.proof.draw.own_runs
        claimed = {run.seed for run in self.proof.submission.runs if run.seed is not None}

        def place(seed: int) -> bytes:
            return hashlib.sha256(b"finishline own" + nonce + seed.to_bytes(4, "big")).digest()

        return sorted((s for s in claimed if 0 <= s <= MAX_TRAINED_SEED), key=place)[:count]

    def curves(self) -> list[list[Evaluation]]:
        """Return the claimed curve of each run. Raises RuleError if one is missing."""
        submission = self.proof.submission
        _require("submission.curves", len(submission.curves), len(submission.runs))
        return [[evaluation_of(row) for row in curve] for curve in submission.curves]

    def contest(self) -> Contest | None:
        """Return the contest, if it is a head-to-head."""
        told = self.proof.plan.contest
        if told is None:
            return None
        pairs = self.benchmark.ranking.pairs
        return Contest(pairs, told.threshold, told.earlier, told.spread)

    def report(self) -> ReplayReport | None:
        """Return the report, which a finished verification must have. Raises RuleError."""
        done, found = self.proof.verification.state == "done", self.proof.report
        if done != (found is not None):
            expected = "one only if it is done"
            raise RuleError("no report" if done else "a report", field="report", expected=expected)
        return found

    def file(self, sha256: str, name: str) -> bytes:
        """Return a file of the bundle. Raises RuleError if it is missing."""
        if self.logs is None or sha256 not in self.logs:
            raise RuleError("not in the bundle", file=name, expected=f"logs/{sha256}")
        return self.logs[sha256]


def check_proof(document: Mapping[str, Any], logs: Logs | None) -> list[Check]:
    """Check a bundle except its signature. `logs` holds its files by hash, None without.

    A document of another kind fails only the first check, "format".
    """
    compared = "every field of the document"
    try:
        proof = read_part(Proof, document)
    except RuleError as error:
        return [Check("format", "fail", compared, str(error))]
    checks = [
        Check("format", "pass", compared),
        _make("parts", "SHA-256 of each part", lambda: _check_parts(document, proof)),
        _make("definition", "benchmark text and its SHA-256", lambda: _check_definition(proof)),
    ]
    if checks[-1].result == "fail":
        return checks
    evidence = _read(proof, logs)
    return checks + [
        _make(name, compared, partial(make, evidence))
        for name, kinds, compared, make in _steps(proof)
        if proof.kind in kinds
    ]


# Says why it is open, or None, and raises RuleError if it fails.
Making = Callable[[Evidence], str | None]
CODE = ("entry", "head_to_head")
EVERY = ("replay", *CODE)


def _steps(proof: Proof) -> list[tuple[str, tuple[str, ...], str, Making]]:
    """List the checks after "definition": name, kinds of proofs that have it, compared values."""
    draw, report = proof.draw, proof.report
    runs = "no report" if report is None else count_text(len(report.runs), "run")
    files = f"{count_text(len(proof.submission.logs), 'log')} and the claim"
    if proof.kind in CODE:
        files = "the index of each code submission"
    points = count_text(len(proof.plan.control_points), "control point")
    seeds = count_text(len(draw.seeds), "seed")
    return [
        ("logs", EVERY, f"SHA-256 of {files}", _check_logs),
        ("score", ("replay",), "result scored again from the logs", _check_score),
        ("package", CODE, "the files' names, sizes and hashes against each code submission's hash",
         _check_package),
        ("seal", EVERY, f"{seeds} and nonce against the seal", _check_seal),
        ("seeds", EVERY, f"{count_text(draw.runs, 'run')} and seeds drawn again from the nonce",
         _check_seeds),
        ("calibration", ("replay",), "the runs of the reference that judged, against the seal",
         _check_beside),
        ("band", ("replay",), f"{points} computed again", _check_band),
        ("runs", EVERY, f"every secret seed reported, in order: {runs}", _check_runs),
        ("times", EVERY, "seconds against the ledger of every evaluation", _check_times),
        ("posted", EVERY, "every evaluation as it was posted, by the server's clock",
         _check_posted),
        ("curves", ("replay",), "each run against the others, the calibrated and the claimed",
         _check_curves),
        ("attempts", EVERY, f"number of attempts ({len(proof.attempts)}) and how each ended",
         _check_attempts),
        ("verdict", EVERY, "outcome, reasons and numbers judged again", _check_verdict),
    ]  # fmt: skip


def _make(name: str, compared: str, make: Callable[[], str | None]) -> Check:
    try:
        why = make()
    except (RuleError, ValidationError) as error:
        return Check(name, "fail", compared, str(error))
    return Check(name, "pass" if why is None else "open", compared, why or "")


def _read(proof: Proof, logs: Logs | None) -> Evidence:
    benchmark = _read_definition(proof)
    if proof.calibration is not None:
        benchmark = calibrated_by(benchmark, proof.calibration.runs)
    claims = [
        Claim(
            benchmark_id=proof.benchmark.id,
            division=side.division,
            **vars(side.claim),
            run_files=tuple(log.file for log in side.logs),
            package=side.claim_sha256 if side.claim.trained_with == "package" else None,
            deterministic=bool(proof.draw.beside.get(REPEAT)),
        )
        for side in proof.sides
    ]
    return Evidence(proof, PURPOSES[proof.kind], benchmark, claims, logs)


def _read_definition(proof: Proof) -> Benchmark:
    text = proof.benchmark.definition.encode()
    return read_benchmark(text, file=f"{proof.benchmark.id}.toml")


def _check_parts(document: Mapping[str, Any], proof: Proof) -> None:
    found = part_hashes(document)
    wrong = [name for name in PARTS if proof.parts.get(name) != found[name]]
    if wrong or set(proof.parts) != set(PARTS):
        named = ", ".join(wrong) or "parts"
        raise RuleError(f"changed since it was hashed: {named}", expected="the hashes in `parts`")


def _check_definition(proof: Proof) -> None:
    found = hashlib.sha256(proof.benchmark.definition.encode()).hexdigest()
    if found != proof.benchmark.sha256:
        raise RuleError(f"the text has {found[:16]}…", expected=f"{proof.benchmark.sha256[:16]}…")
    _read_definition(proof)  # It has the id that the proof names.


def _check_logs(evidence: Evidence) -> str | None:
    """Check that the bundle has exactly the files of the claim, unchanged."""
    submission, logs = evidence.proof.submission, evidence.logs
    if logs is None:
        return WITHOUT_LOGS
    wanted = {submission.claim_sha256: "the claim"}
    if submission.against is not None:
        wanted[submission.against.claim_sha256] = "the holder's claim"
    wanted |= {log.sha256: log.file for log in submission.logs}
    for sha256, name in wanted.items():
        if hashlib.sha256(evidence.file(sha256, name)).hexdigest() != sha256:
            raise RuleError("its bytes differ from the upload", file=name, expected=sha256)
    more = sorted(set(logs) - set(wanted))
    if more:
        raise RuleError(f"logs/{more[0]} belongs to no run", expected="the files of the claim only")
    for log in submission.logs:
        size = len(logs[log.sha256])
        if size != log.size_bytes:
            expected = count_text(log.size_bytes, "byte")
            raise RuleError(count_text(size, "byte"), file=log.file, expected=expected)
    return None


def _check_package(evidence: Evidence) -> str | None:
    """Check that the index of the files of each code submission hashes to the trained code."""
    if evidence.logs is None:
        return WITHOUT_LOGS
    for side in evidence.proof.sides:
        sha256 = side.claim_sha256
        if side.claim.trained_with != "package":
            continue
        index = INDEX.validate_json(evidence.file(sha256, "the claim"), strict=True)
        if sha256_of(index) != sha256:
            raise RuleError("not the canonical index", file=f"logs/{sha256}", expected=sha256)
    return None


class Figures(Part, extra="ignore"):
    """Figures of a result from its logs. Earlier rules lack raw time and convergence.

    Words and the interval are left out, because later code may change them.
    """

    clock: str
    started: int
    reached: int
    tta_seconds: float | None
    cv_percent: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    best_quality: float | None
    evaluation_interval_seconds: float | None
    raw_tta_seconds: float | None = None
    rcp: Table | None = None
    violations: list[Table]


def _check_score(evidence: Evidence) -> str | None:
    """Check that the claim and its logs, scored again, give the stored claim, runs and result."""
    if evidence.logs is None:
        return WITHOUT_LOGS
    submission, benchmark = evidence.proof.submission, evidence.benchmark
    if not submission.logs:
        return "the reference claims no runs"
    scored = score_submission(
        evidence.file(submission.claim_sha256, "the claim"),
        {log.file: evidence.file(log.sha256, log.file) for log in submission.logs},
        {benchmark.benchmark_id: benchmark},
        benchmark_id=benchmark.benchmark_id,
        division=submission.division,
        archive=True,
    )
    for name in ("model", "framework", "precision", "hyperparameters", "system"):
        stored, found = getattr(submission.claim, name), getattr(scored.claim, name)
        _require(f"claim.{name}", stored, dict(found) if isinstance(stored, dict) else found)
    if isinstance(scored.result, InferenceResult):
        raise RuleError("an inference entry", expected="a submission with runs")
    _compare_result(submission.result, scored.result)
    for waiver in submission.waivers:
        rule = waiver.get("rule")
        if rule not in WAIVABLE:
            expected = f"one of {', '.join(WAIVABLE)}"
            raise RuleError(f"a waiver of {shown(rule)}", expected=expected)
    _require("runs", len(submission.runs), len(scored.result.runs))
    _require("curves", len(submission.curves), len(scored.runs))
    for index, (kept, run) in enumerate(zip(submission.runs, scored.result.runs, strict=True)):
        curve = [tuple(curve_row(each)) for each in scored.runs[index].evaluations]
        _require(f"runs[{index}].curve", submission.curves[index], curve)
        for name in RUN_FIGURES:
            _require(f"runs[{index}].{name}", getattr(kept, name), getattr(run, name))
    return None


def _compare_result(stored: Table, scored: Result) -> None:
    kept = Figures.model_validate_json(json.dumps(stored))
    stored_codes = sorted(str(each.get("code")) for each in kept.violations)
    codes = sorted(each.code for each in scored.violations)
    _require("result.violations", stored_codes, codes)
    for name in kept.model_fields_set - {"violations", "rcp"}:
        _require(f"result.{name}", getattr(kept, name), getattr(scored, name))
    if "rcp" in kept.model_fields_set:
        for name in RCP_FIGURES:
            theirs, ours = (kept.rcp or {}).get(name), getattr(scored.rcp, name, None)
            _require(f"result.rcp.{name}", theirs, ours)


def _check_seal(evidence: Evidence) -> None:
    """Check that the seal is the hash of benchmark, submission, seeds, nonce and `beside`."""
    draw, submission_id = evidence.proof.draw, evidence.proof.submission.id
    _require("draw.seeds", len(draw.seeds), draw.runs)
    sealed = Draw(seeds=tuple(draw.seeds), nonce=draw.nonce)
    beside = draw.beside | ({"own_runs": draw.own_runs} if draw.own_runs else {})
    if seal(evidence.benchmark, submission_id, sealed, beside=beside) != draw.seal:
        raise RuleError(
            "benchmark, submission, seeds and nonce do not hash to it",
            field="draw.seal",
            expected=draw.seal,
        )


def _check_seeds(evidence: Evidence) -> None:
    """Check that the nonce draws the secret seeds, as many as there were runs."""
    _check_seal(evidence)
    if evidence.proof.kind in CODE:
        _check_beside(evidence)
    secret = [training.seed for training in evidence.plan()]
    own = evidence.own_seeds()
    _require("draw.own_runs", evidence.proof.draw.own_runs, len(own))
    _require("draw.seeds", evidence.proof.draw.seeds, own + secret)


def _check_beside(evidence: Evidence) -> None:
    """Check that exactly the purpose's fields were sealed with the seeds."""
    proof, against = evidence.proof, evidence.proof.submission.against
    sealed: dict[str, Any] = {}
    if proof.calibration is not None:
        sealed |= judged_beside(proof.calibration.id, evidence.benchmark)
    if against is not None:
        sealed["against"] = against.id
    wanted = beside_of(evidence.purpose, evidence.plan(), sealed)
    _require("draw.beside", proof.draw.named_beside, wanted)


def _check_band(evidence: Evidence) -> None:
    """Check that the control points come from the calibrated runs in the definition."""
    draw, found = evidence.proof.draw, evidence.proof.plan.control_points
    runs = max(1, len(draw.seeds) - draw.own_runs)
    wanted = band_for(evidence.benchmark, evidence.claims[0], runs=runs)
    _require("plan.control_points", len(found), len(wanted))
    for index, (theirs, ours) in enumerate(zip(found, wanted, strict=True)):
        for name, number in vars(ours).items():
            _require(f"plan.control_points[{index}].{name}", getattr(theirs, name), number)


def _check_runs(evidence: Evidence) -> str | None:
    """Check that every sealed run is reported, in order, and second halves where they judge."""
    report = evidence.report()
    if report is None:
        return NO_REPORT
    two_clocks = evidence.proof.kind not in CODE
    check_report(report, seeds=evidence.proof.draw.seeds, two_clocks=two_clocks)
    for run in report.runs:
        check_second_halves(run, evidence.benchmark)
    return None


def _check_times(evidence: Evidence) -> str | None:
    """Check that times are the ledger on the benchmark's clock, also the time to the target."""
    report, benchmark = evidence.report(), evidence.benchmark
    if report is None:
        return NO_REPORT
    for run in report.runs:
        check_ledgers(run, benchmark.clock, division=evidence.proof.submission.division)
        reached = evaluation_at_target(benchmark, run)
        found, wanted = run.tta_seconds, reached.seconds if reached is not None else None
        if run.status != "reached":
            continue
        if found is None or wanted is None or abs(found - wanted) > TOLERANCE_SECONDS:
            field = f"report.runs[{run.index}].tta_seconds"
            raise RuleError(f"{found}", field=field, expected=f"{wanted}")
    return None


def _check_posted(evidence: Evidence) -> str | None:
    """Check that the report is as posted, and as long as by the server's clock.

    A server may allow a busy machine more than the rule does: then the check is open.
    """
    report, attempts = evidence.proof.report, evidence.proof.attempts
    if report is None:
        return NO_REPORT
    posted = attempts[-1].posted if attempts else None
    if posted is None:
        raise RuleError("missing", field="attempts.posted", expected="when each event was posted")
    clock, allowed = evidence.benchmark.clock, attempts[-1].clock_slack_seconds
    try:
        check_stream(report, posted, clock)
    except RuleError:
        if allowed is None or allowed <= CLOCK_SLACK_SECONDS:
            raise
        check_stream(report, posted, clock, slack_seconds=allowed)
        return f"posted within {allowed:g} s, which its server allows, not within " + (
            f"{CLOCK_SLACK_SECONDS:g} s"
        )
    return None


def _check_curves(evidence: Evidence) -> str | None:
    """Check that all replays differ from each other, the calibrated curves and the claim's."""
    report = evidence.proof.report
    if report is None:
        return NO_REPORT
    claimed = [
        KnownCurve(f"the claim's {run.file}", run.seed, tuple(each.quality for each in curve))
        for run, curve in zip(evidence.proof.submission.runs, evidence.curves(), strict=True)
    ]
    check_curves(report, [*calibrated_curves(evidence.benchmark), *claimed])
    return None


def _check_attempts(evidence: Evidence) -> None:
    """Check that only infrastructure failures were retried: others would hide bad replays."""
    proof, attempts = evidence.proof, evidence.proof.attempts
    if [attempt.number for attempt in attempts] != list(range(1, len(attempts) + 1)):
        raise RuleError("attempts are missing", expected="attempts numbered from 1 without a gap")
    if not attempts or len(attempts) > proof.plan.max_attempts:
        most = count_text(proof.plan.max_attempts, "attempt")
        raise RuleError(count_text(len(attempts), "attempt"), expected=f"1 to {most}")
    for attempt in attempts[:-1]:
        kind = attempt.failure.kind if attempt.failure is not None else None
        if attempt.state not in ("lost", "failed") or kind != MAY_BE_TRIED_AGAIN:
            raise RuleError(
                f"attempt {attempt.number} was tried again after {kind or attempt.state}",
                expected=f"another attempt only after a failure of kind {MAY_BE_TRIED_AGAIN}",
            )
    last, wanted = attempts[-1], LAST_STATES[proof.verification.state]
    if last.state not in wanted:
        expected = f"{' or '.join(wanted)} at the end"
        raise RuleError(f"attempt {last.number} is {last.state}", expected=expected)


def _check_verdict(evidence: Evidence) -> str | None:
    """Check that claims and report give the same outcome, reasons and numbers by the rules.

    Words are left out: later code may put them better. A verdict of earlier rules, which compared
    seeds of the claim too, is open.
    """
    proof, report, found = evidence.proof, evidence.report(), evidence.proof.verdict
    if report is None:
        wanted = "inconclusive" if proof.verification.state == "failed" else None
        _require("verdict.outcome", found.outcome, wanted)
        return None
    if proof.draw.own_runs:
        return f"judged by the rules of {proof.code.version}, which these no longer are"
    case = Case(
        evidence.benchmark,
        evidence.plan(),
        report,
        claim=evidence.claims[0],
        runs=proof.submission.runs,
        curves=evidence.curves(),
        contest=evidence.contest(),
    )
    again = evidence.purpose.judge(case)
    if again is None:
        raise RuleError("a verdict", field="verdict", expected="none without a claim")
    own = [reason for reason in found.reasons if reason.code not in OF_WORKERS]
    others = [reason for reason in found.reasons if reason.code in OF_WORKERS]
    is_opened = any(reason.weight == "leaves_open" for reason in others)
    _require("verdict.outcome", found.outcome, "inconclusive" if is_opened else again.outcome)
    codes = [reason.code.replace("duel_", "head_to_head_") for reason in own]  # Earlier names.
    _require("verdict.reasons", codes, [reason.code for reason in again.reasons])
    for index, (theirs, ours) in enumerate(zip(own, again.reasons, strict=True)):
        field = f"verdict.reasons[{index}]"
        _require(f"{field}.weight", theirs.weight, ours.weight)
        _require(f"{field}.numbers", sorted(theirs.numbers), sorted(ours.numbers))
        for name, number in ours.numbers.items():
            _require(f"{field}.numbers.{name}", theirs.numbers[name], number)
    return None


def _require(field: str, found: Any, wanted: Any) -> None:
    """Raise RuleError unless both are equal, where numbers may differ in their last digits."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        is_equal = found is wanted
    elif isinstance(found, int | float) and isinstance(wanted, int | float):
        limit = RELATIVE_TOLERANCE * max(abs(found), abs(wanted))
        is_equal = abs(found - wanted) <= limit
    else:
        is_equal = bool(found == wanted)
    if not is_equal:
        raise RuleError(f"got {found!r}", field=field, expected=f"{wanted!r}")
