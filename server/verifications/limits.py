"""How long an attempt and each of its runs may take. A worker keeps the same limits itself."""

from datetime import datetime, timedelta

from server.models import Attempt

RUN_START_SECONDS = 60.0  # What a run may take beside its own limit: starting, loading, stopping.


def why_over_limit(attempt: Attempt, *, now: datetime) -> str | None:
    """Why a running attempt has to end, in words; None while it is in time.

    The whole has its verification's limit. The run under way has the benchmark's, counted from its
    announcement, so that a worker whose training hangs is not waited for while it stays polite.
    """
    if attempt.started_at is None:
        return None
    limit_seconds = attempt.verification.limit_seconds
    if now > attempt.started_at + timedelta(seconds=limit_seconds):
        return f"the replay took longer than {limit_seconds:.0f} s"
    run_seconds = run_limit_seconds(attempt)
    since = attempt.run_started_at or attempt.started_at
    if now > since + timedelta(seconds=run_seconds):
        return f"a run took longer than {run_seconds:.0f} s and its worker did not end it"
    return None


def run_limit_seconds(attempt: Attempt) -> float:
    """The seconds that one run may take on the server's clock: all runs have the same limit."""
    return attempt.verification.limit_seconds / attempt.verification.runs
