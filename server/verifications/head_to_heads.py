"""Head-to-heads of two submissions, and the first place of each board.

A board belongs to a benchmark, a division and a hardware class. Its reference is the first holder.
A challenger takes first place by a head-to-head with the holder, trained in stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import and_, exists, func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import POSSIBLE
from finishline.rules.statistics.aggregate import Spread
from finishline.rules.statistics.gaps import TIME, Score
from finishline.rules.verification.head_to_head import (
    FEWEST_FOR_OWN_SPREAD,
    SIDES,
    HeadToHead,
    judge_head_to_head,
    looks_of,
    pair_runs,
    threshold,
)
from finishline.rules.verification.job import Contest
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from server.base.models import Attempt, Pool, Submission, User, Verification
from server.base.standing import OPEN, report_of
from server.benchmarks.definitions import benchmark_of, definition
from server.verifications.jobs import Order, queue_job
from server.verifications.pools import Spreads, add_to_pool, timed_runs

REFERENCE = "reference"  # The user whose submissions are the references.
REFERENCE_RUNS = 10
MOST_RETRIES = 3
WAITS = "its head-to-head waits"
Board = tuple[str, str]  # A division and a hardware class.
MeetingState = Literal["queued", "running", "won", "not_proven", "void", "cancelled"]


Ended = Literal["withdrawn", "retired"]


@dataclass(frozen=True)
class Measured:
    """A measured submission. `figure` ranks it. `submitter` is below 0 for an organisation."""

    submission_id: str
    submitter: int
    submitted_at: datetime
    figure: float
    seconds: float
    measured_at: datetime
    is_live: bool
    is_reference: bool
    withdrawn_at: datetime | None = None
    retirement: Mapping[str, Any] | None = None

    @property
    def may_hold(self) -> bool:
        """Whether it may be first: live and trainable."""
        return self.is_live and self.retirement is None

    @property
    def ended(self) -> Ended | None:
        """How somebody ended its time as a holder."""
        if self.withdrawn_at is not None:
            return "withdrawn"
        return None if self.retirement is None else "retired"

    @property
    def ended_at(self) -> datetime | None:
        """When somebody ended its time as a holder."""
        if self.withdrawn_at is not None or self.retirement is None:
            return self.withdrawn_at
        return datetime.fromisoformat(self.retirement["at"])


@dataclass(frozen=True)
class Meeting:
    """A head-to-head over all stages. It `may_be_cancelled` while its challenger's pairs wait."""

    verification_id: str
    challenger: str
    holder: str
    state: MeetingState
    started_at: datetime
    ended_at: datetime | None = None
    p_value: float | None = None
    ratio: float | None = None
    difference: float | None = None
    pairs: float | None = None
    is_below_target: bool = False
    may_be_cancelled: bool = False


@dataclass(frozen=True)
class Holding:
    """A submission in first place since a moment, by the head-to-head that it `won`, if any.

    It `returned` if it was the holder before, and the holders between ended.
    """

    row: Measured
    since: datetime
    won: Meeting | None = None
    returned: bool = False


@dataclass(frozen=True)
class FirstPlace:
    """First place of a board. `met` is with its present holder, `outdated` waits with another."""

    holdings: tuple[Holding, ...] = ()
    holder: Measured | None = None
    rows: Mapping[str, Measured] = field(default_factory=dict)
    met: Mapping[str, Sequence[Meeting]] = field(default_factory=dict)
    is_busy: bool = False
    outdated: tuple[str, ...] = ()
    score: Score = TIME

    def why_not_first(self, submission_id: str, figure: float) -> str | None:
        """Say why a row with a better figure than the holder's isn't first. None for other rows."""
        if self.holder is None or submission_id == self.holder.submission_id:
            return None
        if not self.score.is_better(figure, self.holder.figure):
            return None
        row, meetings = self.rows.get(submission_id), self.met.get(submission_id, ())
        mean = f"{self.score.direction} mean"
        if row is not None and row.ended is not None:
            return f"{mean}, {row.ended}"
        return f"{mean}, {_words_of(meetings[-1]) if meetings else WAITS}"

    def head_to_head_of(self, submission_id: str) -> str | None:
        """Find the head-to-head that the holder won, or another row's latest with the holder."""
        if self.holder is not None and submission_id == self.holder.submission_id:
            won = [each.won for each in self.holdings if each.row == self.holder and each.won]
            return won[-1].verification_id if won else None
        meetings = self.met.get(submission_id, ())
        return meetings[-1].verification_id if meetings else None

    def challengers(self) -> list[str]:
        """List rows for the next head-to-head: the submitter's fewest tries, then the oldest.

        Of one submitter's rows the best is first.
        """
        if self.holder is None or self.is_busy:
            return []
        tried: dict[int, int] = {}
        for challenger, meetings in self.met.items():
            row = self.rows.get(challenger)
            if row is not None:
                tried[row.submitter] = tried.get(row.submitter, 0) + len(meetings)
        wanted = [
            row
            for row in self.rows.values()
            if row.may_hold
            and row.submission_id != self.holder.submission_id
            and self.score.is_better(row.figure, self.holder.figure)
            and may_try(self.met.get(row.submission_id, ()))
        ]
        wanted.sort(key=lambda row: self.score.cost(row.figure))
        since = {
            row.submitter: min(r.submitted_at for r in wanted if r.submitter == row.submitter)
            for row in wanted
        }
        wanted.sort(key=lambda row: (tried.get(row.submitter, 0), since[row.submitter]))
        return [row.submission_id for row in wanted]


