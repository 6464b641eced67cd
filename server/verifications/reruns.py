"""Verify batches of submissions, and decide about pending verdicts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, StrictBool, model_validator
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from finishline.api.verifications import (
    BatchView,
    ExpectedReplay,
    Skipped,
    VerificationView,
)
from finishline.rules.ranking import consequence
from finishline.rules.text import count_text
from finishline.rules.verification.purposes import PURPOSES
from server.base.database import benchmarks_of, utc_now
from server.base.errors import ConflictError, ContentError
from server.base.events import VerificationChanged, emit
from server.base.forms import Body, Sentence, example
from server.base.models import Submission
from server.base.standing import (
    PUBLISH,
    Estimator,
    Status,
    find_verification,
    publication,
    require_pending,
    require_submission,
    row_evidence,
)
from server.benchmarks.definitions import definition, find_benchmark
from server.people.audit import Subject, record
from server.people.callers import Caller
from server.people.declared import Form, Routes, filled
from server.verifications.jobs import Order, queue_job
from server.verifications.requests import BATCH, AskedFor, require_possible
from server.verifications.views import view

router = Routes(tags=["verifications"])
DECIDE = "/console/decide"
LARGEST_BATCH = 1000


class BatchCreate(Body):
    """Submissions to verify: a list, or a benchmark's by status.

    A "replay" trains the reference with each submission's settings. A "latency" times its trained
    model.
    """

    model_config = example(benchmark="digits", status="verified", reason="new driver", dry_run=True)

    submissions: list[str] | None = Field(default=None, min_length=1, max_length=LARGEST_BATCH)
    benchmark: str | None = None
    status: Status | None = None
    reason: Sentence
    dry_run: StrictBool = False
    kind: AskedFor = "replay"

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if (self.submissions is None) == (self.benchmark is None):
            raise ValueError("name either submissions or a benchmark")
        if self.status is not None and self.benchmark is None:
            raise ValueError("a status chooses among the submissions of a benchmark")
        return self


def chosen_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """Read a batch from a form: split the ids, and leave out empty fields."""
    ids = [name for name in re.split(r"[\s,;]+", fields.get("submissions", "")) if name]
    chosen = {
        name: text for name, text in filled(fields).items() if name in BatchCreate.model_fields
    }
    return chosen | {"submissions": list(dict.fromkeys(ids)) or None}


def _queued_words(queued: BatchView, **_given: Any) -> str:
    words = count_text(len(queued.replays), "verification is", "verifications are")
    skipped = " ".join(f"{item.submission_id}: {item.why}" for item in queued.skipped)
    return f"{words} queued." + (f" Skipped since: {skipped}" if skipped else "")


@router.command(
    "/verifications/batch",
    Form(
        BATCH,
        done=_queued_words,
        read=chosen_fields,
        renamed={"form": "submissions"},
        kept=("preview", "kind", "submissions"),
    ),
    role="organiser",
)
def verify_batch(session: Session, caller: Caller, body: BatchCreate) -> BatchView:
    """Request replays of many submissions, or estimate their cost with `dry_run`.

    Skips a submission under way, a duplicate, or one that can't be replayed, with the reason.
    """
    if body.benchmark is not None:
        find_benchmark(benchmarks_of(session), body.benchmark)
    found = _chosen(session, body)
    missing = sorted(set(body.submissions or ()) - {submission.id for submission in found})
    skipped = [Skipped(submission_id=name, why="There is no such submission.") for name in missing]
    purpose, replays = PURPOSES[body.kind], list[ExpectedReplay]()
    estimator = Estimator(session, body.kind)
    for submission in found:
        try:
            order = Order(purpose, caller.user_id, body.reason, submission)
            require_possible(session, order)
        except (ConflictError, ContentError) as why:
            skipped.append(Skipped(submission_id=submission.id, why=str(why)))
            continue
        benchmark = definition(session, submission.benchmark_sha256)
        expected = estimator.estimate(submission, benchmark)
        replays.append(
            ExpectedReplay.of(
                expected,
                submission_id=submission.id,
                verification_id=None if body.dry_run else queue_job(session, order).id,
                runs_expected=expected.runs,
                seconds_expected=expected.seconds,
            )
        )
    batch = BatchView(
        dry_run=body.dry_run,
        replays=replays,
        skipped=skipped,
        gpu_seconds_expected=sum(item.seconds_expected * item.accelerators for item in replays),
        cpu_seconds_expected=sum(i.seconds_expected for i in replays if i.accelerators == 0),
    )
    if replays and not body.dry_run:
        _record_batch(session, caller, body, batch)
    return batch


def _chosen(session: Session, wanted: BatchCreate) -> Sequence[Submission]:
    if wanted.submissions is not None:
        chosen: list[ColumnElement[bool]] = [Submission.id.in_(wanted.submissions)]
    else:
        chosen = [Submission.benchmark_id == wanted.benchmark]
        if wanted.status is not None:
            chosen.append(Submission.status == wanted.status)
    query = select(Submission).where(*chosen).order_by(Submission.id).limit(LARGEST_BATCH + 1)
    found = session.scalars(query).unique().all()
    if len(found) > LARGEST_BATCH:
        raise ContentError(
            f"More than {LARGEST_BATCH} submissions: choose fewer, for example by status."
        )
    return found


def _record_batch(session: Session, caller: Caller, wanted: BatchCreate, batch: BatchView) -> None:
    after = {
        "chosen": {"kind": wanted.kind, "benchmark": wanted.benchmark, "status": wanted.status},
        "queued": {item.submission_id: item.verification_id for item in batch.replays},
        "skipped": [item.model_dump() for item in batch.skipped],
    }
    of_list = Subject("batch", "list")
    subject = Subject("benchmark", wanted.benchmark) if wanted.benchmark else of_list
    record(session, caller, "verification.batch", subject, reason=wanted.reason, after=after)


class DecisionCreate(Body):
    """Decision about a pending verdict: publish it, or keep the published one."""

    model_config = example(decision="keep", reason="the host was throttled")

    decision: Literal["publish", "keep"]
    reason: Sentence


def _decided_words(decided: VerificationView, body: DecisionCreate, **_given: Any) -> str:
    became = "is published" if body.decision == "publish" else "is kept back"
    return f"The verdict of {decided.id}, {decided.outcome}, {became}."


@router.command(
    "/verifications/{verification_id}/decision",
    Form(DECIDE + "/{verification_id}", done=_decided_words, to=DECIDE),
    role="organiser",
)
def decide_verification(
    session: Session, caller: Caller, verification_id: str, body: DecisionCreate
) -> VerificationView:
    """Publish the verdict of a rerun, or keep the published one, with the reason."""
    verification = find_verification(session, verification_id)
    submission = require_submission(verification)
    require_pending(verification)
    before, stood = publication(submission), row_evidence(submission)
    verification.decision, verification.decision_reason = body.decision, body.reason
    verification.decided_by, verification.decided_at = caller.user_id, utc_now()
    if body.decision == PUBLISH:
        emit(session, VerificationChanged(verification, "decision_published"))
    words = f"the row {consequence(stood, row_evidence(submission))}"
    record(
        session,
        caller,
        "verification.decide",
        verification,
        reason=body.reason,
        before=before,
        after=publication(submission) | {"decision": body.decision, "consequence": words},
    )
    return view(session, verification)
