"""Steps to a row's rank: evidence, pool, interval, eligibility and the rows beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finishline.rules.ranking.evidence import (
    evidence_words,
    place_words,
    ranked_seconds,
    separation_words,
)
from finishline.rules.text import count_text
from web.formats import duration, interval

View = Mapping[str, Any]


@dataclass(frozen=True)
class RankStep:
    """One step to the rank: its name, and a sentence or two."""

    name: str
    text: str


def rank_steps(place: View) -> list[RankStep]:
    """The steps from a submission's time to its place on the board."""
    return [
        RankStep("Evidence", _evidence(place)),
        RankStep("Pool", _pool(place)),
        RankStep("Interval", _interval(place)),
        RankStep("Eligibility", _eligibility(place)),
        RankStep("Neighbours", _neighbours(place)),
    ]


def _evidence(place: View) -> str:
    basis = {
        "measured": "The time of our own runs ranks.",
        "published": "Its own time ranks: it was reviewed elsewhere and scored again here.",
    }.get(place["evidence"], "The submitter's own time is not numbered.")
    return f"{evidence_words(place).capitalize()}. {basis}"


def _pool(place: View) -> str:
    runs = place.get("pool") or {}
    if not place.get("pool_id"):
        return "None: no sealed run of this configuration was trained here."
    counted, nominating = runs.get("counted", 0), runs.get("not_counted", 0)
    text = f"{count_text(counted, 'sealed run')} counted."
    if nominating:
        text += f" {count_text(nominating, 'run')} nominated it for fresh runs and no longer count."
    if counted < 3:
        text += " Fewer than three give no measured time."
    if place["also_by"]:
        text += f" Also submitted by {', '.join(place['also_by'])}."
    return text


def _interval(place: View) -> str:
    low, high = place["measured_low_seconds"], place["measured_high_seconds"]
    if place["evidence"] != "measured":
        low, high = place["tta_low_seconds"], place["tta_high_seconds"]
    shown = interval(low, high)
    if not shown:
        return "No interval: too few runs to know how much they vary."
    return f"{shown}: 95 %, of the mean of these runs on this machine."


def _eligibility(place: View) -> str:
    if place["rank"] is not None:
        return f"Numbered in the {place['division']} division."
    if place["listed_rank"] is not None:
        return "Listed among the claims by the submitters' own times, apart from what is numbered."
    if place["provisional_rank"] is not None:
        return "Not numbered: only what was measured here, or published, is."
    return f"Not ranked: {place['unranked_reason'] or 'its claim was not measured'}."


def _neighbours(place: View) -> str:
    beside = [
        f"{other['why']}: {place_words(other) or '–'}, {other['model']} by {other['submitter']}"
        f" ({duration(ranked_seconds(other))})"
        for other in place["others"]
    ]
    words = separation_words(place)
    sentences = ["; ".join(beside).capitalize()] if beside else ["Nobody else is numbered"]
    if words:
        sentences.append(words.capitalize())
    return ". ".join(sentences) + "."
