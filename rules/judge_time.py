"""Hold the claimed time against the replays, on the same hardware class only."""

from collections.abc import Sequence

from rules.aggregate import mean, olympic_mean, olympic_weight
from rules.benchmark import Benchmark, ReplayPolicy
from rules.claim import Claim
from rules.judge_convergence import evaluation_at_target
from rules.messages import ReplayReport
from rules.scoring import RunScore
from rules.significance import slower_than_claimed
from rules.verdict import TEST_SHARE_OF_ALPHA, Reason, rejects_in

QUIET_CPU_SHARE = 0.8


def judge_time(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Is the replay on the same hardware class slower than claimed, beyond tolerance and noise?

    A processor that was shared with other work can only slow a replay down: it excuses a slow one
    and takes nothing from one that was not slow.
    """
    if claim.system.hardware_class != report.system.hardware_class:
        return [
            Reason(
                "hardware_differs",
                "note",
                f"time was not compared: the claim was made on {claim.system.hardware_class}, "
                f"the replay on {report.system.hardware_class}",
            )
        ]
    dropped = benchmark.runs.dropped
    times = [run.tta_seconds for run in counted]
    claimed = olympic_mean(times, dropped=dropped) if len(times) > 2 * dropped else None
    replayed = [
        run.tta_seconds
        for run in report.runs
        if run.tta_seconds is not None and evaluation_at_target(benchmark, run) is not None
    ]
    slower = 1 + policy.time_tolerance
    test = (
        None
        if claimed is None
        else slower_than_claimed(
            replayed,
            claimed,
            claimed_runs=[seconds for seconds in times if seconds is not None],
            weight=olympic_weight(len(times), dropped=dropped),
            tolerated_ratio=slower,
        )
    )
    if test is None or claimed is None:
        return [
            Reason(
                "time_not_compared",
                "note",
                "time was not compared: that takes a claimed time and two replays",
            )
        ]
    numbers = {
        "claimed_seconds": claimed,
        "replayed_mean_seconds": mean(replayed),
        "ratio": test.ratio,
        "tolerated_ratio": slower,
        "p_value": test.p_slower,
    }
    if test.p_slower < policy.alpha * TEST_SHARE_OF_ALPHA:
        if _cpu_share(report) < QUIET_CPU_SHARE:
            return [_noisy_host(report)]
        return [
            Reason(
                "slower_than_claimed",
                rejects_in(claim.division),
                f"on the same hardware class the replay took {test.ratio:.2f} times the claimed "
                f"time, more than the tolerated {slower:.2f} and more than chance",
                numbers,
            )
        ]
    return [
        Reason(
            "time_agrees",
            "supports",
            f"on the same hardware class the replay took {test.ratio:.2f} times the claimed time",
            numbers,
        )
    ]


def _noisy_host(report: ReplayReport) -> Reason:
    return Reason(
        "noisy_host",
        "note",
        "time was not compared: the worker's processor was shared with other work",
        {"cpu_share": _cpu_share(report), "needed": QUIET_CPU_SHARE},
    )


def _cpu_share(report: ReplayReport) -> float:
    """Processor seconds per second of training; 1.0 on an accelerator, where it tells nothing."""
    if report.system.accelerator_count:
        return 1.0
    shares = [
        run.cpu_seconds / run.parent_seconds
        for run in report.runs
        if run.cpu_seconds is not None and run.parent_seconds
    ]
    return min(shares, default=1.0)
