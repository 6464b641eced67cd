"""A duel: two submissions' settings or packages trained in turn on one worker, pair by pair."""

from collections.abc import Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.gaps import Gap
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.text import count_text, unseen_gap_text
from finishline.rules.verification.duel_pairs import (
    SIDES,
    Duel,
    Side,
    judge_duel,
    p_challenger_no_faster,
    pair_runs,
)
from finishline.rules.verification.entry import why_no_entry
from finishline.rules.verification.job import Case, Purpose, Request, Words
from finishline.rules.verification.messages import Training, WorkerSystem
from finishline.rules.verification.paired import package_side, plan_in_turn
from finishline.rules.verification.replay_plan import precision_of, why_not_replayable
from finishline.rules.verification.verdict import Reason, Verdict, Weight

FEWEST_PAIRS, MOST_PAIRS = 2, 20


def why_no_duel(benchmark: Benchmark, challenger: Claim, holder: Claim) -> str | None:
    """Reason why two claims of one benchmark cannot be trained in turn; None if they can.

    They have to follow the same rules on the same hardware class, where alone times compare, and
    both be packages or neither: a box and a process start in different ways.
    """
    if benchmark.reach.name == "fixed_stop":
        return "all runs of the benchmark stop at the same step, so none reaches the target sooner"
    packages = [claim.package is not None for claim in (challenger, holder)]
    if any(packages) and not all(packages):
        one, other = SIDES if packages[0] else SIDES[::-1]
        return f"the {one} is a package, the {other} is not: expected two packages or none"
    for side, claim in zip(SIDES, (challenger, holder), strict=True):
        unable = (why_no_entry if packages[0] else _why_no_replay)(benchmark, [claim])
        if unable is not None:
            return f"the {side} cannot be replayed: {unable}"
    if challenger.division != holder.division:
        return f"one is {challenger.division}, the other {holder.division}: expected one division"
    classes = [claim.system.hardware_class for claim in (challenger, holder)]
    if classes[0] != classes[1]:
        return f"one was made on {classes[0]}, the other on {classes[1]}: times do not compare"
    return None


