"""Hold the claimed epochs to the target against calibration and replays."""

from collections.abc import Sequence

from rules.aggregate import olympic_mean, olympic_weight
from rules.benchmark import Benchmark, ReplayPolicy
from rules.claim import Claim
from rules.messages import ReplayReport, ReplayRun
from rules.reference_points import calibrated_epochs
from rules.replay_plan import batch_size_of, is_calibrated
from rules.run import Evaluation
from rules.scoring import RunScore
from rules.significance import Reference, lowest_mean, reference_of
from rules.tta import first_evaluation_at_target
from rules.verdict import TEST_SHARE_OF_ALPHA, Reason, rejects_in


def judge_convergence(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Does the claim converge faster than the calibrated runs and the replays together allow?

    In the open division the submitter's model may be another than the reference: there a claim
    that converges faster is not rejected, but left open.
    """
    dropped = benchmark.runs.dropped
    claimed = _claimed_epochs(counted, dropped=dropped)
    reached = [evaluation_at_target(benchmark, run) for run in report.runs]
    replayed = [e.epoch for e in reached if e is not None and e.epoch is not None]
    reference = _epochs_reference(benchmark, claim, replayed)
    if claimed is None or reference is None:
        return [
            Reason(
                "claim_has_no_time",
                "leaves_open",
                "there are no epochs to the target to compare on both sides",
            )
        ]
    test = lowest_mean(
        claimed,
        reference,
        weight=olympic_weight(len(counted), dropped=dropped),
        alpha=policy.alpha * TEST_SHARE_OF_ALPHA,
        quantum=_quantum(replayed),
    )
    numbers = {
        "claimed_mean_epochs": test.sample_mean,
        "reference_mean_epochs": reference.mean,
        "reference_stdev_epochs": reference.stdev,
        "reference_runs": float(reference.count),
        "lowest_mean_epochs": test.lowest,
    }
    if test.is_too_low:
        return [
            Reason(
                "converges_faster_than_replay",
                rejects_in(claim.division),
                f"the claim reaches the target after {test.sample_mean:.2f} epochs on average; "
                f"reference and replays need {reference.mean:.2f}, and a mean below "
                f"{test.lowest:.2f} is not chance",
                numbers,
            )
        ]
    return [
        Reason(
            "convergence_agrees",
            "supports",
            f"the claimed {test.sample_mean:.2f} epochs agree with {reference.mean:.2f} of "
            f"{reference.count} reference runs and replays (least allowed {test.lowest:.2f})",
            numbers,
        )
    ]


def _claimed_epochs(runs: Sequence[RunScore], *, dropped: int) -> float | None:
    """Olympic mean of the epochs to the target, None where a log does not tell.

    The least and the greatest are dropped as from the times: else one slow run, which costs the
    claim nothing, would make up for all the others.
    """
    if len(runs) <= 2 * dropped:
        return None
    if any(run.reached and run.epochs_to_target is None for run in runs):
        return None
    return olympic_mean([run.epochs_to_target for run in runs], dropped=dropped)


def _epochs_reference(
    benchmark: Benchmark, claim: Claim, replayed: Sequence[float]
) -> Reference | None:
    """Epochs to the target of the replays, with the calibrated runs of the same settings."""
    epochs = list(replayed)
    if is_calibrated(benchmark, claim):
        epochs += calibrated_epochs(benchmark, batch_size_of(benchmark, claim))
    return reference_of(epochs) if len(epochs) >= 2 else None


def _quantum(replayed: Sequence[float]) -> float:
    """Epochs between evaluations; the references evaluate after each epoch."""
    return 1.0 if replayed else 0.0


def evaluation_at_target(benchmark: Benchmark, run: ReplayRun) -> Evaluation | None:
    """Where a replay reached the target: by its evaluations, whatever else the worker says."""
    if run.status != "reached" or not run.evaluations:
        return None
    curve = [Evaluation(e.epoch, e.seconds, e.quality) for e in run.evaluations]
    return first_evaluation_at_target(curve, benchmark.target, benchmark.reach)
