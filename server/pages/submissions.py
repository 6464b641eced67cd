"""Show a submission with the buttons of its reader, and its badge for a README."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import orjson
from fastapi import Query, Request, Response
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from finishline.rules.scoring.scoring import RunScore, measured_steps
from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from finishline.rules.verification.replay import why_not_replayable
from server.base.database import benchmarks_of, find_row, site_address
from server.base.fleet import Fleet
from server.base.http import tagged
from server.base.models import Pool, Submission, Verification
from server.base.standing import (
    OPEN,
    Estimator,
    claim_of,
    find_verification,
    kind_that_checks,
)
from server.base.visibility import Viewer, is_source_public
from server.benchmarks.definitions import definition
from server.benchmarks.phases import current_dates
from server.boards.board import query_of, ranked_board
from server.boards.live import read_ghosts
from server.boards.records import held_record
from server.boards.rows import measured_runs
from server.pages.declared import Context, public_page
from server.pages.entries import entry_context, run_groups
from server.pages.queries import (
    brief,
    ranking_curves,
    submission_context,
    submission_page_context,
    submission_with_curves,
)
from server.pages.verifications import shown_verification
from server.people.callers import (
    get_signed_in,
    signed_in_or_none,
)
from server.people.declared import Routes
from server.submissions.standing_changes import (
    broken_rules,
    may_withdraw,
)
from server.verifications.requests import AskedFor, why_no_room
from server.verifications.views import view
from web.charts.curves import runs_chart
from web.citation import Badge
from web.citation import badge as badge_of
from web.progress import kind_word
from web.render import render

router = Routes(include_in_schema=False)
TabQuery = Annotated[Literal["result", "runs", "scoring", "system", "history", "cite"], Query()]


@public_page("/submissions/{submission_id}", "submission.html")
def submission_page(
    session: Session, viewer: Viewer, request: Request, submission_id: str, tab: TabQuery = "result"
) -> Context:
    """Show a submission: its runs and verdict, or its score, system, history, citation."""
    # Held here, so that each part of the page finds it loaded.
    submission = find_row(session, Submission, submission_id)
    context = submission_page_context(session, submission)
    context |= {
        "tab": tab,
        "site": site_address(request),
        "held": _held(session, submission),
        "head_to_heads": _head_to_heads_under_way(session, submission),
        "original": _original(session, submission),
        "entry": None,
        "score": _measured_score(session, submission),
    }
    context |= _for_its_owner(session, request, submission)
    if context["submission"]["package"] is not None:
        context["entry"] = entry_context(session, viewer, submission)
    if tab == "runs":
        uses = context["score"]["uses"] if context["score"] else {}
        context["groups"] = run_groups(session, submission, uses)
    return context | _shown(session, submission, context, tab)


def _held(session: Session, submission: Submission) -> Context | None:
    """Find the published record of a division, if the submission holds or beats it."""
    benchmark = benchmarks_of(session).get(submission.benchmark_id)
    if benchmark is None or submission.evidence != "published":
        return None
    held = held_record(session, benchmark, submission.division)
    if held is None or submission.id not in (held["submission_id"], *held["lower"]):
        return None
    return held


def _original(session: Session, submission: Submission) -> Context | None:
    if submission.duplicate_of is None:
        return None
    original = session.get(Submission, submission.duplicate_of)
    if original is None:
        return None
    pool = None if original.pool_id is None else session.get(Pool, original.pool_id)
    is_measured = pool is not None and original.evidence == "measured"
    return brief(original) | {
        "measured_seconds": pool.measured_seconds if pool is not None and is_measured else None,
        "measured_quality": pool.measured_quality if pool is not None and is_measured else None,
        "is_later": original.submitted_at > submission.submitted_at,
    }


def _measured_score(session: Session, submission: Submission) -> Context | None:
    runs = []
    if submission.evidence == "measured" and submission.kind == "train":
        runs = measured_runs(session, Submission.id == submission.id)[submission.id]
    if not runs:
        return None
    counts = Counter(run.verification_id for run in runs)
    rows = select(Verification.id, Verification.kind).where(Verification.id.in_(counts))
    sources: defaultdict[str, list[str]] = defaultdict(list)
    for row in session.execute(rows.order_by(Verification.created_at)):
        sources[kind_word({"kind": row.kind})].append(row.id)
    keys = [(run.verification_id, run.index) for run in runs]
    *each, total = measured_steps(
        [
            RunScore(
                file=f"{name} {index}",
                seed=None,
                reached=run.seconds is not None,
                tta_seconds=run.seconds,
                epochs_to_target=None,
                best_quality=run.quality,
                evaluation_interval_seconds=None,
            )
            for run, (name, index) in zip(runs, keys, strict=True)
        ],
        definition(session, submission.benchmark_sha256),
    )
    return {
        "uses": {key: step.working for key, step in zip(keys, each, strict=True)},
        "measures": each[0].formula,
        "total": asdict(total),
        "reached": sum(run.seconds is not None for run in runs),
        "sources": [
            {"kind": kind, "ids": ids, "runs": sum(counts[name] for name in ids)}
            for kind, ids in sources.items()
        ],
    }


def _head_to_heads_under_way(session: Session, submission: Submission) -> list[Context]:
    both = (Verification.submission_id, Verification.against_id)
    statement = (
        select(Verification)
        .where(
            Verification.kind == HEAD_TO_HEAD.name,
            Verification.state.in_(OPEN),
            or_(*(side == submission.id for side in both)),
        )
        .order_by(Verification.created_at, Verification.id)
    )
    found = []
    for each in session.scalars(statement):
        other = each.against if each.submission_id == submission.id else each.submission
        attempt = each.attempts[-1] if each.attempts and each.state == "running" else None
        last = (attempt.last_evaluation if attempt is not None else None) or {}
        shown = {"id": each.id, "state": each.state, "runs": each.runs, "run": last.get("run")}
        found.append(shown | {"other": None if other is None else brief(other)})
    return found


def _shown(session: Session, submission: Submission, context: Context, tab: str) -> Context:
    """Choose the verification for the first tab, and the measured or logged runs to draw."""
    shown, chart = None, None
    is_measured = submission.evidence == "measured" and submission.kind == "train"
    found = _most_telling(submission, context["checks"]) if tab == "result" else None
    if found is not None:
        row = find_verification(session, found)
        verification = view(session, row).model_dump(mode="json")
        shown = shown_verification(session, row, verification, context["time"])
    curves = []
    if is_measured and tab == "result":
        curves = ranking_curves(session, submission)
    elif submission.kind == "train" and (tab == "runs" or (tab == "result" and not shown)):
        curves = submission_with_curves(session, submission)
    if curves:
        is_result = tab == "result"
        benchmark = definition(session, submission.benchmark_sha256)
        ghosts = read_ghosts(session, submission, benchmark)[0] if is_result else []
        chart = runs_chart(
            curves,
            context["benchmark"]["target"],
            [g.model_dump(mode="json") for g in ghosts if g.role == "record" and not g.is_own],
            time=context["time"],
        )
    return {"shown": shown, "curves": curves, "chart": chart, "is_measured": is_measured}


def _most_telling(submission: Submission, checks: Sequence[Context]) -> str | None:
    """Choose the verification under way, or else the published, or else the latest.

    With a measured time the published one is first, because its runs make the time.
    """
    kind = kind_that_checks(submission)
    mine = [check for check in checks if check["kind"] == kind]
    open_ones = [check for check in mine if check["state"] in OPEN]
    published = [check for check in mine if check["published"]]
    wanted = [published, open_ones] if submission.evidence == "measured" else [open_ones, published]
    first = next(iter([*wanted[0], *wanted[1], *mine]), None)
    return None if first is None else str(first["id"])


@router.read("/submissions/{submission_id}/badge.svg")
def badge(session: Session, request: Request, submission_id: str) -> Response:
    """Serve the SVG badge of a submission's state. Caches revalidate it on every request."""
    content = render("badge.svg", badge=_badge(session, submission_id))
    return tagged(request, content.encode(), "image/svg+xml")


