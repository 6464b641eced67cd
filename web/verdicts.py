"""A verdict in words: for a badge, as four checks, and as a decision between two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.ranking import evidence_words
from finishline.rules.statistics.aggregate import mean
from web.formats import DASH, SECONDS, TimeFormat, number, percent
from web.progress import claims_nothing

View = Mapping[str, Any]


def published_check(submission: View, checks: Sequence[View]) -> View | None:
    """The verification that a submission's status rests on, of those that are shown."""
    published = submission["published_verification"]
    return next((check for check in checks if check["id"] == published), None)


def why_not_timed(check: View | None) -> str:
    """Why a verification did not compare the claimed time, as its reason says."""
    messages = (str(reason["message"]) for reason in (check or {}).get("reasons", ()))
    untimed = (message for message in messages if message.startswith("time was not compared: "))
    return next(untimed, "its time was not compared")


def was_worker_unfit(check: View | None) -> bool:
    """Whether the time was not compared because of the worker, so another replay may compare it."""
    codes = {reason["code"] for reason in (check or {}).get("reasons", ())}
    return "worker_drifted" in codes


def standing_words(submission: View) -> str:
    """The evidence of a submission with its check, or that it was withdrawn."""
    return "withdrawn" if submission["withdrawal"] else evidence_words(submission)


def reads_between_evaluations(check: View, submission: View) -> bool:
    """Whether a verdict has other epochs of a claim than the submission's own page."""
    whole = submission["result"].get("epochs_to_target")  # Inference has none.
    numbers = (reason["numbers"] for reason in check["reasons"])
    read_off = (known.get("claimed_mean_epochs") for known in numbers)
    return whole is not None and any(
        epochs is not None and number(epochs, 3) != number(whole, 3) for epochs in read_off
    )


REACHED = ("reached_target", "did_not_reach", "below_entropy")
LEARNED = (
    "within_band",
    "below_band",
    "above_band",
    "curve_reproduced",
    "curve_not_reproduced",
)
EPOCHS = ("convergence_agrees", "converges_faster_than_replay")
SPEED = (
    "time_agrees",
    "slower_than_claimed",
    "hardware_differs",
    "worker_drifted",
    "time_not_compared",
    "claim_has_no_time",
)
WORDS = {"supports": "yes", "rejects": "no", "leaves_open": "undecided", "note": "noted"}
# The heaviest weight speaks for a check.
HEAVIEST = ("rejects", "leaves_open", "supports", "note")


@dataclass(frozen=True)
class Bar:
    """One of the figures that a check compares, as a share of the largest of them."""

    name: str
    percent: float
    text: str


@dataclass(frozen=True)
class VerdictCheck:
    """One check: its name, its weight with a word for it, a sentence, and its figures as bars."""

    name: str
    weight: str
    word: str
    text: str
    bars: tuple[Bar, ...] = ()


def verdict_checks(verification: View, submission: View | None = None) -> list[VerdictCheck]:
    """The four checks of a claim by a replay; two of the reference, which claims nothing."""
    if verification["kind"] != "replay" or not verification["outcome"]:
        return []
    reasons = verification["reasons"]
    first = _reason(reasons, REACHED)
    at_stop = first is not None and "p_value" in first["numbers"]
    checks = [
        _check("Beat the target at the fixed stop" if at_stop else "Reached the target", first),
        _check("Learned like the reference", _reason(reasons, LEARNED)),
    ]
    if claims_nothing(submission):
        return checks
    return [
        *checks,
        _check("Same number of epochs", _reason(reasons, EPOCHS)),
        _check("Same speed", _reason(reasons, SPEED), _speed),
    ]


def _reason(reasons: Sequence[View], codes: Sequence[str]) -> View | None:
    found = [reason for reason in reasons if reason["code"] in codes]
    return min(found, key=lambda reason: HEAVIEST.index(reason["weight"]), default=None)


def _check(name: str, reason: View | None, say: Any = None) -> VerdictCheck:
    if reason is None:
        return VerdictCheck(name, "note", "not compared", "Nothing to compare it with.")
    weight = reason["weight"]
    text = str(say(reason) if say else reason["message"])
    word = "not compared" if text.startswith("Not compared") else WORDS[weight]
    sentence = text[:1].upper() + text[1:].rstrip(".") + "."
    return VerdictCheck(name, weight, word, sentence, _bars(reason["numbers"]))


def _bars(numbers: View) -> tuple[Bar, ...]:
    """The figures behind a reason: runs at the target, epochs of both sides, or an epoch's time."""
    if numbers.get("started"):
        reached, started = numbers["reached"], numbers["started"]
        text = f"{number(reached)} of {number(started)}"
        return (Bar("reached", 100 * reached / started, text),)
    pairs = {
        "claimed": numbers.get("claimed_mean_epochs"),
        "reference": numbers.get("reference_mean_epochs"),
    }
    unit = " epochs"
    if pairs["claimed"] is None and numbers.get("ratio"):
        pairs, unit = {"claimed": 1.0, "here": numbers["ratio"]}, "×"
    known = {name: value for name, value in pairs.items() if value is not None}
    if len(known) < 2:
        return ()
    largest = max(known.values())
    return tuple(
        Bar(name, 100 * value / largest, number(value, 3) + unit) for name, value in known.items()
    )


