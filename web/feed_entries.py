"""Records and verdicts as entries of a feed, in sentences."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from finishline.rules.ranking.evidence import evidence_words
from web.feed import FeedEntry
from web.formats import duration, number, percent

View = Mapping[str, Any]


def record_entry(benchmark: View, division: str, record: View) -> FeedEntry:
    """A record of a benchmark's division."""
    time = duration(record["tta_seconds"])
    return FeedEntry(
        subject=f"record {record['submission_id']}",
        path=f"/submissions/{quote(record['submission_id'])}",
        title=f"{benchmark['title']}: record of {time} by {record['submitter']}",
        summary=f"{record['model']} reached the target in {time} ({division} division, "
        f"{evidence_words(record)}){_margin(record)}.",
        author=record["submitter"],
        updated=record["date"],
        categories=("record", benchmark["id"]),
    )


def verdict_entry(benchmark: View, verdict: View) -> FeedEntry:
    """The verdict of a verification, with the reason that made it."""
    outcome = str(verdict["outcome"]).replace("_", " ")
    reason = verdict["reason"]
    return FeedEntry(
        subject=f"verdict {verdict['id']}",
        path=f"/verifications/{quote(verdict['id'])}",
        title=f"{benchmark['title']}: {verdict['model']} by {verdict['submitter']}, "
        f"{verdict['kind']}: {outcome}",
        summary=reason["message"] if reason is not None else f"The outcome is: {outcome}.",
        author="Finishline",
        updated=verdict["ended_at"],
        categories=("verdict", benchmark["id"]),
    )


def _margin(record: View) -> str:
    if record["margin_percent"] is None:
        return ", the first record"
    chance = record["p_value"]
    tested = f", p = {number(chance, 2)}" if chance is not None else ""
    tries = f", at try {record['tries']} of its submitter" if record["tries"] > 1 else ""
    return f", {percent(record['margin_percent'])} below the record before{tested}{tries}"
