"""What was heard last of an attempt whose worker can no longer hand in a log."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.models import Attempt, ReplayEventRow
from server.verifications.own_seeds import hidden_runs, without_quality
from server.viewer import ANYBODY

LINES = 20


def last_heard(session: Session, attempt: Attempt) -> str | None:
    """The last events of an attempt, a line each; None if nothing was heard."""
    rows = session.execute(
        select(ReplayEventRow.event, ReplayEventRow.created_at)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence.desc())
        .limit(LINES)
    ).all()
    # Everybody may read this, also while the claim is hidden.
    hidden = hidden_runs(attempt.verification, ANYBODY)
    lines = [
        f"{row.created_at:%H:%M:%S} {_line(without_quality(row.event, hidden))}"
        for row in reversed(rows)
    ]
    # No database stores a NUL in a text.
    return "\n".join(lines).replace("\0", "\ufffd") or None


def _line(event: dict[str, Any]) -> str:
    run = f"run {event['run'] + 1}"
    at = "" if event.get("seconds") is None else f" after {event['seconds']:.3f} s"
    if event["kind"] == "evaluation":
        epoch = "" if event.get("epoch") is None else f", epoch {event['epoch']:g}"
        told = "not told" if event.get("quality") is None else f"{event['quality']:g}"
        return f"{run}{epoch}: quality {told}{at}"
    words = {"run_started": "started", "phase": event.get("phase"), "run_finished": "ended"}
    status = f", {event['status'].replace('_', ' ')}" if event.get("status") else ""
    return f"{run}: {words.get(event['kind'], event['kind'])}{at}{status}"