def _speed(reason: View) -> str:
    """Sentence on an epoch's time as a multiple of the claimed one, or on a faster replay."""
    numbers = reason["numbers"]
    ratio, limit = numbers.get("ratio"), numbers.get("tolerated_ratio")
    if ratio is None:
        prefix = "time was not compared: "
        message = str(reason["message"])
        return message.replace(prefix, "Not compared: ", 1)
    allowed = "" if limit is None else f" Limit {number(limit, 3)}×."
    if abs(ratio - 1) < 0.01:
        return f"An epoch took as long as claimed, within 1\u00a0% ({number(ratio, 4)}×).{allowed}"
    if ratio < 1:
        return f"An epoch was {number(1 / ratio, 3)}× faster here than claimed"
    if limit is not None and ratio > limit:
        return f"An epoch took {number(ratio, 3)}× as long as claimed.{allowed}"
    return f"An epoch took {number(ratio, 3)}× as long as claimed, within the limit.{allowed}"


CLOSE = 1.5  # A smaller factor has a third digit.
LEVEL = 0.01  # Ratios as near to 1 as this are no change.


def decision_headline(
    before: View, after: View, *, rank: int | None = None, holds_record: bool = False
) -> str:
    """The consequence of publishing a verdict, with the rank and the record that would go."""
    one, other = evidence_words(before), evidence_words(after)
    if one == other:
        return f"Publishing leaves the row {one}."
    text = f"Publishing changes {one} → {other}"
    if rank is not None and after["evidence"] == "claimed":
        text += f"; it loses rank {rank}" + (" and the record" if holds_record else "")
    return f"{text}."


@dataclass(frozen=True)
class DecisionRow:
    """One figure of the published and of the new verdict, and how the second differs."""

    name: str
    published: str
    new: str
    change: str


def decision_rows(
    published: View, new: View, differences: Sequence[View], time: TimeFormat = SECONDS
) -> list[DecisionRow]:
    """The rows of a decision: evidence, time, epochs, runs at the target, load of the worker.

    A side has the row's words, its outcome, its runs and its share of the processor.
    """
    words = published["words"], new["words"]
    rows = [DecisionRow("Evidence", *words, "" if words[0] == words[1] else "changes")]
    rows.append(_row("Time", published, new, "tta_seconds", time, differences, "slower", "faster"))
    if new.get("kind") != "entry":  # A package has no epochs.
        more = ("more", "fewer")
        rows.append(_row("Epochs", published, new, "epochs_to_target", _three, differences, *more))
    rows.append(DecisionRow("Reached", _reached(published), _reached(new), ""))
    loads = [_load(side["cpu_share"]) for side in (published, new)]
    rows.append(DecisionRow("Share of the processor", loads[0], loads[1], ""))
    return rows


def _three(value: float | None) -> str:
    return number(value, 3)


def _row(
    name: str,
    published: View,
    new: View,
    figure: str,
    shown: Any,
    differences: Sequence[View],
    more: str,
    less: str,
) -> DecisionRow:
    found = next((each for each in differences if each["figure"] == figure), None)
    means = [_mean(side, figure) for side in (published, new)]
    if found is not None:
        means = [found["first_mean"], found["second_mean"]]
    told = ratio_words(means[1] / means[0], more, less) if means[0] and means[1] else ""
    if told and found is not None and not found["comparable"]:
        told += " (other hardware)"
    elif told and found is not None and found["p_value"] is not None:
        told += f" (Welch's p = {found['p_value']:.2g})"
    return DecisionRow(name, shown(means[0]), shown(means[1]), told)


def ratio_words(ratio: float, more: str, less: str) -> str:
    """A ratio of new to old in words: "4.7× slower"."""
    if abs(ratio - 1) < LEVEL:
        return "no change"
    factor = max(ratio, 1 / ratio)
    return f"{number(factor, 2 if factor >= CLOSE else 3)}× {more if ratio > 1 else less}"


def _mean(side: View, figure: str) -> float | None:
    known = [run[figure] for run in side["runs"] if run[figure] is not None]
    return mean(known) if known else None


def _reached(side: View) -> str:
    reached = sum(run["tta_seconds"] is not None for run in side["runs"])
    return f"{reached} of {len(side['runs'])}" if side["runs"] else DASH


def _load(share: float | None) -> str:
    if share is None:
        return DASH
    return percent(100 * share)


@dataclass(frozen=True)
class Dots:
    """The times of one side's runs in percent of the slowest of both."""

    name: str
    places: tuple[float, ...]


def run_dots(published: View, new: View) -> list[Dots]:
    """A dot for each run of both sides on one scale; none where nothing has a time."""
    sides = (("Published", published), ("New", new))
    times = {name: _times(side) for name, side in sides}
    slowest = max((seconds for each in times.values() for seconds in each), default=0.0)
    if not slowest:
        return []
    return [Dots(name, tuple(96 * s / slowest + 1 for s in each)) for name, each in times.items()]


def _times(side: View) -> list[float]:
    return [run["tta_seconds"] for run in side["runs"] if run["tta_seconds"] is not None]