def _why_no_replay(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    return why_not_replayable(benchmark, claims[0])


def duel_reasons(duel: Duel, *, claimed_on: System, trained_on: WorkerSystem) -> list[Reason]:
    """Reasons for a duel's result: the time first, then where the time comes from."""
    reasons = [Reason("duel_time", _weight(duel), duel_sentence(duel), _time_numbers(duel))]
    for side in SIDES:
        if duel.missed_by(side):
            reasons.append(_missed(duel, side))
    if duel.pace is not None:
        text = _times("seconds per epoch", duel.pace)
        reasons.append(Reason("duel_pace", "note", text, _numbers(duel.pace)))
    if duel.epochs is not None:
        text = _times("epochs to the target", duel.epochs)
        reasons.append(Reason("duel_epochs", "note", text, _numbers(duel.epochs)))
    if claimed_on.hardware_class != trained_on.hardware_class:
        reasons.append(
            Reason(
                "hardware_differs",
                "note",
                f"both were claimed on {claimed_on.hardware_class} and trained here on "
                f"{trained_on.hardware_class}, where the order may differ",
            )
        )
    return reasons


def duel_sentence(duel: Duel) -> str:
    """The verdict of a duel in one sentence."""
    if duel.outcome == "inconclusive":
        return "too few decided pairs to say which is faster"
    how = _how(duel)
    if duel.outcome == "not_separable":
        more = f"{_unseen_gap(duel)}{_how_many_more(duel)}"
        return f"these runs cannot tell the two apart: {how}{more}"
    winner = "challenger" if duel.outcome == "challenger_faster" else "holder"
    return f"the {winner} is faster: {how}"


def _how(duel: Duel) -> str:
    if duel.test == "count" or duel.time is None:
        won = [duel.won_by(side) for side in SIDES]
        return (
            f"of {sum(won)} decided pairs the challenger won {won[0]} and the holder {won[1]} "
            f"({_p_text(duel)})"
        )
    return (
        f"the challenger took {duel.time.ratio:.3f} times the holder's time "
        f"(95 % {duel.time.low:.3f} to {duel.time.high:.3f}, {_p_text(duel)}) "
        f"over {duel.time.pairs} pairs"
    )


def _p_text(duel: Duel) -> str:
    return f"one-sided p = {duel.p_value:.2g} for the {duel.ahead}"


def _unseen_gap(duel: Duel) -> str:
    if duel.test == "count" or duel.time is None:
        return ""
    return f"; {unseen_gap_text(duel.time.visible_percent)}"


def _how_many_more(duel: Duel) -> str:
    if duel.pairs_needed is None:
        return ""
    if duel.test == "count":
        return f"; if runs miss the target, at least {duel.pairs_needed} pairs are needed"
    return f"; about {duel.pairs_needed} pairs are needed to show a difference like this one"


def _weight(duel: Duel) -> Weight:
    return "leaves_open" if duel.outcome in ("not_separable", "inconclusive") else "supports"


def _missed(duel: Duel, side: Side) -> Reason:
    missed, runs = duel.missed_by(side), len(duel.pairs)
    return Reason(
        "duel_missed",
        "note",
        f"{missed} of the {side}'s {count_text(runs, 'run')} did not reach the target: each is a "
        f"lost pair, left out of the ratio because it has no time, and the {side} is judged by "
        "its count of wins",
        {"missed": float(missed), "runs": float(runs)},
    )


def _times(what: str, gap: Gap) -> str:
    return (
        f"the challenger needed {gap.ratio:.3f} times the holder's {what} "
        f"(95 % {gap.low:.3f} to {gap.high:.3f})"
    )


def _time_numbers(duel: Duel) -> dict[str, float]:
    numbers = {} if duel.time is None else _numbers(duel.time)
    if duel.p_value is not None:
        numbers["p_value"] = min(1.0, 2 * duel.p_value)  # Two-sided, as in every proof so far.
    one_sided = p_challenger_no_faster(duel)
    if one_sided is not None:
        numbers["p_challenger_no_faster"] = one_sided
    for side in SIDES:
        numbers[f"{side}_won"] = float(duel.won_by(side))
    if duel.pairs_needed is not None:
        numbers["pairs_needed"] = float(duel.pairs_needed)
    return numbers


def _numbers(gap: Gap) -> dict[str, float]:
    return {
        "ratio": gap.ratio,
        "low": gap.low,
        "high": gap.high,
        "p_value": gap.p_value,
        "pairs": float(gap.pairs),
    }


def plan_duel(request: Request) -> list[Training]:
    """Plan `pairs` of runs, the two claims in turn, each run with its complete settings.

    Both packages of a pair train on the same drawn data, each with a seed of its own.
    """
    sides = [_side(request, claim) for claim in request.claims]
    return plan_in_turn(request.entropy, sides, rounds=request.wishes["pairs"], one_seed=False)


def _side(request: Request, claim: Claim) -> Training:
    if claim.package is not None:
        return package_side(claim.package)
    settings = request.benchmark.defaults() | dict(claim.hyperparameters)
    precision = precision_of(request.benchmark, claim)
    return Training(package=request.package, settings=settings, seed=0, precision=precision)


def _judge(case: Case) -> Verdict:
    duel = judge_duel(pair_runs(case.benchmark, case.report))
    reasons = duel_reasons(
        duel, claimed_on=case.require_claim().system, trained_on=case.report.system
    )
    return Verdict(duel.outcome, tuple(reasons))


def _why_not(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    return why_no_duel(benchmark, *claims)


DUEL = Purpose(
    name="duel",
    plan=plan_duel,
    judge=_judge,
    why_not=_why_not,
    unable="cannot have a duel",
    words=Words(
        to_do="train",
        doing="Training",
        endings={
            "challenger_faster": "The challenger is faster.",
            "holder_faster": "The holder is faster.",
            "not_separable": "These runs cannot tell the two apart.",
            "": "The duel of {runs} is inconclusive.",
        },
        subject="either submission",
    ),
    claims=2,
    seals_settings=True,
    organisers_first=True,
    stops_when_withdrawn=True,
)
