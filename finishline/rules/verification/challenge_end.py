"""The end of a challenge for a record, as a sentence."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from finishline.rules.ranking.records import AGAIN_AFTER, DUEL_ALPHA
from finishline.rules.verification.duel import P_CHALLENGER


def challenge_sentence(verification: Mapping[str, Any]) -> str | None:
    """Result of a challenge for the record; None of another verification and before its end."""
    duel = verification.get("duel") or {}
    if not duel.get("challenge") or verification["ended_at"] is None:
        return None
    if duel["won"] is None:
        return "The challenge has no result: the record stays, and it may be asked for again."
    numbers = [reason["numbers"] for reason in verification["reasons"]]
    p_value = next((each[P_CHALLENGER] for each in numbers if P_CHALLENGER in each), None)
    told = "" if p_value is None else f"one-sided p = {p_value:.2g} for the challenger"
    if duel["won"]:
        return f"The challenge is won: {told}, below {DUEL_ALPHA:g}."
    why = f"{told}, and a record needs p below {DUEL_ALPHA:g}"
    if p_value is None:
        why = "the challenger was withdrawn while it was trained"
    again = datetime.fromisoformat(verification["ended_at"]) + AGAIN_AFTER
    return (
        f"The challenge is lost: {why}. The same package may challenge it again from "
        f"{again:%Y-%m-%d} on."
    )
