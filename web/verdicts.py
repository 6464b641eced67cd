"""A verdict in words: for a badge, as four checks, and as a decision between two."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.ranking import evidence_words
from finishline.rules.statistics.aggregate import mean
from web.formats import DASH, SECONDS, TimeFormat, number, percent
from web.progress import claims_nothing

View = Mapping[str, Any]


def why_not_timed(check: View | None) -> str:
    """Why a verification did not compare the claimed time, as its reason says."""
    messages = (str(reason["message"]) for reason in (check or {}).get("reasons", ()))
    untimed = (message for message in messages if message.startswith("time was not compared: "))
    return next(untimed, "its time was not compared")


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


CHECKS = {
    "Reached the target": ("reached_target", "did_not_reach", "below_entropy"),
    "Learned like the reference": (
        *("within_band", "below_band", "above_band"),
        *("curve_reproduced", "curve_not_reproduced"),
    ),
    "Same number of epochs": ("convergence_agrees", "converges_faster_than_replay"),
    "Speed as claimed": (
        *("time_agrees", "slower_than_claimed", "hardware_differs", "worker_drifted"),
        *("time_not_compared", "quality_compared", "claim_has_no_time"),
    ),
}
# The heaviest weight speaks for a check.
HEAVIEST = ("rejects", "leaves_open", "supports", "note")


def verdict_checks(
    verification: View, submission: View | None = None
) -> list[tuple[str, View | None]]:
    """The four checks of a claim by a replay, each with its heaviest reason. None without one.

    Of the reference, which claims nothing, there are two.
    """
    if verification["kind"] != "replay" or not verification["outcome"]:
        return []
    found = [
        (
            name,
            min(
                (reason for reason in verification["reasons"] if reason["code"] in codes),
                key=lambda reason: HEAVIEST.index(reason["weight"]),
                default=None,
            ),
        )
        for name, codes in CHECKS.items()
    ]
    return found[: 2 if claims_nothing(submission) else 4]


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
        text += f". It loses rank {rank}" + (" and the record" if holds_record else "")
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
    sides = published, new
    words = [side["words"] for side in sides]
    rows = [DecisionRow("Evidence", words[0], words[1], "" if words[0] == words[1] else "changes")]
    figures: dict[str, tuple[str, Callable[[float | None], str], str, str]] = {
        "tta_seconds": ("Time", time, "slower", "faster"),
        "epochs_to_target": ("Epochs", lambda epochs: number(epochs, 3), "more", "fewer"),
    }
    if new.get("kind") == "entry":  # A package has no epochs.
        del figures["epochs_to_target"]
    for figure, (name, write, *more_or_less) in figures.items():
        found = next((each for each in differences if each["figure"] == figure), None)
        means = [_mean(side, figure) for side in sides]
        if found is not None:
            means = [found["first_mean"], found["second_mean"]]
        told = ratio_words(means[1] / means[0], *more_or_less) if means[0] and means[1] else ""
        if told and found is not None and not found["comparable"]:
            told += " (other hardware)"
        elif told and found is not None and found["p_value"] is not None:
            told += f" (Welch's p = {found['p_value']:.2g})"
        rows.append(DecisionRow(name, write(means[0]), write(means[1]), told))
    shares = [side["cpu_share"] for side in sides]
    loads = [DASH if share is None else percent(100 * share) for share in shares]
    rows.append(DecisionRow("Reached", _reached(published), _reached(new), ""))
    return [*rows, DecisionRow("Share of the processor", loads[0], loads[1], "")]


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
