"""A duel's outcome in sentences, with the numbers behind them."""

from rules.claim import System
from rules.counts import count_text
from rules.duel import SIDES, Duel, Side, p_challenger_no_faster
from rules.messages import WorkerSystem
from rules.paired import PairedGap
from rules.verdict import Reason, Weight

# Among the numbers of the first reason: how likely is such a duel if the challenger is no faster?
P_CHALLENGER = "p_challenger_no_faster"


def duel_reasons(duel: Duel, *, claimed_on: System, trained_on: WorkerSystem) -> list[Reason]:
    """Why a duel ended as it did: the time first, then where the time comes from."""
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
                f"both were claimed on {claimed_on.hardware_class} and fought on "
                f"{trained_on.hardware_class}: there the order may be another",
            )
        )
    return reasons


def duel_sentence(duel: Duel) -> str:
    """The verdict of a duel in one sentence."""
    if duel.outcome == "inconclusive":
        return "too few pairs tell anything: nothing can be said about who is faster"
    how = _how(duel)
    if duel.outcome == "not_separable":
        return f"the two cannot be told apart: {how}{_how_many_more(duel)}"
    winner = "challenger" if duel.outcome == "challenger_faster" else "holder"
    return f"the {winner} is faster: {how}"


def _how(duel: Duel) -> str:
    if duel.test == "count" or duel.time is None:
        won = [duel.won_by(side) for side in SIDES]
        return (
            f"of {sum(won)} decided pairs the challenger won {won[0]} and the holder {won[1]} "
            f"(p = {duel.p_value:.3g})"
        )
    return (
        f"the challenger took {duel.time.ratio:.3f} times the holder's time "
        f"(95 % {duel.time.low:.3f} to {duel.time.high:.3f}, p = {duel.p_value:.3g}) "
        f"over {duel.time.pairs} pairs"
    )


def _how_many_more(duel: Duel) -> str:
    if duel.pairs_needed is None:
        return ""
    if duel.test == "count":
        return f"; where runs miss the target it takes at least {duel.pairs_needed} pairs"
    return f"; a difference like this one takes about {duel.pairs_needed} pairs to show"


def _weight(duel: Duel) -> Weight:
    return "leaves_open" if duel.outcome in ("not_separable", "inconclusive") else "supports"


def _missed(duel: Duel, side: Side) -> Reason:
    missed, runs = duel.missed_by(side), len(duel.pairs)
    return Reason(
        "duel_missed",
        "note",
        f"{missed} of the {side}'s {count_text(runs, 'run')} did not reach the target: each is a "
        f"lost pair, left out of the ratio because it has no time, and the {side} is held to its "
        "count of wins",
        {"missed": float(missed), "runs": float(runs)},
    )


def _times(what: str, gap: PairedGap) -> str:
    return (
        f"the challenger needed {gap.ratio:.3f} times the holder's {what} "
        f"(95 % {gap.low:.3f} to {gap.high:.3f})"
    )


def _time_numbers(duel: Duel) -> dict[str, float]:
    numbers = {} if duel.time is None else _numbers(duel.time)
    if duel.p_value is not None:
        numbers["p_value"] = duel.p_value
    one_sided = p_challenger_no_faster(duel)
    if one_sided is not None:
        numbers[P_CHALLENGER] = one_sided
    for side in SIDES:
        numbers[f"{side}_won"] = float(duel.won_by(side))
    if duel.pairs_needed is not None:
        numbers["pairs_needed"] = float(duel.pairs_needed)
    return numbers


def _numbers(gap: PairedGap) -> dict[str, float]:
    return {
        "ratio": gap.ratio,
        "low": gap.low,
        "high": gap.high,
        "p_value": gap.p_value,
        "pairs": float(gap.pairs),
    }
