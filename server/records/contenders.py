"""Who has to be looked at to tell the records of a board: its first submissions, and the faster.

A record is taken by lower times alone. So once the holder after the first few submissions is known,
nobody with a higher time matters, and of thousands a hundred are read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from rules.ranking import POSSIBLE
from rules.records import HOLDS_NONE, Contender, in_time_order, record_history
from server.models import Submission
from server.submissions.run_times import convergence_factor, run_times
from server.submissions.visibility import ranks

# How many of the first submissions are read, by the time they were sent: about as many as are then
# left that were faster, on a board of some thousands.
FIRST = 64
COLUMNS = (
    Submission.id,
    Submission.division,
    Submission.tta_seconds,
    Submission.submitted_at,
    Submission.submitted_on,
)
ByDivision = Mapping[str, Sequence[Contender]]


class _RunTimes:
    """The runs of submissions on the scale of their times, read when somebody looks at them.

    Only who challenges a holder is looked at. Those who may are read together; who does without
    having been foreseen is read alone.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: dict[str, list[float]] = {}

    def of(self, submission_id: str) -> list[float]:
        """The seconds of each run that reached the target."""
        if submission_id not in self._found:
            self.read([submission_id])
        return self._found[submission_id]

    def read(self, submission_ids: Iterable[str]) -> None:
        """Read those of some submissions, unless they are here."""
        missing = [name for name in submission_ids if name not in self._found]
        if not missing:
            return
        among = Submission.id.in_(missing)
        times = run_times(self._session, among)
        figures = select(Submission.id, Submission.tta_seconds, Submission.result)
        for row in self._session.execute(figures.where(among)):
            factor = convergence_factor(row.tta_seconds, row.result)
            self._found[row.id] = [seconds * factor for seconds in times.get(row.id, ())]


class _Runs(Sequence[float]):
    """The runs of one submission, once somebody looks at them."""

    def __init__(self, times: _RunTimes, submission_id: str) -> None:
        self._times = times
        self._submission_id = submission_id

    def __len__(self) -> int:
        return len(self._times.of(self._submission_id))

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> list[float]: ...

    def __getitem__(self, index: int | slice) -> float | list[float]:
        return self._times.of(self._submission_id)[index]


def contenders_that_matter(session: Session, benchmark_id: str) -> ByDivision:
    """The trainings of a board without which its record history would be another, by division.

    Others may be among them, but for those that can hold no record. Their runs are read while the
    session lasts.
    """
    which = _may_hold(benchmark_id)
    times = _RunTimes(session)
    until = _sent_at(session, benchmark_id, FIRST)
    if until is None:
        return _contenders(session, times, which)
    # Dates are ordered as text: a day that an archive names stands before all moments of that day.
    is_sent = Submission.submitted_on.is_(None)
    is_first = or_(
        Submission.submitted_on <= until.date(), and_(is_sent, Submission.submitted_at <= until)
    )
    is_later = or_(
        Submission.submitted_on > until.date(), and_(is_sent, Submission.submitted_at > until)
    )
    first = _contenders(session, times, [*which, is_first])
    rest = [*which, is_later, *_faster(first)]
    found = defaultdict(list, {division: list(those) for division, those in first.items()})
    for division, faster in _contenders(session, times, rest).items():
        found[division] += faster
    times.read(_challengers(found))
    return found


def _may_hold(benchmark_id: str) -> list[ColumnElement[bool]]:
    return [
        Submission.benchmark_id == benchmark_id,
        Submission.kind == "train",
        Submission.tta_seconds.between(*POSSIBLE["tta_seconds"]),
        Submission.eligible.is_(True),
        Submission.status.not_in(HOLDS_NONE),
        ranks(),
    ]


def _sent_at(session: Session, benchmark_id: str, count: int) -> datetime | None:
    """When the last of so many first submissions was sent; None if there are no more than that."""
    statement = select(Submission.submitted_at).where(Submission.benchmark_id == benchmark_id)
    sent = session.scalars(statement.order_by(Submission.submitted_at).offset(count - 1).limit(2))
    moments = sent.all()
    return moments[0] if len(moments) == 2 else None


def _faster(first: ByDivision) -> list[ColumnElement[bool]]:
    """The condition of a lower time than that of the holder after the first of its division.

    The holders' times only fall, so who is not below it at the end of these is never below one.
    """
    holders = {
        division: record_history(contenders).records[-1].tta_seconds
        for division, contenders in first.items()
    }
    others = Submission.division.not_in(holders)
    below = [
        and_(Submission.division == division, Submission.tta_seconds < seconds)
        for division, seconds in holders.items()
    ]
    return [or_(others, *below)]


def _contenders(
    session: Session, times: _RunTimes, which: Sequence[ColumnElement[bool]]
) -> ByDivision:
    found: defaultdict[str, list[Contender]] = defaultdict(list)
    for row in session.execute(select(*COLUMNS).where(*which)):
        found[row.division].append(_contender(row, times))
    times.read(_challengers(found))
    return found


def _contender(row: Any, times: _RunTimes) -> Contender:
    return Contender(
        submission_id=row.id,
        date=(row.submitted_on or row.submitted_at).isoformat(),
        tta_seconds=row.tta_seconds,
        runs=_Runs(times, row.id),
        eligible=True,
    )


def _challengers(found: ByDivision) -> list[str]:
    """Whose runs are looked at, but for some: a record may be missed by the lowest time so far."""
    return [name for contenders in found.values() for name in _lowest_in_turn(contenders)]


def _lowest_in_turn(contenders: Iterable[Contender]) -> list[str]:
    """Those with a lower time than everybody before them."""
    lowest: float | None = None
    found = []
    for one in in_time_order(contenders):
        if one.tta_seconds is not None and (lowest is None or one.tta_seconds < lowest):
            lowest = one.tta_seconds
            found.append(one.submission_id)
    return found