def _words_of(meeting: Meeting) -> str:
    if meeting.state in ("void", "cancelled"):
        return "its head-to-head had no result"
    if meeting.state in OPEN:
        return WAITS if meeting.state == "queued" else "its head-to-head is running"
    if meeting.is_below_target:
        return "its runs are below the target"
    return "not proven" + ("" if meeting.p_value is None else f": p = {meeting.p_value:.2g}")


def may_try(meetings: Sequence[Meeting]) -> bool:
    """Check whether a submission may meet the holder: once, and again after no result."""
    ended_without = meetings and meetings[-1].state in ("void", "cancelled")
    return not meetings or (bool(ended_without) and len(meetings) < MOST_RETRIES)


def find_first_place(
    rows: Sequence[Measured], meetings: Sequence[Meeting], score: Score = TIME
) -> FirstPlace:
    """Follow the head-to-heads of a board, in the order they ended, from its first holder on.

    A win counts over the last holder. If that holder is gone by now, a win also counts over the
    latest earlier holder that may hold, or else over the first row that may.
    """
    known = {row.submission_id: row for row in rows}
    in_order = sorted(
        rows, key=lambda row: (not row.is_reference, row.measured_at, score.cost(row.figure))
    )
    first_able = [row for row in in_order if row.may_hold][:1]
    if not in_order:
        return FirstPlace(rows=known)
    holdings = [Holding(in_order[0], in_order[0].measured_at)]
    chain = [in_order[0].submission_id]
    for meeting in sorted(meetings, key=lambda each: each.ended_at or each.started_at):
        there = [known[name] for name in chain if name in known and known[name].may_hold]
        present = [row.submission_id for row in (there or first_able)[-1:]]
        if meeting.state != "won" or meeting.holder not in (chain[-1], *present):
            continue
        if meeting.holder not in chain:
            before = known[meeting.holder]
            holdings.append(Holding(before, before.measured_at))
        chain.append(meeting.challenger)
        if (winner := known.get(meeting.challenger)) is not None:
            holdings.append(Holding(winner, meeting.ended_at or meeting.started_at, meeting))
    able = [each.row for each in holdings if each.row.may_hold] or first_able
    holder = able[-1] if able else None
    # A contradicted time was never a record.
    holdings = [each for each in holdings if each.row.is_live or each.row.withdrawn_at is not None]
    if holder is not None and (not holdings or holdings[-1].row != holder):
        holdings.append(_next_holding(holder, holdings))
    met: dict[str, list[Meeting]] = {}
    for meeting in meetings:
        if holder is not None and meeting.holder == holder.submission_id:
            met.setdefault(meeting.challenger, []).append(meeting)
    is_busy = any(meeting.state in OPEN for meeting in meetings)
    outdated = tuple(
        meeting.verification_id
        for meeting in meetings
        if meeting.may_be_cancelled
        and holder is not None
        and meeting.holder != holder.submission_id
    )
    return FirstPlace(tuple(holdings), holder, known, met, is_busy, outdated, score)


def _next_holding(holder: Measured, holdings: Sequence[Holding]) -> Holding:
    """Make the holding of a submission that follows without a head-to-head."""
    rows = [each.row for each in holdings]
    has_held = holder in rows
    later = rows[len(rows) - rows[::-1].index(holder) :] if has_held else rows
    ends = [row.ended_at for row in later if row.ended_at is not None]
    if has_held:
        return Holding(holder, max(ends, default=holdings[-1].since), returned=True)
    return Holding(holder, max([holder.measured_at, *ends]))


