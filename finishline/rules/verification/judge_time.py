"""Set the measured time beside the claimed one, on the same hardware class only.

The ranked time is the measured one, so a slower replay is reported and never rejects.
"""

import math
from collections.abc import Sequence

from finishline.rules.benchmarks.benchmark import Benchmark, ReplayPolicy
from finishline.rules.scoring.aggregate import (
    mean,
    olympic_mean,
    olympic_weight,
    standard_deviation,
)
from finishline.rules.scoring.measured_time import Spread, interval_of, measured_seconds
from finishline.rules.scoring.measurements import QUIET_CPU_SHARE
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.statistics.significance import SHORTEST_SECONDS, slower_than_claimed
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.verdict import Reason


def judge_time(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Compare the sealed runs' time with the claim's, or say why it was not compared.

    `policy.time_tolerance` is how much more a run may take on another machine of the class; beyond
    it and beyond chance (p < alpha) the claim is flagged as slower than claimed.
    """
    if claim.trained_with == "own":
        message = "time was not compared: the claim was trained with code of its own"
        return [Reason("time_not_compared", "note", message)]
    why = why_not_timed(report, hardware_class=claim.system.hardware_class)
    if why is not None:
        return [why]
    dropped = benchmark.runs.dropped
    claimed_times = [run.tta_seconds for run in counted]
    claimed = olympic_mean(claimed_times, dropped=dropped) if len(counted) > 2 * dropped else None
    replayed = [
        run.tta_seconds
        for run in report.runs
        if run.tta_seconds is not None and evaluation_at_target(benchmark, run) is not None
    ]
    tolerated = 1 + policy.time_tolerance
    test = None
    if claimed is not None:
        test = slower_than_claimed(
            replayed,
            claimed,
            claimed_runs=[time for time in claimed_times if time is not None],
            weight=olympic_weight(len(counted), dropped=dropped),
            tolerated_ratio=tolerated,
        )
    if claimed is None or test is None:
        message = "time was not compared: that takes a claimed time and two replays"
        return [Reason("time_not_compared", "note", message)]
    numbers = {
        "claimed_seconds": claimed,
        "replayed_mean_seconds": mean(replayed),
        "ratio": test.ratio,
        "tolerated_ratio": tolerated,
        "p_value": test.p_slower,
    }
    words = f"claimed {claimed:.3g} s, measured here {_measured(replayed)}"
    if test.p_slower < policy.alpha:
        return [Reason("slower_than_claimed", "note", words, numbers)]
    return [Reason("time_agrees", "supports", words, numbers)]


def why_not_timed(report: ReplayReport, *, hardware_class: str) -> Reason | None:
    """Reason why a report's times do not count on a claim's hardware class; None if they do."""
    ours = report.system.hardware_class
    if ours != hardware_class:
        message = (
            f"time was not compared: the claim was made on {hardware_class}, the replay on {ours}"
        )
        return Reason("hardware_differs", "note", message)
    if report.drift is not None:
        message = f"time was not compared: the worker was {report.drift}"
        return Reason("worker_drifted", "note", message)
    share = _cpu_share(report)
    if share < QUIET_CPU_SHARE:
        message = "time was not compared: the worker's processor was shared with other work"
        numbers = {"cpu_share": share, "needed": QUIET_CPU_SHARE}
        return Reason("noisy_host", "note", message, numbers)
    return None


def _measured(seconds: Sequence[float]) -> str:
    found = measured_seconds(seconds)
    if found is None:
        return f"{mean(seconds):.3g} s"
    logs = [math.log(max(each, SHORTEST_SECONDS)) for each in seconds]
    spread = Spread(standard_deviation(logs, ddof=1), len(logs) - 1)
    interval = interval_of(found, runs=len(seconds), spread=spread)
    between = f" ({interval.low:.3g} to {interval.high:.3g})" if interval is not None else ""
    return f"{found:.3g} s{between}"


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
