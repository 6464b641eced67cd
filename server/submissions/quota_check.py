"""Check for room in a quota, in the transaction that takes it, under a lock."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import cast

from sqlalchemy import Table, bindparam, select
from sqlalchemy.orm import Session

from finishline.api.quotas import Measure
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.text import count_text
from finishline.rules.verification.purposes import PURPOSES
from server.base.database import utc_now
from server.base.errors import NotAllowedError, UsedUpError
from server.base.models import Charge, Organisation, Submission, User, Verification
from server.base.replay_estimate import Estimator
from server.base.settings import Settings
from server.base.standing import claim_of
from server.benchmarks.queries import definition
from server.submissions.quotas import (
    Amounts,
    Named,
    Use,
    allowance_of_benchmark,
    allowance_of_user,
    amounts_set,
    names_of,
    use_of_gpu_seconds,
    use_of_submissions,
)

NOTHING_KEPT = "; nothing of this request was kept."
_USERS, _ORGANISATIONS = (cast(Table, each.__table__) for each in (User, Organisation))
_USER = (
    select(_USERS.c.name, _ORGANISATIONS.c.name)
    .outerjoin_from(_USERS, _ORGANISATIONS, _ORGANISATIONS.c.id == _USERS.c.organisation_id)
    .where(_USERS.c.id == bindparam("user_id"))
)
_LOCKED_USER = _USER.with_for_update(of=_USERS, key_share=True)


def take_turns(
    session: Session, *, user_id: int, benchmark_id: str, lock: bool = True
) -> tuple[list[Named], Amounts]:
    """Lock and return the quotas of a user on a benchmark.

    Returns the subjects that the user's quotas are set for, and the amounts set for these and the
    benchmark. With `lock` the user and the amounts are locked until the transaction ends.

    So two requests of one user, or for one benchmark with a quota, are counted one after the other.
    The lock lets other rows refer to the user meanwhile. SQLite has one writer anyway.
    """
    asked = _LOCKED_USER if lock else _USER
    user, organisation = session.connection().execute(asked, {"user_id": user_id}).one()
    names = names_of(user, organisation)
    return names, amounts_set(session, [*names, ("benchmark", benchmark_id)], lock=lock)


def require_room_for_submission(
    session: Session, settings: Settings, *, user_id: int, benchmark_id: str
) -> None:
    """Raise UsedUpError unless the daily quotas of the user and the benchmark have room."""
    names, amounts = take_turns(session, user_id=user_id, benchmark_id=benchmark_id)
    measure: Measure = "submissions_per_day"
    allowed = allowance_of_user(amounts, settings, names, measure)
    if allowed is not None:
        mine = Submission.user_id == user_id
        use = use_of_submissions(session, mine, allowed=allowed, now=utc_now())
        _require(use, 1, measure, "You have")
    allowed = allowance_of_benchmark(amounts, benchmark_id, measure)
    if allowed is not None:
        ours = Submission.benchmark_id == benchmark_id
        use = use_of_submissions(session, ours, allowed=allowed, now=utc_now())
        _require(use, 1, measure, f"All submitters of {benchmark_id} together have")


def reserve_replay(
    session: Session,
    settings: Settings,
    submission: Submission,
    *,
    user_id: int,
    kind: str,
    wishes: Mapping[str, int] | None = None,
    lock: bool = True,
    benchmark: Benchmark | None = None,
) -> float:
    """Estimate a verification's accelerator seconds, if the quota has room for them.

    Without `lock` the room may be taken by another request. `benchmark` is the definition of a
    submission that is not stored. Raises UsedUpError, or NotAllowedError if the estimate exceeds
    the whole quota.
    """
    benchmark = benchmark or definition(session, submission.benchmark_sha256)
    expected = Estimator(session, kind, wishes or {}).estimate(
        submission, benchmark, claim_of(submission)
    )
    wanted = expected.seconds * PURPOSES[kind].devices(expected.accelerators)
    benchmark_id = submission.benchmark_id
    require_room_for_seconds(
        session, settings, wanted, user_id=user_id, benchmark_id=benchmark_id, lock=lock
    )
    return wanted


def require_room_for_seconds(
    session: Session,
    settings: Settings,
    wanted: float,
    *,
    user_id: int,
    benchmark_id: str,
    lock: bool = True,
) -> None:
    """Raise as `reserve_replay` does unless the quotas have room for so many seconds."""
    names, amounts = take_turns(session, user_id=user_id, benchmark_id=benchmark_id, lock=lock)
    measure: Measure = "gpu_seconds_per_month"
    allowed = allowance_of_user(amounts, settings, names, measure)
    if allowed is not None:
        use = use_of_gpu_seconds(
            session, Charge.user_id == user_id, allowed=allowed, now=utc_now(), wanted=wanted
        )
        _require(use, wanted, measure, "You have")
    allowed = allowance_of_benchmark(amounts, benchmark_id, measure)
    if allowed is not None:
        ours = Submission.benchmark_id == benchmark_id
        use = use_of_gpu_seconds(session, ours, allowed=allowed, now=utc_now(), wanted=wanted)
        _require(use, wanted, measure, f"All submitters of {benchmark_id} together have")


def seconds_left(
    session: Session, settings: Settings, *, user_id: int, benchmark_id: str
) -> float | None:
    """Accelerator seconds that a user's own quota has left; None without a limit."""
    names, amounts = take_turns(session, user_id=user_id, benchmark_id=benchmark_id, lock=False)
    allowed = allowance_of_user(amounts, settings, names, "gpu_seconds_per_month")
    if allowed is None:
        return None
    use = use_of_gpu_seconds(session, Charge.user_id == user_id, allowed=allowed, now=utc_now())
    return max(0.0, allowed - use.used)


def charge(session: Session, verification: Verification, *, user_id: int, reserved: float) -> None:
    """Charge a verification to a user's quota."""
    session.add(
        Charge(
            verification_id=verification.id,
            user_id=user_id,
            gpu_seconds_reserved=reserved,
            created_at=verification.created_at,
        )
    )


def _require(use: Use, wanted: float, measure: Measure, who: str) -> None:
    if use.allowed is None or use.used + wanted <= use.allowed:
        return
    sentence = _used_sentence(use, wanted, measure, who)
    if use.room_at is None:
        raise NotAllowedError(
            f"{sentence} That is more than there will be room for; ask an organiser."
        )
    raise UsedUpError(
        f"{sentence} The quota resets at {use.room_at:%Y-%m-%d %H:%M:%S} UTC{NOTHING_KEPT}",
        measure=measure,
        retry_seconds=_retry_seconds(use.room_at),
    )


def _used_sentence(use: Use, wanted: float, measure: Measure, who: str) -> str:
    if measure == "submissions_per_day":
        made = count_text(round(use.used), "submission")
        verb = "is" if use.allowed == 1 else "are"
        return f"{who} made {made} in 24 hours, {use.allowed} {verb} allowed."
    return (
        f"{who} used {use.used:.0f} accelerator seconds in 30 days, {use.reserved:.0f} of them "
        f"reserved for running replays; {use.allowed} are allowed, and this replay will take "
        f"about {wanted:.0f}."
    )


def _retry_seconds(room_at: datetime) -> int:
    return max(1, math.ceil((room_at - utc_now()).total_seconds()))
