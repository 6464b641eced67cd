"""Settle boards: give each its reference, start its next head-to-head, and retire a holder."""

import io
import json
import logging
from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from finishline.api.submissions import SubmissionView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.purposes import REPLAY
from server.base.artifacts import ArtifactStore, Staged
from server.base.board_versions import board_versions
from server.base.database import OUTAGES, Services, find_row, utc_now
from server.base.errors import ConflictError, NotAllowedError, ServerError, UsedUpError
from server.base.fleet import Fleet
from server.base.http import note
from server.base.models import Submission, User, Verification, WorkerRow
from server.base.standing import claim_of, reference_model
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import definition
from server.people.callers import Caller
from server.people.declared import Routes
from server.submissions.rows import (
    changed_view,
    new_id,
    no_result,
    stored_result,
    system_of_worker,
    table_of,
)
from server.submissions.standing_changes import (
    WithdrawalCreate,
    changed_standing,
    configuration_sha256,
    link,
)
from server.verifications.head_to_heads import (
    REFERENCE,
    REFERENCE_RUNS,
    Board,
    FirstPlace,
    queue_pairs,
    read_first_places,
)
from server.verifications.jobs import Order, move
from server.verifications.pools import follow_evidence
from server.verifications.requests import queue_request, require_comparable, reserve_head_to_head

router = Routes(tags=["submissions"])
log = logging.getLogger(__name__)
MOST_TRIES = 3  # At a reference, by the server. Later an organiser asks.


class BoardSettler:
    """Settles each board whose version changed since the last time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._settled: dict[str, int] = {}  # The version read before.

    def settle(self, *, every: bool = False) -> bool:
        """Settle changed boards, or `every` board. Returns whether references or pairs were due."""
        database, did = self._services.database, False
        with database.read(ORGANISER) as session:
            versions = board_versions(session)
        for benchmark_id, version in versions.items():
            benchmark = self._services.benchmarks.get(benchmark_id)
            if benchmark is None or (self._settled.get(benchmark_id) == version and not every):
                continue
            try:
                did = self._settle(benchmark) or did
            except OUTAGES:
                raise
            except IntegrityError:  # Another server was first, and changed the board.
                continue
            except Exception:
                log.exception("the boards of %s were not settled", benchmark_id)
            self._settled[benchmark_id] = version
        return did

    def _settle(self, benchmark: Benchmark) -> bool:
        with self._services.database.read(ORGANISER) as session:
            without = _boards_without_reference(session, benchmark)
            failed = _failed_references(session, benchmark)
            places = read_first_places(session, benchmark).values()
        is_due = any(place.challengers() or place.outdated for place in places)
        if is_due := bool(without or failed) or is_due:
            settle_board(self._services, benchmark, {division for division, _ in without})
        return is_due


def settle_board(services: Services, benchmark: Benchmark, divisions: Iterable[str]) -> None:
    """Give boards of these divisions their references, and each holder its next challenger."""
    store = services.artifacts
    claims = {division: _claim_file(store, benchmark, division) for division in divisions}
    store.settle(claims.values())
    with services.database.write() as session:
        for board in _boards_without_reference(session, benchmark):
            # Runs of the reference are shared between the divisions.
            if board[0] in claims and not _waits_for_reference(session, benchmark, board):
                _add_reference(session, benchmark, board, claims[board[0]])
        for reference in _failed_references(session, benchmark):
            if not _waits_for_reference(session, benchmark, _board_of(reference)):
                _measure_reference(session, benchmark, reference)
        session.flush()
        for place in read_first_places(session, benchmark).values():
            for verification_id in place.outdated:  # Their holder has lost first place meanwhile.
                move(session, session.get_one(Verification, verification_id), "cancel")
        session.flush()
        for board, place in read_first_places(session, benchmark).items():
            if not _waits_for_reference(session, benchmark, board):
                _begin_next(session, place)
        store.keep(claims.values())


def _boards_without_reference(session: Session, benchmark: Benchmark) -> list[Board]:
    if benchmark.replay is None:
        return []
    hardware_class = Submission.system["hardware_class"].as_string()
    trained = session.execute(
        select(Submission.division, hardware_class)
        .where(
            Submission.benchmark_id == benchmark.benchmark_id,
            Submission.kind == "train",
            (Submission.status == "verifying") | (Submission.evidence == "measured"),
            Submission.embargoed.is_(False),
            Submission.withdrawn_at.is_(None),
            Submission.trained_with != "own",
        )
        .distinct()
    )
    made = {_board_of(each) for each in _references(session, benchmark)}
    return sorted({(row[0], row[1]) for row in trained} - made)


def _references(session: Session, benchmark: Benchmark) -> Sequence[Submission]:
    query = select(Submission).where(Submission.benchmark_id == benchmark.benchmark_id)
    named = query.join(Submission.user).where(User.name == REFERENCE)
    return session.scalars(named).unique().all()


def _board_of(submission: Submission) -> Board:
    return submission.division, submission.system["hardware_class"]


def _failed_references(session: Session, benchmark: Benchmark) -> list[Submission]:
    classes = {worker.hardware_class for worker in Fleet.read(session).open}
    return [
        each
        for each in _references(session, benchmark)
        if each.system["hardware_class"] in classes
        and (each.status, each.withdrawn_at) == ("claimed", None)
        and {one.state for one in each.verifications} == {"failed"}
        and len(each.verifications) < MOST_TRIES
    ]


def _waits_for_reference(session: Session, benchmark: Benchmark, board: Board) -> bool:
    found = _references(session, benchmark)
    return any(each.status == "verifying" and _board_of(each)[1] == board[1] for each in found)


def _claim_file(store: ArtifactStore, benchmark: Benchmark, division: str) -> Staged:
    claim = {
        "benchmark": benchmark.benchmark_id,
        "division": division,
        "model": reference_model(benchmark, {}),
        "trained_with": "reference",
        "hyperparameters": {},
        "runs": [],
    }
    return store.stage(io.BytesIO(json.dumps(claim, indent=2, sort_keys=True).encode()))


def _add_reference(session: Session, benchmark: Benchmark, board: Board, claim: Staged) -> None:
    division, hardware_class = board
    worker = session.scalars(
        select(WorkerRow)
        .where(WorkerRow.hardware_class == hardware_class, WorkerRow.confirmed_at.is_not(None))
        .order_by(WorkerRow.last_seen_at.desc())
        .limit(1)
    ).first()
    if worker is None:
        return
    user = session.scalar(select(User).where(User.name == REFERENCE))
    if user is None:
        now = utc_now()
        user = User(name=REFERENCE, role="submitter", created_at=now, known_at=now)
        session.add(user)
        session.flush()
    submission = Submission(
        id=new_id(),
        user_id=user.id,
        user=user,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        division=division,
        model=reference_model(benchmark, {}),
        framework="PyTorch",
        system=table_of(system_of_worker(hardware_class, worker.system)),
        hyperparameters={},
        claim_sha256=claim.sha256,
        status="claimed",
        kind="train",
        trained_with="reference",
        eligible=True,
        result=stored_result(no_result(benchmark)),
        request_sha256=claim.sha256,
        submitted_at=utc_now(),
        evidence="claimed",
        check_word="none",
    )
    session.add(submission)
    session.flush()
    submission.configuration_sha256 = configuration_sha256(benchmark, claim_of(submission))
    _take_the_place_of_equals(session, submission)
    _measure_reference(session, benchmark, submission)


def _measure_reference(session: Session, benchmark: Benchmark, reference: Submission) -> None:
    """Queue a reference's runs, or share its runs of another division."""
    twins = (
        each
        for each in _references(session, benchmark)
        if each is not reference and _board_of(each)[1] == _board_of(reference)[1]
    )
    twin = next((each for each in twins if each.pool_id is not None), None)
    if twin is not None:
        reference.pool_id = twin.pool_id
        follow_evidence(session, reference)
        return
    why, wishes = "the first holder of its board", {"runs": REFERENCE_RUNS}
    queue_request(session, Order(REPLAY, reference.user_id, why, reference, wishes=wishes))