def read_first_places(session: Session, benchmark: Benchmark) -> dict[Board, FirstPlace]:
    """Read the first place of each board of a benchmark, as everybody sees it."""
    rows, score = _read_measured(session, benchmark), benchmark.score
    boards = {row.submission_id: board for board, found in rows.items() for row in found}
    meetings: dict[Board, list[Meeting]] = {}
    for meeting in read_meetings(session, benchmark.benchmark_id):
        board = boards.get(meeting.holder) or boards.get(meeting.challenger)
        if board is not None:
            meetings.setdefault(board, []).append(meeting)
    return {
        board: find_first_place(found, meetings.get(board, ()), score)
        for board, found in rows.items()
    }


def _read_measured(session: Session, benchmark: Benchmark) -> dict[Board, list[Measured]]:
    by_time = benchmark.score.by == "time"
    figure = Pool.measured_seconds if by_time else Pool.measured_quality
    is_live = and_(
        Submission.withdrawn_at.is_(None),
        Submission.evidence == "measured",
        Submission.eligible,
        Submission.duplicate_of.is_(None),
    )
    query = (
        select(
            Submission.division,
            Pool.hardware_class,
            Submission.id,
            func.coalesce(-User.organisation_id, User.id),
            Submission.submitted_at,
            figure,
            Pool.measured_seconds,
            Pool.measured_at,
            is_live,
            User.name == REFERENCE,
            Submission.withdrawn_at,
            Submission.retirement,
        )
        .join(Pool, Pool.id == Submission.pool_id)
        .join(User, User.id == Submission.user_id)
        .where(
            Submission.benchmark_id == benchmark.benchmark_id,
            Submission.kind == "train",
            Submission.embargoed.is_(False),
            Pool.measured_seconds.between(*POSSIBLE["tta_seconds"]),
            Pool.measured_at.is_not(None),
            figure.is_not(None),
        )
        .order_by(Submission.submitted_at, Submission.id)
    )
    found: dict[Board, list[Measured]] = {}
    for division, hardware_class, *fields in session.execute(query):
        found.setdefault((division, hardware_class), []).append(Measured(*fields))
    return found


STAGE = (
    *(Verification.id, Verification.submission_id, Verification.against_id, Verification.state),
    *(Verification.outcome, Verification.created_at, Verification.ended_at),
    Verification.continues_id,
    (Verification.requested_by == Submission.user_id).label("is_own"),
)


def read_meetings(session: Session, benchmark_id: str) -> list[Meeting]:
    """Read a benchmark's head-to-heads in the order they began, the stages of each as one."""
    query = (
        select(*STAGE)
        .join(Submission, Submission.id == Verification.submission_id)
        .where(Verification.kind == HEAD_TO_HEAD.name, Submission.benchmark_id == benchmark_id)
        .order_by(Verification.created_at, Verification.id)
    )
    stages = session.execute(query).all()
    judged = [stage.id for stage in stages if stage.outcome is not None]
    reasons: dict[str, Sequence[Any]] = {}
    if judged:  # They are long.
        told = select(Verification.id, Verification.reasons).where(Verification.id.in_(judged))
        reasons = {row.id: row.reasons for row in session.execute(told)}
    found: list[Meeting] = []
    places: dict[str, int] = {}
    for stage in stages:
        places[stage.id] = place = places.get(stage.continues_id, len(found))
        earlier = found[place] if place < len(found) else None
        found[place : place + 1] = [_meeting(stage, earlier, reasons.get(stage.id, ()))]
    return found


def _meeting(stage: Any, earlier: Meeting | None, reasons: Sequence[Any]) -> Meeting:
    numbers = told_numbers(reasons)
    state: MeetingState = "void"
    if stage.state in OPEN or stage.outcome == "continues":
        state = "queued" if stage.state == "queued" and earlier is None else "running"
    elif stage.outcome == "challenger_faster":
        state = "won"
    elif stage.outcome == "not_proven":
        state = "not_proven"
    elif stage.state == "cancelled":
        state = "cancelled"
    return Meeting(
        stage.id,
        str(stage.submission_id),
        str(stage.against_id),
        state,
        stage.created_at if earlier is None else earlier.started_at,
        stage.ended_at,
        p_value=numbers.get("p_value"),
        ratio=numbers.get("ratio"),
        difference=numbers.get("difference"),
        pairs=numbers.get("pairs"),
        is_below_target="below_target" in numbers,
        may_be_cancelled=stage.state == "queued" and stage.is_own,
    )


def queue_pairs(
    session: Session,
    challenger: Submission,
    holder: Submission,
    *,
    pairs: int | None = None,
    **asked: Any,
) -> Verification:
    """Queue pairs of a head-to-head, by default its first stage. `asked` goes to the order."""
    if pairs is None:
        pairs = looks_of(definition(session, challenger.benchmark_sha256).ranking.pairs)[0]
    wishes = {"pairs": pairs}
    order = Order(HEAD_TO_HEAD, submission=challenger, against=holder, wishes=wishes, **asked)
    return queue_job(session, order)