@router.read("/submissions/{submission_id}/badge.json")
def badge_json(session: Session, request: Request, submission_id: str) -> Response:
    """Serve the same badge for shields.io's endpoint badge."""
    content = _badge(session, submission_id).endpoint()
    return tagged(request, orjson.dumps(content), "application/json")


def _badge(session: Session, submission_id: str) -> Badge:
    submission = find_row(session, Submission, submission_id)
    context = submission_context(session, submission)
    benchmark = benchmarks_of(session).get(submission.benchmark_id)
    numbered = 0  # Also if the benchmark was removed.
    if benchmark is not None:
        board = ranked_board(session, benchmark, query_of(benchmark, submission))
        numbered = board.order.numbered
    return badge_of(context["submission"], context["time"], of=numbered)


@public_page("/submissions/{submission_id}/verify", "request.html")
def request_page(
    session: Session, request: Request, submission_id: str, kind: AskedFor | None = None
) -> Context:
    """Show the runs and the cost of a verification, before it is requested."""
    submission = find_row(session, Submission, submission_id)
    caller = get_signed_in(request)
    kind = kind or kind_that_checks(submission)
    benchmark = definition(session, submission.benchmark_sha256)
    return {
        "submission": submission_context(session, submission)["submission"],
        "kind": kind,
        "epochs_alone": kind == "replay" and submission.trained_with == "own",
        "expected": Estimator(session, kind).estimate(submission, benchmark),
        "no_room": why_no_room(session, caller, submission, kind),
        "free": not caller.is_organiser,
        "lacking": Fleet.read(session).lacks,
    }


def _for_its_owner(session: Session, request: Request, submission: Submission) -> Context:
    until = None
    if submission.embargoed:
        until = current_dates(session, submission.benchmark_id).embargo_until
    caller = signed_in_or_none(request)
    may = caller is not None and may_withdraw(caller, submission)
    organises = caller is not None and caller.is_organiser
    unable, package = None, submission.trained_package
    if submission.trained_with != "package":
        benchmark = definition(session, submission.benchmark_sha256)
        unable = why_not_replayable(benchmark, claim_of(submission))
    may_verify = may and unable is None and _may_be_verified(submission)
    no_room = None
    if caller is not None and may_verify:
        no_room = why_no_room(session, caller, submission)
    may_ask = may_verify and no_room is None
    has_factors = package is not None and package.manifest["factors"] and is_source_public(package)
    # Waived rules too.
    broken = broken_rules(submission.result.get("violations", ()), ()) if organises else []
    return {
        "embargo_until": until.isoformat() if until is not None else None,
        "may_withdraw": may,
        "waivable": [rule for rule in broken if rule in WAIVABLE],
        "may": {
            "verify": may_ask,
            "organise": organises,
            "withdraw": may and submission.withdrawn_at is None,
            # The runs of an ablation may name the factors of code.
            "measure_factors": bool(has_factors) and (may_ask or organises),
        },
        "kind_that_checks": kind_that_checks(submission),
        "no_room": no_room,
        "unable": unable,
    }


def _may_be_verified(submission: Submission) -> bool:
    """Check whether the page offers a first replay, or more runs of code."""
    if submission.withdrawn_at or submission.published or submission.duplicate_of:
        return False
    if submission.trained_with == "package":
        return not any(each.state in OPEN for each in submission.verifications)
    return not submission.verifications
