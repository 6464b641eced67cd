"""Check that a proof's entry follows from its package, its seal and its stream."""

import json

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.proof.proof import Proof
from finishline.rules.proof.replay import (
    NO_REPORT,
    check_verdict_again,
    open_seal,
    report_of,
    sealed_fresh_runs,
)
from finishline.rules.proof.score import WITHOUT_LOGS, Logs
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.entry import judge_entry, plan_entry
from finishline.rules.verification.job import Case, Request
from finishline.rules.verification.messages import Training
from finishline.rules.verification.replay_plan import FRESH_RUNS
from finishline.rules.verification.report_check import check_report, check_second_halves


def check_package(proof: Proof, logs: Logs | None) -> str | None:
    """The index of the files of each package hashes to the package that was trained."""
    if logs is None:
        return WITHOUT_LOGS
    for side in (proof.submission, proof.submission.against):
        if side is not None:
            _check_index(logs[side.claim_sha256], side.claim_sha256)
    return None


def _check_index(content: bytes, sha256: str) -> None:
    index = json.loads(content)
    if sha256_of(index) != sha256:
        raise RuleError("not the canonical index", file=f"logs/{sha256}", expected=sha256)
    for name, size, digest in index:
        if not (isinstance(name, str) and isinstance(size, int) and len(str(digest)) == 64):
            raise RuleError("not a name, a size and a hash", file=f"logs/{sha256}")


def check_plan(proof: Proof, benchmark: Benchmark, claim: Claim) -> str | None:
    """The nonce draws the sealed seeds, as many as the benchmark or the fresh runs ask for."""
    open_seal(proof, benchmark)
    seeds = [training.seed for training in _planned(proof, benchmark, claim)]
    if seeds != proof.draw.seeds:
        raise RuleError(
            f"got {proof.draw.seeds}", field="draw.seeds", expected=f"{seeds} by the nonce"
        )
    return None


def check_entry_runs(proof: Proof, benchmark: Benchmark) -> str | None:
    """Every run that was sealed is reported, in order, with its seed; none is left out.

    Nor is the second half of an evaluation, where the benchmark judges by it.
    """
    report = report_of(proof)
    if report is None:
        return NO_REPORT
    check_report(report, seeds=proof.draw.seeds, two_clocks=False)
    for run in report.runs:
        check_second_halves(run, benchmark)
    return None


def check_entry_verdict(proof: Proof, benchmark: Benchmark, claim: Claim) -> str | None:
    """The report gives the same outcome, reasons and numbers by the rules."""
    report = report_of(proof)
    if report is None:
        check_verdict_again(proof, None)
        return None
    trainings = _planned(proof, benchmark, claim)
    check_verdict_again(proof, judge_entry(Case(benchmark, trainings, report, claim=claim)))
    return None


def _planned(proof: Proof, benchmark: Benchmark, claim: Claim) -> list[Training]:
    fresh = sealed_fresh_runs(proof)
    wishes = {} if fresh is None else {FRESH_RUNS: fresh}
    entropy = bytes.fromhex(proof.draw.nonce)
    return plan_entry(Request(benchmark, entropy, claims=[claim], wishes=wishes))
