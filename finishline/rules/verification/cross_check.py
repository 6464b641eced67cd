"""Independent reruns: a second training of one seed, and two verifications of one submission."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.statistics.aggregate import mean
from finishline.rules.statistics.gaps import two_sided_p
from finishline.rules.verification.job import Case, Draw, Purpose, Request, Words
from finishline.rules.verification.judge import why_not_timed
from finishline.rules.verification.judge_convergence import (
    Curve,
    evaluation_at_target,
    evaluations_of,
)
from finishline.rules.verification.messages import ReplayReport, ReplayRun, Training
from finishline.rules.verification.replay import train_as_claimed
from finishline.rules.verification.verdict import Outcome, Verdict

# Fewer common evaluations tell no two seeds apart.
FEWEST_COMMON = 3


def curve_distance(first: Curve, second: Curve) -> float | None:
    """Root mean square difference of two curves over common epochs, None below three of them."""
    other = {item.epoch: item.quality for item in second if item.epoch is not None}
    gaps = [item.quality - other[item.epoch] for item in first if item.epoch in other]
    if len(gaps) < FEWEST_COMMON:
        return None
    return float((sum(gap**2 for gap in gaps) / len(gaps)) ** 0.5)


ORGANISERS_SHARE = 10  # One run in so many of an organisers' worker.
PACE_SHARE = 0.05
PACE_SECONDS = 0.25


@dataclass(frozen=True)
class Agreement:
    """Whether two trainings of one seed agree in quality, and in time at one evaluation."""

    agrees: bool
    paced: bool


def drawn_runs(nonce: str, report: object, *, among: Sequence[int], organisers: bool) -> list[int]:
    """The indexes of the runs to train again: a function of the opened nonce and the report.

    That is one run of every report, or one in ten runs of an organisers' worker. A worker can't
    foresee it, because it doesn't know the nonce.
    """
    if not among:
        return []
    seed = bytes.fromhex(nonce) + bytes.fromhex(sha256_of(report))
    if not organisers:
        return [among[_number(seed, 0) % len(among)]]
    return [index for index in among if _number(seed, index) % ORGANISERS_SHARE == 0]


def _number(seed: bytes, index: int) -> int:
    digest = hashlib.sha256(b"finishline cross-check" + seed + index.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big")


def compare_runs(run: ReplayRun, other: ReplayRun, *, limit: float | None) -> Agreement | None:
    """Compare the curves and the pace of two trainings of one seed.

    Curves agree within `limit`, the distance that calibrations measured for equal seeds. Without it
    only the pace is compared, which agrees within 5 % and 0.25 s at the last common evaluation. A
    run that missed the target ends no earlier than the other. None below three common evaluations.
    """
    distance = curve_distance(evaluations_of(run), evaluations_of(other))
    if distance is None:
        return None
    times = {item.epoch: item.seconds for item in other.evaluations}
    common = (item for item in reversed(run.evaluations) if item.epoch in times)
    seconds, other_seconds = next((item.seconds, times[item.epoch]) for item in common)
    most = PACE_SHARE * max(seconds, other_seconds) + PACE_SECONDS
    return Agreement(
        (limit is None or distance <= limit)
        and not _stops_short(run, other)
        and not _stops_short(other, run),
        abs(seconds - other_seconds) <= most,
    )


def _stops_short(run: ReplayRun, other: ReplayRun) -> bool:
    return run.status != "reached" and len(run.evaluations) < len(other.evaluations)


def plan_cross_check(request: Request) -> list[Training]:
    """One finished run again, from its `seed`."""
    drawn = Draw(seeds=(request.wishes["seed"],), nonce=request.entropy.hex())
    return train_as_claimed(request, drawn, "tta", "profile")


def agree(benchmark: Benchmark, first: ReplayReport, second: ReplayReport) -> Outcome:
    """Whether a report of one run agrees with another of its seed.

    The pace of a busy worker contradicts nobody. If the first was busy, its time doesn't count, and
    the curve is enough. If the second was busy, it confirms no time of another pace.
    """
    run = second.runs[0]
    other = next(item for item in first.runs if item.seed == run.seed)
    policy = benchmark.replay
    found = compare_runs(other, run, limit=None if policy is None else policy.equal_seed_distance)
    if found is None:
        return "inconclusive"
    ours = second.system.hardware_class
    first_timed, second_timed = (
        why_not_timed(each, hardware_class=ours) is None for each in (first, second)
    )
    if not found.agrees or (first_timed and second_timed and not found.paced):
        return "rejected"
    return "verified" if found.paced or not first_timed else "inconclusive"


def judge_cross_check(case: Case) -> Verdict:
    """Whether the run and the precision audit agree with the report that is checked."""
    if case.checked is None:
        raise ValueError("a cross-check without a report to check")
    outcome = agree(case.benchmark, case.checked, case.report)
    audits = [report.precision for report in (case.checked, case.report)]
    found = {audit.lowest for audit in audits if audit is not None and audit.lowest is not None}
    return Verdict("rejected" if outcome == "verified" and len(found) > 1 else outcome, ())


@dataclass(frozen=True)
class ReplayFigures:
    """One replay: seconds and epochs to the target, None if it did not reach it."""

    index: int
    seed: int
    status: str
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None


@dataclass(frozen=True)
class Difference:
    """A figure's means in both verifications, and the two-sided p-value of Welch's t-test on logs.

    `comparable` is false for times on different hardware classes.
    """

    figure: str
    first_mean: float | None
    second_mean: float | None
    ratio: float | None
    p_value: float | None
    comparable: bool


@dataclass(frozen=True)
class SystemDifference:
    """A line in which the systems of two replays differ."""

    field: str
    first: str | None
    second: str | None


def figures_of(benchmark: Benchmark, report: ReplayReport) -> list[ReplayFigures]:
    """Figures of each replay of a report."""
    best = max if benchmark.target.direction == "higher" else min
    found = []
    for run in report.runs:
        at = evaluation_at_target(benchmark, run)
        seconds, epochs = (None, None) if at is None else (run.tta_seconds, at.epoch)
        quality = best((item.quality for item in run.evaluations), default=None)
        found.append(ReplayFigures(run.index, run.seed, run.status, seconds, epochs, quality))
    return found


def compare_replays(
    benchmark: Benchmark, first: ReplayReport, second: ReplayReport
) -> list[Difference]:
    """Times and epochs to the target of two reports, over the replays that reached it."""
    same_class = first.system.hardware_class == second.system.hardware_class
    sides = [figures_of(benchmark, report) for report in (first, second)]
    found = []
    for figure, comparable in (("tta_seconds", same_class), ("epochs_to_target", True)):
        values = [[getattr(run, figure) for run in side] for side in sides]
        left, right = ([value for value in side if value is not None] for side in values)
        first_mean, second_mean = (mean(side) if side else None for side in (left, right))
        ratio = first_mean / second_mean if first_mean is not None and second_mean else None
        p_value = two_sided_p(left, right) if comparable else None
        found.append(Difference(figure, first_mean, second_mean, ratio, p_value, comparable))
    return found


def compare_systems(first: ReplayReport, second: ReplayReport) -> list[SystemDifference]:
    """Hardware, threads and package versions in which two workers differ."""
    left, right = _flat(first), _flat(second)
    return [
        SystemDifference(field, left.get(field), right.get(field))
        for field in sorted({*left, *right})
        if left.get(field) != right.get(field)
    ]


def _flat(report: ReplayReport) -> Mapping[str, str]:
    table = asdict(report.system)
    software = table.pop("software")
    table["nodes"] = ", ".join(node["name"] for node in table["nodes"]) or None
    flat = {name: str(value) for name, value in table.items() if value is not None}
    return flat | {f"software.{name}": str(value) for name, value in software.items()}


CROSS_CHECK = Purpose(
    name="cross_check",
    plan=plan_cross_check,
    judge=judge_cross_check,
    why_not=lambda benchmark, claims: None,  # The run was trained before.
    unable="cannot be trained again",
    words=Words(
        to_do="repeat",
        doing="Repeating",
        endings={
            "verified": "Another owner's worker reproduced the run.",
            "rejected": "Another owner's worker did not reproduce the run.",
            "": "The cross-check of {runs} is inconclusive.",
        },
        name="cross-check",
    ),
    claims=0,
)
