"""Hold the claimed pace against the replays, on the same hardware class only.

A claimed time is epochs to the target times seconds per epoch. The epochs are judged on any
hardware (rules.judge_convergence); here stands the other factor, which a machine sets alone: it
scatters less than the time, because how often a run was lucky does not enter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.aggregate import mean, olympic_mean, olympic_weight
from rules.benchmark import Benchmark, ReplayPolicy
from rules.claim import Claim
from rules.judge_convergence import evaluation_at_target
from rules.messages import ReplayReport
from rules.scoring import RunScore
from rules.significance import slower_than_claimed
from rules.verdict import SHARES, Reason, rejects_in

QUIET_CPU_SHARE = 0.8
# A claim that its replays contradict this plainly is not verified, even where none rejects it.
LEFT_OPEN_ALPHA = 0.05


@dataclass(frozen=True)
class Pace:
    """What is compared, in words, and its figures: one for the claim, one for each replay.

    `claimed` multiplied by the claim's epochs is its time, `claimed_seconds`: what is ranked.
    `claimed_runs` has the figure of each claimed run; `seconds` are the whole times of the replays.
    """

    unit: str
    claimed: float
    claimed_runs: Sequence[float]
    replayed: Sequence[float]
    claimed_seconds: float
    seconds: Sequence[float]


def judge_time(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Is the replay on the same hardware class slower than claimed, beyond tolerance and noise?

    `policy.time_tolerance` is how much more an epoch may take on another machine of the class.
    A processor that was shared with other work can only slow a replay down: it excuses a slow one
    as far as its own share of the time explains, and takes nothing from one that was not slow.
    What is slower than all that explains, and by less than rejects a claim, leaves it open.
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
    if report.drift is not None:
        message = f"time was not compared: the worker was {report.drift}"
        return [Reason("worker_drifted", "note", message)]
    pace = _pace_of(benchmark, counted, report)
    slower = 1 + policy.time_tolerance
    test = (
        None
        if pace is None
        else slower_than_claimed(
            pace.replayed,
            pace.claimed,
            claimed_runs=pace.claimed_runs,
            weight=olympic_weight(len(counted), dropped=benchmark.runs.dropped),
            tolerated_ratio=slower,
        )
    )
    if test is None or pace is None:
        return [
            Reason(
                "time_not_compared",
                "note",
                "time was not compared: that takes a claimed time and two replays",
            )
        ]
    numbers = _numbers(pace) | {
        "ratio": test.ratio,
        "tolerated_ratio": slower,
        "p_value": test.p_slower,
    }
    is_slower = test.p_slower < policy.alpha * SHARES.pace
    share = min(1.0, _cpu_share(report))
    if is_slower and share >= QUIET_CPU_SHARE:
        return [
            Reason(
                "slower_than_claimed",
                rejects_in(claim.division),
                f"{_took(test.ratio, pace)}, more than the tolerated {slower:.2f} and more than "
                "chance",
                numbers,
            )
        ]
    if test.p_slower < LEFT_OPEN_ALPHA and test.ratio * share > slower:
        return [_not_confirmed(_took(test.ratio, pace), numbers | {"cpu_share": share})]
    if is_slower:
        return [_noisy_host(report)]
    return [
        Reason(
            "time_agrees",
            "supports",
            f"{_took(test.ratio, pace)}{_within(test.ratio, slower)}",
            numbers,
        )
    ]


def _took(ratio: float, pace: Pace) -> str:
    return f"on the same hardware class the replay took {ratio:.2f} times the claimed {pace.unit}"


def _not_confirmed(took: str, numbers: dict[str, float]) -> Reason:
    share = numbers["cpu_share"]
    shared = f", of which other work explains {1 / share:.2f}" if share < QUIET_CPU_SHARE else ""
    return Reason(
        "time_not_confirmed",
        "leaves_open",
        f"{took}{shared}: more than the tolerated {numbers['tolerated_ratio']:.2f}, and too little "
        "is known to say that the claim is wrong",
        numbers,
    )


def _within(ratio: float, tolerated: float) -> str:
    if ratio <= tolerated:
        return ""
    return f": more than the tolerated {tolerated:.2f}, but not by more than chance may do"


def _pace_of(
    benchmark: Benchmark, counted: Sequence[RunScore], report: ReplayReport
) -> Pace | None:
    """Seconds for each epoch, of claim and replays; whole times where a run tells no epochs.

    The claimed pace is the ranked time over the mean of the whole epochs to the target, so that
    the two factors make the ranked time. A mean of the runs' own paces would leave out the
    fastest: a run of too few epochs and one of too few seconds each would pass, and the time of
    either be ranked. None where the claim has no time.
    """
    dropped = benchmark.runs.dropped
    if len(counted) <= 2 * dropped:
        return None
    times = [run.tta_seconds for run in counted]
    whole = olympic_mean(times, dropped=dropped)
    if whole is None:
        return None
    replays = [
        (run.tta_seconds, reached.epoch)
        for run in report.runs
        if run.tta_seconds is not None
        and (reached := evaluation_at_target(benchmark, run)) is not None
    ]
    seconds = [tta for tta, _ in replays]
    per_epoch = [_divided(run.tta_seconds, run.epochs_to_target) for run in counted]
    told = [pace for pace in per_epoch if pace is not None]
    epochs = olympic_mean([run.epochs_to_target for run in counted], dropped=dropped)
    is_told = len(told) == sum(time is not None for time in times)
    if not is_told or epochs is None or any(not e for _, e in replays):
        measured = [time for time in times if time is not None]
        return Pace("time", whole, measured, seconds, claimed_seconds=whole, seconds=seconds)
    return Pace(
        unit="seconds per epoch",
        claimed=whole / epochs,
        claimed_runs=told,
        replayed=[tta / epoch for tta, epoch in replays if epoch],
        claimed_seconds=whole,
        seconds=seconds,
    )


def _divided(seconds: float | None, epochs: float | None) -> float | None:
    return seconds / epochs if seconds is not None and epochs else None


def _numbers(pace: Pace) -> dict[str, float]:
    numbers = {
        "claimed_seconds": pace.claimed_seconds,
        "replayed_mean_seconds": mean(pace.seconds),
    }
    if pace.unit == "time":
        return numbers
    return numbers | {
        "claimed_seconds_per_epoch": pace.claimed,
        "replayed_seconds_per_epoch": mean(pace.replayed),
    }


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
