"""A replay as a race: how far its runs are, and the ghosts it runs against."""

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.run import Evaluation, evaluation_of
from server.base.board_versions import board_version
from server.base.models import PoolRun, ReplayEventRow, Submission, Verification
from server.base.standing import find_verification, purpose_of, report_of
from server.benchmarks.queries import definition
from server.boards.records import first_places, held_record
from server.boards.run_curves import epochs_per_evaluation, mean_curve, median_run, run_curve
from server.boards.schemas import EvaluationSoFar, GhostPointView, GhostView, RaceView, RunSoFar
from server.submissions.service import find_submission, runs_with_curves
from web.names import hardware_words


def read_race(session: Session, verification_id: str) -> RaceView:
    """The runs so far and the ghosts of a verification. Raises NotFoundError."""
    verification = find_verification(session, verification_id)
    ghosts, why_no_record = _ghosts(session, verification)
    attempts = verification.attempts
    return RaceView(
        verification_id=verification.id,
        attempt=attempts[-1].number if attempts else None,
        runs=_runs_so_far(session, verification),
        ghosts=ghosts,
        why_no_record=why_no_record,
    )


def _runs_so_far(session: Session, verification: Verification) -> list[RunSoFar]:
    if verification.report is not None:
        return [
            RunSoFar(index=run["index"], status=run["status"], evaluations=run["evaluations"])
            for run in verification.report["runs"]
        ]
    if not verification.attempts:
        return []
    events = session.scalars(
        select(ReplayEventRow.event)
        .where(ReplayEventRow.attempt_id == verification.attempts[-1].id)
        .order_by(ReplayEventRow.sequence)
    )
    runs: dict[int, RunSoFar] = {}
    for event in events:
        _take(event, runs)
    return [runs[index] for index in sorted(runs)]


def _take(event: dict[str, Any], runs: dict[int, RunSoFar]) -> None:
    index = event["run"]
    run = runs.setdefault(index, RunSoFar(index=index, status=None, evaluations=[]))
    if event["kind"] == "evaluation" and None not in (event["seconds"], event["quality"]):
        told = {name: event[name] for name in ("epoch", "seconds", "quality")}
        second = event.get("second_half")
        run.evaluations.append(EvaluationSoFar(**told, second_half=second))
    elif event["kind"] == "run_finished":
        runs[index] = run.model_copy(update={"status": event["status"]})


def _ghosts(session: Session, verification: Verification) -> tuple[list[GhostView], str | None]:
    claim = verification.submission
    if claim is None or not purpose_of(verification).is_replay:
        return [], None
    return read_ghosts(session, claim, definition(session, verification.benchmark_sha256))


def read_ghosts(
    session: Session, claim: Submission, benchmark: Benchmark
) -> tuple[list[GhostView], str | None]:
    """The record and the mean of a claim's own runs as ghosts, and why there is no record."""
    own_runs = runs_with_curves(session, claim.id)
    if not own_runs:
        return [], "no curve of the claim is stored"
    mean = mean_curve([[evaluation_of(row) for row in run.curve] for run in own_runs])
    ghost_of_claim = _ghost("claim", claim, mean, is_own=True)
    holder = _record_holder(session, benchmark, claim)
    if holder is None:
        return [ghost_of_claim], f"no submission holds the record of {claim.division} yet"
    curve = _median_curve(session, holder)
    points = run_curve(curve, epochs_per_evaluation=epochs_per_evaluation(mean))
    if not points:
        return [ghost_of_claim], "the submission that holds the record has no curve"
    record = _ghost("record", holder, points, is_own=holder.id == claim.id)
    return [record, ghost_of_claim], None


def _record_holder(session: Session, benchmark: Benchmark, claim: Submission) -> Submission | None:
    """Who is first on the board of a submission: of its hardware class, or of its archive."""
    if claim.evidence == "published":
        held = held_record(session, benchmark, claim.division)
        return None if held is None else find_submission(session, held.submission_id)
    version = board_version(session, benchmark.benchmark_id)
    board = (claim.division, claim.system["hardware_class"])
    place = first_places(session, benchmark, version).get(board)
    if place is None or place.holder is None:
        return None
    return find_submission(session, place.holder.submission_id)


def _median_curve(session: Session, holder: Submission) -> list[Evaluation]:
    """Evaluations of the median of the runs that make a submission's time."""
    if holder.evidence != "measured":
        place = median_run([run.tta_seconds for run in holder.runs])
        return [] if place is None else [evaluation_of(row) for row in holder.runs[place].curve]
    made = PoolRun.pool_id == holder.pool_id
    order = (PoolRun.verification_id, PoolRun.index)
    runs = session.scalars(select(PoolRun).where(made).order_by(*order)).all()
    place = median_run([run.seconds for run in runs])
    if place is None:
        return []
    report = report_of(session.get_one(Verification, runs[place].verification_id))
    trained_runs = [] if report is None else report.runs
    index = runs[place].index
    trained = next((run.evaluations for run in trained_runs if run.index == index), ())
    return [Evaluation(each.epoch, each.seconds, each.quality, each.samples) for each in trained]


def _ghost(
    role: Literal["record", "claim"],
    submission: Submission,
    points: Sequence[GhostPointView],
    *,
    is_own: bool,
) -> GhostView:
    return GhostView.of(
        submission,
        role=role,
        is_own=is_own,
        submission_id=submission.id,
        hardware=hardware_words(submission.system),
        hardware_class=submission.system["hardware_class"],
        points=points,
    )