def continue_head_to_head(session: Session, verification: Verification) -> None:
    """Keep both sides' runs of an ended stage, and queue the pairs still needed."""
    challenger, holder = verification.submission, verification.against
    if challenger is None or holder is None:
        return
    for side in (holder, challenger):
        _keep_runs(session, verification, side)
    if verification.outcome != "continues":
        return
    pairs = judged_head_to_head(session, verification).next_pairs
    reserved = verification.gpu_seconds_reserved
    if reserved is not None:
        reserved *= 2 * pairs / verification.runs
    queue_pairs(
        session,
        challenger,
        holder,
        pairs=pairs,
        requested_by=verification.requested_by,
        reason=verification.reason,
        continues=verification,
        reserved=reserved,
    )


def _keep_runs(session: Session, verification: Verification, side: Submission) -> None:
    report = report_of(verification)
    pool = None if side.pool_id is None else session.get(Pool, side.pool_id)
    if report is None or pool is None or verification.outcome == "inconclusive":
        return
    benchmark = benchmark_of(session, verification)
    counted = timed_runs(verification, benchmark, report, hardware_class=pool.hardware_class)
    name = SIDES[0] if side is verification.submission else SIDES[1]
    pairs = judged_head_to_head(session, verification).pairs[-(verification.runs // 2) :]
    trained = [getattr(pair, name) for pair in pairs]
    own = {run.run for run in trained if run.ending != "void"}
    add_to_pool(
        session, benchmark, pool, verification, [run for run in counted if run.index in own]
    )


def contest_of(session: Session, verification: Verification) -> Contest:
    """Return the rule of a head-to-head. A verdict keeps its threshold and its spread."""
    benchmark = definition(session, verification.benchmark_sha256)
    pairs, told = benchmark.ranking.pairs, told_numbers(verification.reasons)
    earlier, spread = verification.earlier_stages, None
    if "class_stdev" in told:
        spread = Spread(told["class_stdev"], told["class_freedom"])
    elif not told and pairs < FEWEST_FOR_OWN_SPREAD and verification.submission is not None:
        hardware_class = verification.submission.system["hardware_class"]
        spread = Spreads(session, benchmark).of(hardware_class)
    return Contest(
        most_pairs=pairs,
        threshold=threshold_of(session, verification),
        earlier=[report for stage in earlier if (report := report_of(stage)) is not None],
        spread=spread,
    )


def told_numbers(reasons: Sequence[Any]) -> dict[str, float]:
    """Return the figures of a verdict by its reasons, empty before one."""
    found = (each["numbers"] for each in reasons if each["code"] == "head_to_head_time")
    return dict(next(found, {}))


def threshold_of(session: Session, verification: Verification) -> float:
    """Return the p-value below which the challenger wins: its verdict's, or today's before one."""
    told = told_numbers(verification.reasons).get("threshold")
    if told is not None:
        return told
    place, tries = count_tries(session, (*verification.earlier_stages, verification)[0])
    return threshold(place=place, tries=tries)


def judged_head_to_head(session: Session, verification: Verification) -> HeadToHead:
    """Judge a head-to-head up to this stage."""
    contest, last = contest_of(session, verification), report_of(verification)
    reports = [*contest.earlier, *([] if last is None else [last])]
    benchmark = benchmark_of(session, verification)
    return judge_head_to_head(pair_runs(benchmark, *reports), contest, benchmark)


def count_tries(session: Session, first: Verification) -> tuple[int, int]:
    """Return the submitter's place among this holder's challengers, and their tries so far."""
    whose = func.coalesce(-User.organisation_id, User.id)
    started = exists().where(
        Attempt.verification_id == Verification.id, Attempt.started_at.is_not(None)
    )
    query = (
        select(Verification.id, whose)
        .join(Submission, Submission.id == Verification.submission_id)
        .join(User, User.id == Submission.user_id)
        .where(
            Verification.against_id == first.against_id,
            Verification.continues_id.is_(None),
            Verification.created_at <= first.created_at,
            started | Verification.state.in_(OPEN) | (Verification.id == first.id),
        )
        .order_by(Verification.created_at, Verification.id)
    )
    tries: dict[int | None, int] = {}
    for verification_id, submitter in session.execute(query):
        tries[submitter] = tries.get(submitter, 0) + 1
        if verification_id == first.id:
            return list(tries).index(submitter) + 1, tries[submitter]
    return 1, 1