def _take_the_place_of_equals(session: Session, reference: Submission) -> None:
    equals = select(Submission).where(
        Submission.configuration_sha256 == reference.configuration_sha256,
        Submission.id != reference.id,
        Submission.duplicate_of.is_(None),
        Submission.embargoed.is_(False),
        Submission.withdrawn_at.is_(None),
    )
    for one in session.scalars(equals).unique().all():
        reference.pool_id = reference.pool_id or one.pool_id
        link(session, one, reference)


def _begin_next(session: Session, place: FirstPlace) -> None:
    if place.holder is None:
        return
    for submission_id in place.challengers():
        challenger = session.get_one(Submission, submission_id)
        holder = session.get_one(Submission, place.holder.submission_id)
        try:
            require_comparable(session, challenger, holder)
        except ServerError as why:
            log.info("no head-to-head of %s: %s", submission_id, why)
            continue
        try:
            reserved = reserve_head_to_head(session, challenger, holder)
        except (UsedUpError, NotAllowedError):
            continue
        queue_pairs(
            session,
            challenger,
            holder,
            requested_by=challenger.user_id,
            reason="its measured time is below the holder's",
            reserved=reserved,
        )
        return


@router.command("/submissions/{submission_id}/retirement", role="organiser")
def retire_submission(
    session: Session, caller: Caller, submission_id: str, body: WithdrawalCreate
) -> SubmissionView:
    """Take first place from a holder that can't be trained any more, with the reason.

    The previous holder that can be trained follows. The records keep the retired holder. A
    reinstatement undoes it.
    """
    note(submission_id=submission_id)
    submission = find_row(session, Submission, submission_id)
    benchmark = definition(session, submission.benchmark_sha256)
    places = read_first_places(session, benchmark).values()
    holders = {place.holder.submission_id for place in places if place.holder is not None}
    if submission_id not in holders:
        raise ConflictError(
            f"Submission {submission_id} is not the holder of a board, and only a holder retires."
        )
    with changed_standing(session, caller, "submission.retire", submission, body.reason):
        at = utc_now().isoformat()
        submission.retirement = {"at": at, "by": caller.name, "reason": body.reason}
    return changed_view(session, submission)
