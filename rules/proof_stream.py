"""Were the replays of a proof posted as they were measured, and are their curves their own?"""

from rules.benchmark import Benchmark
from rules.curve import evaluation_of
from rules.errors import RuleError
from rules.known_curves import KnownCurve, check_curves
from rules.proof import Proof
from rules.report_stream import CLOCK_SLACK_SECONDS, check_stream

NO_REPORT = "the verification ended without a report"
NOT_KEPT = "the proof does not hold when its evaluations were posted"


def check_posted(proof: Proof, benchmark: Benchmark) -> str | None:
    """The report is as it was posted, and by the server's clock it took as long as it says.

    A server may allow a busy machine more than the rule does: that is said, and is no pass.
    """
    if proof.report is None:
        return NO_REPORT
    last = proof.attempts[-1]
    if last.posted is None:
        return NOT_KEPT
    try:
        check_stream(proof.report, last.posted, benchmark.clock)
    except RuleError:
        allowed = last.clock_slack_seconds
        if allowed is None or allowed <= CLOCK_SLACK_SECONDS:
            raise
        check_stream(proof.report, last.posted, benchmark.clock, slack_seconds=allowed)
        return f"posted within {allowed:g} s, which its server allows, not within " + (
            f"{CLOCK_SLACK_SECONDS:g} s"
        )
    return None


def check_own_curves(proof: Proof, benchmark: Benchmark) -> str | None:
    """No two replays are equal, and none is a calibrated curve or one of the claim."""
    if proof.report is None:
        return NO_REPORT
    submission = proof.submission
    claimed = [
        KnownCurve(
            f"the claim's {run.file}",
            run.seed,
            tuple(evaluation_of(row).quality for row in curve),
        )
        for run, curve in zip(submission.runs, submission.curves, strict=True)
    ]
    check_curves(proof.report, [*calibrated_curves(benchmark), *claimed])
    return None


def calibrated_curves(benchmark: Benchmark) -> list[KnownCurve]:
    """The curves that a definition, or the calibration adopted for it, holds."""
    return [
        KnownCurve(f"the calibrated run with seed {run.seed}", run.seed, tuple(run.quality))
        for run in benchmark.reference_runs
    ]
