"""The events that a worker posts while it trains, stored as if the server had seen them come."""

from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import delete

from finishline.rules.verification.messages import ReplayEvent
from server.base.models import Attempt, ReplayEventRow

PREPARATION = ("init", "compile", "warmup")


def stream_report(database, attempt_id, report, *, fence=1, events=None):
    """Store what an honest worker has posted by the time of its report, at its ledger's moments.

    The server's clock is set: nothing sleeps, and the moments may lie in the future. Nothing is
    stored of an attempt that is not running, or not with this fence. `events` are others to store.
    """
    with database.write() as session:
        attempt = session.get(Attempt, attempt_id)
        if attempt is None or (attempt.state, attempt.fence) != ("running", fence):
            return
        assert attempt.started_at is not None
        session.execute(delete(ReplayEventRow).where(ReplayEventRow.attempt_id == attempt_id))
        for sequence, (at, event) in enumerate(events or streamed(report)):
            session.add(stored_event(attempt_id, sequence, event, attempt.started_at, at))


def stored_event(attempt_id, sequence, event, claimed_at, at_seconds):
    return ReplayEventRow(
        attempt_id=attempt_id,
        sequence=sequence,
        event=asdict(ReplayEvent(sequence=sequence, **event)),
        created_at=claimed_at + timedelta(seconds=at_seconds),
    )


def streamed(report):
    """The events of a report, each with the seconds since the claim at which it was posted."""
    events = []
    begun = 0.0
    for run in report.runs:
        events += [(begun + at, event) for at, event in _events_of(run)]
        begun += sum(run.ledger.values())
    return events


def _events_of(run):
    prepared = {name: run.ledger[name] for name in PREPARATION if name in run.ledger}
    prepared_seconds = sum(prepared.values())
    events = [
        (0.0, {"run": run.index, "kind": "run_started"}),
        (
            prepared_seconds,
            {"run": run.index, "kind": "phase", "phase": "train", "seconds": 0.0,
             "ledger": prepared},
        ),
    ]  # fmt: skip
    for item in run.evaluations:
        event = {"run": run.index, "kind": "evaluation", **asdict(item)}
        events.append((sum(item.ledger.values()), event))
    return events
