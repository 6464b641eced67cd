"""Speed-up: the benchmark's reference and a package in turn on one worker, paired by seed and data.

Both sides of a pair meet the same machine and load, so the ratio of their times compares across
hardware classes, where the times themselves do not.
"""

from collections.abc import Sequence
from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.statistics.gaps import Gap, gap_of_all
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.job import Case, Purpose, Request, Words
from finishline.rules.verification.judge import is_excused
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.judge_time import open_unless_timed
from finishline.rules.verification.messages import ReplayReport, Training
from finishline.rules.verification.paired import package_side, plan_in_turn
from finishline.rules.verification.verdict import Reason, Verdict

SpeedUpSide = Literal["reference", "package"]
SPEED_UP_SIDES: tuple[SpeedUpSide, SpeedUpSide] = ("reference", "package")


def side_of_run(index: int) -> SpeedUpSide:
    """Side that run `index` (from 0) trains: reference, package, package, reference, and again.

    Over two pairs both sides have the same mean place, so that a linear drift cancels.
    """
    return "reference" if index % 4 in (0, 3) else "package"


def plan_speed_up(request: Request) -> list[Training]:
    """Plan as many pairs as the benchmark wants runs, one more where that is odd.

    A pair has one seed and one draw of the data, drawn for it. Raises RuleError without a package
    or a reference.
    """
    unable = why_no_speed_up(request.benchmark, request.claims)
    policy = request.benchmark.trainings
    if unable is not None or policy is None or request.reference is None:
        raise RuleError(unable or "its reference is not known", expected="a reference package")
    sides = [package_side(request.reference), package_side(request.claims[0].package)]
    rounds = policy.runs + policy.runs % 2
    return plan_in_turn(request.entropy, sides, rounds=rounds, one_seed=True)


def seconds_of(benchmark: Benchmark, report: ReplayReport, side: SpeedUpSide) -> list[float | None]:
    """Seconds to the target of one side's runs, by pair; None for a run that missed it."""
    found = [
        evaluation_at_target(benchmark, run)
        for run in report.runs
        if side_of_run(run.index) == side
    ]
    return [None if each is None else each.seconds for each in found]


def measured_speed_up(benchmark: Benchmark, report: ReplayReport) -> Gap | None:
    """Seconds of the reference over the package's; None where a run of either side has no time."""
    sides = (seconds_of(benchmark, report, side) for side in SPEED_UP_SIDES)
    return gap_of_all(*sides, quantum=SHORTEST_SECONDS)


def judge_speed_up(case: Case) -> Verdict:
    """The speed-up with its interval; inconclusive if a run missed the target or has no time."""
    reasons = [_reason(case.benchmark, case.report)]
    made = [run for run in case.report.runs if not is_excused(run)]
    if len(made) < len(case.trainings):
        told = "not every pair was trained, for no fault of the package"
        reasons.append(Reason("infrastructure", "leaves_open", told))
    return Verdict.of([*reasons, *open_unless_timed(case)])


def _reason(benchmark: Benchmark, report: ReplayReport) -> Reason:
    found = measured_speed_up(benchmark, report)
    if found is None:
        return Reason("speed_up", "leaves_open", f"no speed-up: {_missed(benchmark, report)}")
    message = (
        f"the reference takes {found.ratio:#.3g} times the package's time to the target "
        f"(95 % {found.low:#.3g} to {found.high:#.3g}, {count_text(found.pairs, 'pair')})"
    )
    return Reason("speed_up", "supports", message, found.numbers)


def _missed(benchmark: Benchmark, report: ReplayReport) -> str:
    told = []
    for side in SPEED_UP_SIDES:
        seconds = seconds_of(benchmark, report, side)
        missed = sum(each is None for each in seconds)
        if missed:
            told.append(f"the {side} missed the target in {missed} of its {len(seconds)} runs")
    return ", ".join(told) or "too few pairs"


def why_no_speed_up(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """Reason why a claim has no speed-up over the reference; None if it can have one."""
    if benchmark.trainings is None:
        return f"{benchmark.benchmark_id} trains no packages"
    if claims[0].package is None:
        return "it is a claim with run logs, and a speed-up is of a training package"
    if not benchmark.trainings.has_reference:
        return f"{benchmark.benchmark_id} has no reference package to train beside it"
    return None


SPEED_UP = Purpose(
    name="speed_up",
    plan=plan_speed_up,
    judge=judge_speed_up,
    why_not=why_no_speed_up,
    unable="can have no speed-up measured",
    words=Words(
        to_do="train the reference and the package in turn in",
        doing="Training the reference and the package in turn in",
        endings={
            "verified": "Speed-up measured in {runs}, paired by seed and data.",
            "": "The speed-up over the reference is open after {runs}.",
        },
        about="train the reference and its package in turn on one worker, and compare their times",
        subject="the package",
        name="speed-up",
    ),
    seals_settings=True,
    organisers_first=True,
    in_box=True,
    beside_reference=True,
)
