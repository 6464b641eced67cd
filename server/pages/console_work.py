"""Show the work of organisers: open tasks, verifications, verdicts to decide, workers."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import Query, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, selectinload

from finishline.api.verifications import ReplayFigures, VerificationComparison
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import evidence_words
from finishline.rules.verification.head_to_head import why_no_head_to_head
from finishline.rules.verification.replay import cpu_share
from server.base.database import benchmarks_of, utc_now
from server.base.errors import ServerError
from server.base.fleet import Fleet
from server.base.models import Attempt, Calibration, Pool, Submission, Verification
from server.base.standing import (
    LISTED,
    OPEN,
    SHOWN,
    Status,
    checks_claim,
    claim_of,
    find_verification,
    is_pending,
    published_verification,
    purpose_of,
    report_of,
    require_submission,
    row_evidence,
)
from server.benchmarks.definitions import definition
from server.boards.compare import get_verification_comparison
from server.boards.records import list_records
from server.pages.declared import Context, page, read_form
from server.pages.queries import brief, submission_context
from server.people.accounts import ORGANISERS
from server.people.callers import Caller
from server.people.declared import filled
from server.verifications.calibrations import summaries
from server.verifications.pools import row_if_published
from server.verifications.queue import Waits, get_queue
from server.verifications.requests import BATCH, HEAD_TO_HEADS, Cost, cost_of_head_to_head
from server.verifications.reruns import (
    DECIDE,
    BatchCreate,
    chosen_fields,
    verify_batch,
)
from server.verifications.views import line
from server.verifications.worker_endpoints import (
    CONSOLE,
    EVERY_QUEUE,
    MOST_SHOWN,
    WORKER,
    CursorDep,
    list_workers,
)
from web.names import row_name

MOST = 100
LATEST = 20
LATELY = timedelta(days=7)
# A batch needs a reason, even in a dry run.
DRY_RUN = {"reason": "dry run", "dry_run": True}
DECIDED = {"publish": "to publish it", "keep": "to keep it back"}
# Rows marked in a list.
Marked = Annotated[list[str] | None, Query(max_length=100)]


@page("/console", "overview.html", role="user")
def overview(session: Session, caller: Caller) -> Context | Response:
    """Show open tasks of organisers. Other users are redirected to their account."""
    if caller.role not in ORGANISERS:
        return RedirectResponse("/account", status_code=303)
    lately = utc_now() - LATELY
    failed = (Verification.state == "failed") & (Verification.ended_at >= lately)
    # Most of these attempts are repeated.
    lost = Attempt.state.in_(("failed", "lost")) & (Attempt.ended_at >= lately)
    return {
        "pending": pending_verdicts(session),
        "under_way": under_way(session),
        **seen_workers(session),
        "failed": _lines(session, failed, Verification.ended_at),
        "failed_attempts": session.scalar(select(func.count()).select_from(Attempt).where(lost)),
        "calibrations": open_calibrations(session, benchmarks_of(session)),
    }


def pending_verdicts(session: Session) -> list[Context]:
    """List verdicts waiting for a decision, the oldest first."""
    rows = session.scalars(
        select(Verification)
        .where(
            Verification.state == "done",
            Verification.kind.in_(("replay", "entry", "latency")),
            Verification.decision.is_(None),
        )
        .order_by(Verification.ended_at)
        .options(selectinload(Verification.submission).selectinload(Submission.verifications))
    )
    return [
        brief(row.submission)
        | {
            "id": row.id,
            "submission_id": row.submission_id,
            "standing": row.submission.status,
            "outcome": row.outcome,
            "ended_at": row.ended_at,
        }
        for row in rows
        if row.submission is not None and is_pending(row, row.submission)
    ]


def under_way(session: Session) -> list[Context]:
    """List queued and running verifications, the latest first, with the models of their sides."""
    return _lines(session, Verification.state.in_(OPEN), Verification.created_at)


def _lines(
    session: Session, wanted: ColumnElement[bool], by: InstrumentedAttribute[Any]
) -> list[Context]:
    rows = session.scalars(
        select(Verification).where(wanted).order_by(by.desc()).limit(MOST).options(*LISTED)
    )
    waits, found = Waits(session), []
    for row in rows:
        models = [side.model for side in (row.submission, row.against) if side is not None]
        found.append(line(session, row, waits).model_dump() | {"model": " against ".join(models)})
    return found


def seen_workers(session: Session) -> Context:
    """Count workers of the last days, and list those off their baseline or gone silent."""
    since = utc_now() - LATELY
    every = list_workers(session, limit=MOST_SHOWN).workers
    seen = [worker for worker in every if worker.last_seen_at >= since]
    out = [
        worker.model_dump(mode="json")
        for worker in seen
        if (worker.drift is not None or not worker.alive) and worker.state != "stopping"
    ]
    return {"out": out, "seen": len(seen)}


def open_calibrations(session: Session, offered: Mapping[str, Benchmark]) -> list[Context]:
    """List calibrations under way, or waiting to be continued or adopted."""
    rows = session.scalars(
        select(Calibration)
        .where(Calibration.adopted_at.is_(None), Calibration.state != "cancelled")
        .order_by(Calibration.created_at.desc())
        .limit(MOST)
    )
    return [
        each.model_dump(mode="json")
        for each in summaries(session, rows, offered)
        if each.state == "running" or not each.outdated
    ]


@page(BATCH, "verify.html", role="organiser")
def verify_page(
    session: Session,
    caller: Caller,
    kind: str = "replay",
    submissions: str = "",
    benchmark: str = "",
    status: str = "",
    preview: str = "",
    ids: Marked = None,
) -> Context:
    """Show the form to choose submissions, or with `preview` the dry run of a choice."""
    chosen = {"submissions": " ".join(ids or [submissions]), "benchmark": benchmark}
    typed = filled(chosen | {"kind": kind, "status": status})
    return {
        "typed": typed,
        "preview": None,
        "lacking": Fleet.read(session).lacks,
        "under_way": under_way(session),
        "benchmarks": [("", "–"), *sorted(benchmarks_of(session))],
        "statuses_to_choose": [("", "any status"), *get_args(Status)],
        **(_dry_run(session, caller, typed) if preview else {}),
    }


def _dry_run(session: Session, caller: Caller, typed: Mapping[str, str]) -> Context:
    wanted, errors = read_form(BatchCreate, chosen_fields(typed) | DRY_RUN)
    if wanted is None:
        # An error of the whole form is shown at its first field.
        names = {"form": "submissions"}
        return {"errors": {names.get(name, name): words for name, words in errors.items()}}
    try:
        preview = verify_batch(session, caller, wanted)
    except ServerError as error:
        return {"refusal": error}
    listed = [item.submission_id for item in preview.replays]
    listed += [item.submission_id for item in preview.skipped]
    known = ((name, session.get(Submission, name)) for name in listed)
    return {
        "preview": preview,
        "names": {name: row_name(brief(found)) for name, found in known if found is not None},
        "kind": wanted.kind,
        "shown": " ".join(item.submission_id for item in preview.replays),
        "back": f"{BATCH}?{urlencode(typed)}",
    }


@page(HEAD_TO_HEADS, "head_to_heads.html", role="organiser")
def head_to_heads_page(
    session: Session, challenger: str = "", holder: str = "", ids: Marked = None
) -> Context:
    """Show the latest head-to-heads and a form. The second of two marked rows challenges."""
    if ids is not None and len(ids) > 1:
        holder, challenger = ids[:2]
    found = session.scalars(
        select(Verification)
        .where(Verification.kind == "head_to_head")
        .order_by(Verification.created_at.desc())
        .limit(LATEST)
        .options(*SHOWN)
    )
    sides = [session.get(Submission, name) if name else None for name in (challenger, holder)]
    return {
        "typed": {"challenger": challenger, "holder": holder},
        "head_to_heads": [line(session, item) for item in found],
        "cost": _cost(session, *sides),
        "sides": [side and {"id": side.id, "words": row_name(brief(side))} for side in sides],
        "offered": [(each.id, row_name(brief(each))) for each in _opponents(session, sides[0])],
    }


def _cost(
    session: Session, challenger: Submission | None, holder: Submission | None
) -> Cost | None:
    if challenger is None or holder is None:
        return None
    benchmark = definition(session, challenger.benchmark_sha256)
    if why_no_head_to_head(benchmark, claim_of(challenger), claim_of(holder)) is not None:
        return None
    pairs = benchmark.ranking.pairs
    return cost_of_head_to_head(session, benchmark, (challenger, holder), pairs=pairs)


def _opponents(session: Session, challenger: Submission | None) -> Sequence[Submission]:
    if challenger is None:
        return []
    hardware_class = Submission.system["hardware_class"].as_string()
    seconds = func.coalesce(Pool.measured_seconds, Submission.tta_seconds)
    return session.scalars(
        select(Submission)
        .outerjoin(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == challenger.benchmark_id,
            Submission.kind == "train",
            Submission.division == challenger.division,
            Submission.withdrawn_at.is_(None),
            Submission.duplicate_of.is_(None),
            seconds.is_not(None),
            Submission.id != challenger.id,
            hardware_class == challenger.system["hardware_class"],
        )
        .order_by(seconds)
        .limit(LATEST)
    ).all()


@page(DECIDE, "decisions.html", role="organiser")
def decisions_page(session: Session) -> Context:
    """Show every waiting verdict."""
    return {"pending": pending_verdicts(session)}


@page(DECIDE + "/{verification_id}", "decision.html", role="organiser")
def decision_page(session: Session, verification_id: str) -> Context:
    """Show a waiting verdict with the published one."""
    verification = find_verification(session, verification_id)
    submission = require_submission(verification)
    published = published_verification(submission)
    standing = published if published is not verification else None
    comparison = _comparison(session, standing, verification)
    figures = (comparison.first.runs, comparison.second.runs) if comparison else ([], [])
    left = [each["id"] for each in pending_verdicts(session) if each["id"] != verification.id]
    context = submission_context(session, submission)
    benchmark = benchmarks_of(session).get(submission.benchmark_id)
    boards = [] if benchmark is None else list_records(session, benchmark).divisions
    before = row_evidence(submission)
    is_judged = verification.outcome is not None and checks_claim(verification, submission)
    after = row_if_published(session, submission, verification) if is_judged else before
    return {
        "submission": context["submission"],
        "standing": None if standing is None else _side(standing, submission, figures[0]),
        "waiting": _side(verification, submission, figures[1]),
        "comparison": comparison,
        "next": left[0] if left else None,
        "left": len(left),
        "words": (evidence_words(before), evidence_words(after)),
        "is_lost": after["evidence"] == "claimed",
        "holds_record": submission.id in {board.holder for board in boards},
        "time": context["time"],
    }


def _side(
    verification: Verification, submission: Submission, figures: Sequence[ReplayFigures]
) -> Context:
    report = report_of(verification)
    return {
        "id": verification.id,
        "kind": verification.kind,
        "outcome": verification.outcome or verification.state,
        "ended_at": verification.ended_at,
        "worker": report.system.worker if report is not None else None,
        "reason": verification.reason,
        "reasons": verification.reasons,
        "pending": is_pending(verification, submission),
        "settled": _settled(verification),
        "runs": [vars(run) for run in figures],
        "cpu_share": None if report is None else cpu_share(report),
    }


def _settled(verification: Verification) -> str:
    if verification.decision is None:
        return f"This verification is {verification.state}. It has no verdict to decide about."
    words = DECIDED[verification.decision]
    return f"The decision on this verdict was {words}: {verification.decision_reason}"


def _comparison(
    session: Session, standing: Verification | None, waiting: Verification
) -> VerificationComparison | None:
    """Compare both replays or measurements. Latencies have no runs to compare."""
    if standing is None or standing is waiting:
        return None
    if not (purpose_of(standing).fills_pool and purpose_of(waiting).fills_pool):
        return None
    return get_verification_comparison(session, standing.id, waiting.id)


@page(CONSOLE, "workers.html", role="organiser")
def workers_page(
    session: Session, what: str = "", action: str = "pause", cursor: CursorDep = None
) -> Context:
    """Show workers, the queue, and the form to change a worker or every queue."""
    found = list_workers(session, cursor=cursor)
    names = [worker.name for worker in found.workers]
    chosen = what.removeprefix(WORKER)
    if what.startswith(WORKER) and chosen not in names:
        names.append(chosen)
    following = found.next_cursor
    return {
        "typed": {"what": what, "action": action},
        "workers": found.workers,
        "first": None if cursor is None else CONSOLE,
        "following": following and f"{CONSOLE}?{urlencode({'cursor': following})}",
        "here_query": "" if cursor is None else f"{urlencode({'cursor': cursor})}&",
        "queue": get_queue(session, limit=1),
        "choices": [
            ("", "–"),
            (EVERY_QUEUE, "every queue"),
            *((f"{WORKER}{name}", f"worker {name}") for name in names),
        ],
    }
