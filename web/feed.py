"""Atom feeds (RFC 4287): records and verdicts as entries."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from finishline.rules.ranking import evidence_words
from web.citation import NOT_IN_XML
from web.entries import outcome_word
from web.formats import SECONDS, TimeFormat, moment, number, percent
from web.names import byline, entry_title
from web.progress import kind_word
from web.render import render

MEDIA_TYPE = "application/atom+xml; charset=utf-8"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FeedEntry:
    """One thing to tell: `subject` names it for ever, `path` is where the site shows it."""

    subject: str
    path: str
    title: str
    summary: str
    author: str
    updated: str
    categories: tuple[str, ...] = ()


def atom_feed(
    entries: Sequence[FeedEntry], *, base: str, path: str, page: str, title: str
) -> bytes:
    """Entries, the latest first, as an Atom document. Ids stay when the site, `base`, moves."""
    updated = max((moment(entry.updated) for entry in entries), default=_NEVER)
    document = render(
        "feed.atom",
        entries=entries,
        base=base,
        path=path,
        page=page,
        title=title,
        updated=_timestamp(updated),
        id_of=lambda subject: uuid.uuid5(uuid.NAMESPACE_URL, f"finishline {subject}").urn,
        timestamp=lambda updated: _timestamp(moment(updated)),
    )
    return NOT_IN_XML.sub("\ufffd", document).encode()


def _timestamp(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


View = Mapping[str, Any]


def record_entry(
    benchmark: View, division: str, record: View, time_of: TimeFormat = SECONDS
) -> FeedEntry:
    """A record of a benchmark's division."""
    time = time_of.ranked(record)
    reached = f"has {time}" if time_of.quality_unit else f"reached the target in {time}"
    return FeedEntry(
        subject=f"record {record['submission_id']}",
        path=f"/submissions/{quote(record['submission_id'])}",
        title=f"{benchmark['title']}: record of {time} by {byline(record)}",
        summary=f"{entry_title(record)} {reached} ({division} division, "
        f"{evidence_words(record)}){_margin(record, time_of)}.",
        author=byline(record),
        updated=record["date"],
        categories=("record", benchmark["id"]),
    )


def verdict_entry(benchmark: View, verdict: View) -> FeedEntry:
    """The verdict of a verification, with the reason that made it."""
    outcome = outcome_word(verdict)
    reason = verdict["reason"]
    return FeedEntry(
        subject=f"verdict {verdict['id']}",
        path=f"/verifications/{quote(verdict['id'])}",
        title=f"{benchmark['title']}: {entry_title(verdict)} by {byline(verdict)}, "
        f"{'replay' if verdict['kind'] == 'replay' else kind_word(verdict)}: {outcome}",
        summary=reason["message"] if reason is not None else f"The outcome is: {outcome}.",
        author="Finishline",
        updated=verdict["ended_at"],
        categories=("verdict", benchmark["id"]),
    )


def audit_entry(records: int, sha256: str, at: str) -> FeedEntry:
    """The head of the audit log."""
    return FeedEntry(
        subject=f"audit head {records} {sha256}",
        path="/api/v1/audit/head",
        title=f"Audit log: head of record {records}",
        summary=f"SHA-256 {sha256}. A log without this head was changed since.",
        author="Finishline",
        updated=at,
        categories=("audit-head",),
    )


def _margin(record: View, time_of: TimeFormat) -> str:
    if record["margin_percent"] is None and record.get("margin") is None:
        return ", the first record"
    chance = record["p_value"]
    tested = f", one-sided p = {number(chance, 2)}" if chance is not None else ""
    if record["margin_percent"] is None:
        return f", {time_of.gap(record['margin'])} better than the record before{tested}"
    return f", {percent(record['margin_percent'])} below the record before{tested}"
