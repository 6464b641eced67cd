"""Ask for a head-to-head, and find out who may have one."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.verifications import VerificationView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.head_to_head import looks_of, why_no_head_to_head
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from server.base.errors import ConflictError, ContentError, NotAllowedError, no_such
from server.base.forms import Body, example
from server.base.models import Submission, Verification
from server.base.services import Services
from server.base.settings import Settings
from server.base.standing import OPEN, Basis, Estimator, claim_of, kind_that_checks
from server.base.visibility import may_see
from server.benchmarks.definitions import definition, rules_that_differ
from server.people.accounts import ORGANISERS
from server.people.audit import Subject, record
from server.people.callers import Caller, viewer_for
from server.people.declared import Form, Routes
from server.submissions.lists import find_submission
from server.submissions.quotas import require_gpu_seconds
from server.verifications.first_place import FirstPlace, may_try, read_first_places
from server.verifications.head_to_heads import queue_pairs
from server.verifications.views import view

JUDGED = ("challenger_faster", "not_proven")
router = Routes(tags=["verifications"])
HEAD_TO_HEADS = "/console/head-to-heads"
NEAR = 1.1  # Times the holder's time, below which a submitter may ask for a head-to-head.


class HeadToHeadCreate(Body):
    """Request for a head-to-head: two submissions to train in turn, and the reason."""

    model_config = example(challenger="3f9k2m7q1xyz", holder="7wyexdafxm0d", reason="record claim")

    challenger: str = Field(min_length=1, max_length=20)
    holder: str = Field(min_length=1, max_length=20)
    reason: str | None = Field(default=None, max_length=2000)


@dataclass(frozen=True)
class Cost:
    """Pairs and runs of a head-to-head, the seconds of devices that all take, and their basis."""

    pairs: int
    runs: int
    seconds: float
    seconds_a_pair: float
    basis: tuple[Basis, ...]


def cost_of_head_to_head(
    session: Session, benchmark: Benchmark, sides: Sequence[Submission], *, pairs: int
) -> Cost:
    """Estimate a head-to-head by the runs that measured each side, or by their limit."""
    estimates = [
        Estimator(session, kind_that_checks(side)).estimate(side, benchmark, claim_of(side))
        for side in sides
    ]
    a_pair = sum(each.seconds / each.runs * max(each.accelerators, 1) for each in estimates)
    basis = tuple(dict.fromkeys(each.basis for each in estimates))
    return Cost(pairs, 2 * pairs, pairs * a_pair, a_pair, basis)


@router.command(
    "/head-to-heads",
    Form(
        HEAD_TO_HEADS,
        done="Head-to-head {0.id} is queued.",
        kept=("challenger", "holder"),
        role="organiser",
    ),
    role="submitter",
    status=201,
)
def request_head_to_head(
    session: Session, services: Services, caller: Caller, body: HeadToHeadCreate
) -> VerificationView:
    """Request a head-to-head: two submissions trained in turn on one worker.

    A submitter names their own row, which takes less than 1.1 times the holder's time, and the
    holder of its board. Its runs count against their quota. Organisers may name any two.
    """
    challenger, holder = _find_both(session, caller, body)
    board = challenger.division, challenger.system["hardware_class"]
    place = read_first_places(session, challenger.benchmark_id).get(board) or FirstPlace()
    if place.holder is not None and place.holder.submission_id == challenger.id:
        challenger, holder = holder, challenger
    require_comparable(session, challenger, holder)
    _require_no_other(session, challenger, holder)
    reserved = None
    if not caller.is_organiser:
        _require_own_try(caller, place, challenger, holder)
        reserved = reserve_head_to_head(session, services.settings, challenger, holder)
    verification = queue_pairs(
        session,
        challenger,
        holder,
        requested_by=caller.user_id,
        reason=body.reason,
        reserved=reserved,
    )
    record(
        session,
        caller,
        "head_to_head.request",
        Subject("verification", verification.id),
        reason=body.reason,
        after={"challenger": challenger.id, "holder": holder.id, "seal": verification.seal},
    )
    session.refresh(verification)
    return view(session, verification)


def _require_own_try(
    caller: Caller, place: FirstPlace, challenger: Submission, holder: Submission
) -> None:
    """Raise an error unless a submitter may ask: for their own row, near the holder's time."""
    ask = "Only an organiser can ask for another one."
    if challenger.user_id != caller.user_id:
        raise NotAllowedError(f"Submission {challenger.id} belongs to another user.", hint=ask)
    first, row = place.holder, place.rows.get(challenger.id)
    if first is None or holder.id != first.submission_id:
        named = "has none yet" if first is None else f"has {first.submission_id}"
        raise ConflictError(
            f"Submission {holder.id} is not the holder of its board, which {named}.", hint=ask
        )
    if row is None or not row.may_hold:
        raise ConflictError(f"Submission {challenger.id} has no measured time that may be first.")
    if row.seconds >= NEAR * first.seconds:
        raise ConflictError(
            f"Submission {challenger.id} takes {row.seconds / first.seconds:.2f} times the "
            f"holder's time, expected less than {NEAR:g} times.",
            hint=ask,
        )
    if place.is_busy:
        raise ConflictError(
            "A head-to-head of this board is under way, and a board has one at a time.",
            hint="Ask again when it has ended.",
        )
    if not may_try(place.met.get(challenger.id, ())):
        raise ConflictError("The head-to-heads of these two found nothing.", hint=ask)


