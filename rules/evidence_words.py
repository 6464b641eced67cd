"""The words for a row's evidence, as pages, feeds, badges and the command say them."""

from collections.abc import Mapping
from typing import Any

from rules.evidence import CHECK_OF_STATUS, Evidence

Row = Mapping[str, Any]
CHECK_WORDS = {
    "none": None,
    "queued": "replay queued",
    "running": "replaying",
    "epochs_agree": "epochs agree",
    "witnessed": "witnessed",
    "undecided": "undecided",
    "contradicted": "contradicted",
}
MEANINGS: dict[Evidence, str] = {
    "measured": "exactly this was trained on our worker; the time is ours",
    "published": "reviewed elsewhere; scored again here from its logs",
    "claimed": "the submitter's own logs; not numbered",
}


def check_of_row(row: Row) -> str | None:
    """How far a claimed row was checked; None of any other.

    A row without the word for its evidence has the one that its verdict stands for.
    """
    if row.get("evidence", "claimed") != "claimed":
        return None
    return row.get("check") or CHECK_OF_STATUS.get(str(row.get("status")), "none")


def check_words(row: Row) -> str | None:
    """The check of a claimed row in words, None where there is none to tell."""
    check = check_of_row(row) or "none"
    if check == "witnessed" and row.get("witnessed_by"):
        return f"witnessed by {row['witnessed_by']}"
    return CHECK_WORDS.get(check)


def evidence_words(row: Row) -> str:
    """Evidence and check in one line: "claimed · epochs agree"."""
    evidence, check = str(row.get("evidence", "claimed")), check_words(row)
    return f"{evidence} · {check}" if check else evidence


def ranked_seconds(row: Row) -> float | None:
    """The time of a row: ours of a measured one, else the submitter's own."""
    if row.get("evidence") == "measured" and row.get("measured_seconds") is not None:
        return float(row["measured_seconds"])
    seconds = row.get("tta_seconds")
    return None if seconds is None else float(seconds)


def place_words(row: Row) -> str | None:
    """A row's number, or None of a row without a place.

    A number that several rows share has "=" before it. The provisional one of a claim is in round
    brackets, the one in a list of claims in square ones.
    """
    rank, provisional = row.get("rank"), row.get("provisional_rank")
    if rank is not None:
        return f"={rank}" if row.get("tied") else str(rank)
    if (listed := row.get("listed_rank")) is not None:
        return f"[{listed}]"
    return None if provisional is None else f"({provisional})"


def owners_words(row: Row) -> str | None:
    """Whose workers stand behind a measured time, None of a row that is not measured."""
    owners = row.get("owners") or 0
    if owners > 1:
        return f"checked by {owners} owners"
    alone = "organisers' worker" if row.get("by_organisers") else "one owner"
    return alone if owners else None


def separation_words(row: Row) -> str | None:
    """That these runs cannot tell a row from a better one, None where nothing is to be said."""
    number, gap = row.get("not_separated_from"), row.get("visible_gap_percent")
    if number is None or gap is None:
        return None
    return f"not separated from #{number}; a gap under {gap:.2g} % could not be seen"


def tuning_words(row: Row) -> str:
    """The search behind a row's settings, or that nothing is stated of it."""
    tuning = row.get("tuning") or {}
    trials, seconds = tuning.get("trials"), tuning.get("seconds")
    parts = [] if trials is None else [f"{trials:,} trial{'' if trials == 1 else 's'}"]
    if seconds is not None:
        parts.append(f"{seconds:,.0f} s")
    return f"tuning: {', '.join(parts)}" if parts else "tuning not stated"
