"""Show a replay live: how far its runs are, and the curves it is compared with."""

import itertools
from collections.abc import Sequence
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.comparisons import Named
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.run import Evaluation, evaluation_of
from server.base.database import find_row
from server.base.models import ReplayEventRow, Submission, Verification
from server.base.standing import purpose_of
from server.benchmarks.definitions import definition
from server.boards.board import first_places
from server.boards.records import held_record
from server.boards.rows import reported_runs
from server.submissions.rows import runs_with_curves
from web.names import hardware_words

CLOSE = 0.01  # Of an evaluation: epochs are decimal numbers in logs.


class CurvePoint(Schema):
    """A quality, and the time of its measurement."""

    epoch: float | None
    seconds: float
    quality: float


class GhostPointView(CurvePoint):
    """The mean of `runs` at one evaluation of a compared curve.

    `index` counts the replay's evaluations from 1. It is null if the point is between two.
    """

    index: int | None
    runs: int


class GhostView(Named):
    """A curve to compare a replay with.

    "record" is the median run of the submission in first place, by its measured runs if it is
    measured. It may be the submission itself (`is_own`). "claim" is the mean over the submission's
    own runs.
    """

    role: Literal["record", "claim"]
    is_own: bool
    model: str
    hardware: str
    hardware_class: str
    points: list[GhostPointView]


class EvaluationSoFar(CurvePoint):
    """One evaluation of a replay. `second_half` is a quality that stops no clock, if any."""

    second_half: float | None = None


class RunSoFar(Schema):
    """A run (`index` from 0) of the latest attempt. `status` is null while it goes on."""

    index: int
    status: str | None
    evaluations: list[EvaluationSoFar]


class RaceView(Schema):
    """A replay's runs of the latest `attempt`, with the curves to compare.

    `why_no_record` says why the record's curve is missing. Only replays have curves to compare.
    """

    verification_id: str
    attempt: int | None
    runs: list[RunSoFar]
    ghosts: list[GhostView]
    why_no_record: str | None


def read_race(session: Session, verification: Verification) -> RaceView:
    """Read the runs so far of a verification, and its curves to compare."""
    claim, attempts = verification.submission, verification.attempts
    ghosts: list[GhostView] = []
    why_no_record = None
    if claim is not None and purpose_of(verification).is_replay:
        benchmark = definition(session, verification.benchmark_sha256)
        ghosts, why_no_record = read_ghosts(session, claim, benchmark)
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
        index = event["run"]
        run = runs.setdefault(index, RunSoFar(index=index, status=None, evaluations=[]))
        if event["kind"] == "evaluation" and None not in (event["seconds"], event["quality"]):
            fields = {name: event.get(name) for name in EvaluationSoFar.model_fields}
            run.evaluations.append(EvaluationSoFar.model_validate(fields))
        elif event["kind"] == "run_finished":
            runs[index] = run.model_copy(update={"status": event["status"]})
    return [runs[index] for index in sorted(runs)]


def read_ghosts(
    session: Session, claim: Submission, benchmark: Benchmark
) -> tuple[list[GhostView], str | None]:
    """Read the curves of the record and of a claim's own runs, and why the record's is missing."""
    own_runs = runs_with_curves(session, claim.id)
    if not own_runs:
        return [], "no curve of the claim is stored"
    mean = mean_curve([[evaluation_of(row) for row in run.curve] for run in own_runs])
    ghost_of_claim = _ghost("claim", claim, mean, is_own=True)
    holder = _record_holder(session, benchmark, claim)
    if holder is None:
        return [ghost_of_claim], f"no submission is in first place of {claim.division} yet"
    points = run_curve(
        _median_curve(session, holder), epochs_per_evaluation=epochs_per_evaluation(mean)
    )
    if not points:
        return [ghost_of_claim], "the submission in first place has no curve"
    record = _ghost("record", holder, points, is_own=holder.id == claim.id)
    return [record, ghost_of_claim], None


def _record_holder(session: Session, benchmark: Benchmark, claim: Submission) -> Submission | None:
    if claim.evidence == "published":
        held = held_record(session, benchmark, claim.division)
        return None if held is None else find_row(session, Submission, held["submission_id"])
    board = (claim.division, claim.system["hardware_class"])
    place = first_places(session, benchmark).get(board)
    if place is None or place.holder is None:
        return None
    return find_row(session, Submission, place.holder.submission_id)


def _median_curve(session: Session, holder: Submission) -> list[Evaluation]:
    if holder.evidence != "measured":
        place = median_run([run.tta_seconds for run in holder.runs])
        return [] if place is None else [evaluation_of(row) for row in holder.runs[place].curve]
    runs = reported_runs(session, holder.id)
    place = median_run([measured.seconds for measured, _ in runs])
    found = () if place is None else runs[place][1].evaluations
    return [Evaluation(each.epoch, each.seconds, each.quality, each.samples) for each in found]


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


def median_run(times: Sequence[float | None]) -> int | None:
    """Return the index of the median run that reached the target: the faster of two."""
    reached = sorted((seconds, place) for place, seconds in enumerate(times) if seconds is not None)
    return reached[(len(reached) - 1) // 2][1] if reached else None


def mean_curve(curves: Sequence[Sequence[Evaluation]]) -> list[GhostPointView]:
    """Average runs by evaluation, until fewer than half still train: fast ones stop early."""
    points = []
    for index, row in enumerate(itertools.zip_longest(*curves), start=1):
        there = [evaluation for evaluation in row if evaluation is not None]
        if 2 * len(there) < len(curves):
            break
        points.append(
            GhostPointView(
                index=index,
                epoch=there[0].epoch,
                seconds=sum(each.seconds for each in there) / len(there),
                quality=sum(each.quality for each in there) / len(there),
                runs=len(there),
            )
        )
    return points


def run_curve(
    curve: Sequence[Evaluation], *, epochs_per_evaluation: float | None
) -> list[GhostPointView]:
    """Match a run's evaluations to a replay's by epoch, or by count without epochs."""
    points = []
    for count, evaluation in enumerate(curve, start=1):
        index: int | None = count
        if evaluation.epoch is not None and epochs_per_evaluation is not None:
            place = evaluation.epoch / epochs_per_evaluation
            is_beside = round(place) >= 1 and abs(place - round(place)) <= CLOSE
            index = round(place) if is_beside else None
        points.append(GhostPointView.of(evaluation, index=index, runs=1))
    return points


def epochs_per_evaluation(points: Sequence[GhostPointView]) -> float | None:
    """Return the epochs between the evaluations of a mean curve. None if logs have none."""
    last = points[-1].epoch if points else None
    return (last / len(points) or None) if last else None