def reserve_head_to_head(
    session: Session, settings: Settings, challenger: Submission, holder: Submission
) -> float:
    """Device seconds of the first pairs. Raises UsedUpError or NotAllowedError without room.

    Both sides are on the quota of the challenger's submitter, and organisers have none.
    """
    benchmark = definition(session, challenger.benchmark_sha256)
    pairs = looks_of(benchmark.ranking.pairs)[0]
    wanted = cost_of_head_to_head(session, benchmark, (challenger, holder), pairs=pairs).seconds
    user = challenger.user
    if user.role not in ORGANISERS:
        what = "this head-to-head"
        require_gpu_seconds(session, settings, wanted, user_id=user.id, what=what)
    return wanted


def _find_both(
    session: Session, caller: Caller, body: HeadToHeadCreate
) -> tuple[Submission, Submission]:
    if body.challenger == body.holder:
        raise ContentError(
            f"Submission {body.challenger} cannot have a head-to-head with itself; expected two "
            "submissions."
        )
    found = find_submission(session, body.challenger), find_submission(session, body.holder)
    for one in found:
        if not may_see(viewer_for(caller), one):
            raise no_such("submission", one.id)
    for one in found:
        if one.withdrawn_at is not None:
            raise ConflictError(f"Submission {one.id} is withdrawn and cannot have a head-to-head.")
        if one.retirement is not None:
            raise ConflictError(f"Submission {one.id} is retired: it can't be trained any more.")
        if one.duplicate_of is not None:
            raise ConflictError(
                f"Submission {one.id} is a duplicate of {one.duplicate_of}. Name that one instead."
            )
    return found


def require_comparable(session: Session, challenger: Submission, holder: Submission) -> Benchmark:
    """The challenger's definition, which both are trained under."""
    both = f"Submissions {challenger.id} and {holder.id}"
    if challenger.benchmark_id != holder.benchmark_id:
        raise ContentError(
            f"{both} are of {challenger.benchmark_id} and {holder.benchmark_id}; expected two of "
            "one benchmark."
        )
    benchmark = definition(session, challenger.benchmark_sha256)
    differ = rules_that_differ(definition(session, holder.benchmark_sha256), benchmark)
    if differ:
        raise ContentError(
            f"{both} were scored under definitions with another {', another '.join(differ)}: "
            "their times do not compare."
        )
    unable = why_no_head_to_head(benchmark, claim_of(challenger), claim_of(holder))
    if unable is not None:
        raise ContentError(f"{both} cannot have a head-to-head: {unable}.")
    return benchmark


def _require_no_other(session: Session, challenger: Submission, holder: Submission) -> None:
    ids = (challenger.id, holder.id)
    query = select(Verification.id, Verification.state, Verification.outcome).where(
        Verification.kind == HEAD_TO_HEAD.name,
        Verification.submission_id.in_(ids),
        Verification.against_id.in_(ids),
    )
    for verification_id, state, outcome in session.execute(query):
        if state in OPEN:
            raise ConflictError(
                f"Head-to-head {verification_id} of these two is under way; wait for it or cancel "
                "it."
            )
        if outcome in JUDGED:
            raise ConflictError(
                f"These two had their head-to-head, {verification_id}: {outcome}.",
                hint="A submission meets the same holder once.",
            )
