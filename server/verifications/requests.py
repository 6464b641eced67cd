"""Request verifications and head-to-heads by the rules for them, and cancel them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session, undefer

from finishline.api.verifications import VerificationView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import consequence
from finishline.rules.verification.entry import (
    ABLATION,
    FEWEST_REPEATS,
    MOST_REPEATS,
    REPEATS,
    USUAL_REPEATS,
)
from finishline.rules.verification.head_to_head import looks_of, why_no_head_to_head
from finishline.rules.verification.purposes import ASKED_FOR, HEAD_TO_HEAD, PURPOSES
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    ServerError,
    UsedUpError,
)
from server.base.events import OriginalReplaced, SubmissionWithdrawn, VerificationWanted
from server.base.forms import NO_FLAG, Body, example
from server.base.http import note
from server.base.models import Submission, Verification
from server.base.standing import (
    OPEN,
    Basis,
    Estimator,
    claim_of,
    find_verification,
    kind_that_checks,
    purpose_of,
    row_evidence,
    verification_under_way,
)
from server.base.visibility import is_source_public
from server.benchmarks.definitions import definition, rules_that_differ
from server.people.accounts import ORGANISERS
from server.people.audit import record
from server.people.callers import Caller
from server.people.declared import Form, Routes
from server.submissions.quotas import NOTHING_KEPT, require_gpu_seconds, reserve_replay
from server.submissions.rows import find_visible
from server.verifications.head_to_heads import (
    REFERENCE,
    REFERENCE_RUNS,
    FirstPlace,
    may_try,
    queue_pairs,
    read_first_places,
)
from server.verifications.jobs import Order, UncalibratedError, judging, move, queue_job
from server.verifications.pools import follow_evidence
from server.verifications.views import view

router = Routes(tags=["verifications"])
BATCH = "/console/verify"


def queue_request(session: Session, order: Order) -> Verification:
    """Plan and seal a job about one submission, and queue its first attempt."""
    require_possible(session, order)
    return queue_job(session, order)


def require_possible(session: Session, order: Order) -> None:
    """Raise ConflictError or ContentError if such a job about its submission is impossible."""
    submission, purpose = order.submission, order.purpose
    if submission is None:
        raise ValueError(f"a {purpose.name} is asked for about a submission")
    if submission.withdrawn_at is not None:
        raise ConflictError(f"Submission {submission.id} is withdrawn and cannot be verified.")
    if submission.duplicate_of is not None:
        raise ConflictError(
            f"Submission {submission.id} is a duplicate of {submission.duplicate_of}. Request it "
            "for that one."
        )
    under_way = verification_under_way(session, submission.id, kind=purpose.name)
    if under_way is not None:
        raise ConflictError(
            f"Verification {under_way} of this submission ({purpose.name}) is under way; wait for "
            "it or cancel it."
        )
    unable = purpose.why_not(judging(session, order)[0], order.claims)
    if unable is not None:
        is_other = (order.claims[0].package is not None) != purpose.in_box
        error = ConflictError if is_other else ContentError
        raise error(f"Submission {submission.id} {purpose.unable}: {unable}.")


def verify_by_policy(session: Session, event: VerificationWanted) -> None:
    """Request a policy's verification. A submission in an uncalibrated precision waits."""
    with suppress(UncalibratedError):
        order = Order(
            PURPOSES[kind_that_checks(event.submission)],
            event.requested_by,
            "by policy",
            event.submission,
            reserved=event.reserved,
        )
        queue_request(session, order)


def measure_original(session: Session, event: OriginalReplaced) -> None:
    """Give a submission that replaced its original the shared time, or measure it."""
    submission = event.submission
    follow_evidence(session, event.original)
    follow_evidence(session, submission)
    if submission.status == "verified":
        return
    charged = [each.gpu_seconds_reserved or 0.0 for each in event.original.verifications]
    # A submission that can't be trained any more stays claimed.
    with suppress(ServerError):
        order = Order(
            PURPOSES[kind_that_checks(submission)],
            submission.user_id,
            "in place of the original",
            submission,
            reserved=max(charged, default=0.0) or None,
        )
        queue_request(session, order)


def end_withdrawn(session: Session, event: SubmissionWithdrawn) -> None:
    """Cancel the verifications of a withdrawal."""
    for verification_id in event.verifications:
        move(session, find_verification(session, verification_id), "cancel")


def _may_be_asked_for(name: str) -> str:
    if name not in ASKED_FOR:
        raise ValueError(f"expected {' or '.join(ASKED_FOR)}")
    return name


AskedFor = Annotated[
    str, AfterValidator(_may_be_asked_for), Field(json_schema_extra={"enum": list(ASKED_FOR)})
]


class VerificationCreate(Body):
    """Kind of verification to request, and the reason. Both are stored.

    Without a kind, logs are replayed, code is measured, and an inference result's latency is timed.
    An "ablation" trains each variant of a code submission `repeats` times.
    """

    model_config = example(kind="replay", reason="record claim")

    kind: AskedFor | None = None
    reason: str | None = Field(default=None, max_length=2000)
    repeats: Annotated[int, Field(ge=FEWEST_REPEATS, le=MOST_REPEATS), NO_FLAG] = USUAL_REPEATS


@router.command(
    "/verifications/{verification_id}/cancellation",
    Form(
        "/console/verifications/{verification_id}/cancel",
        done="Verification {verification_id} is cancelled.",
        page=BATCH,
    ),
    role="organiser",
)
def cancel_verification(session: Session, caller: Caller, verification_id: str) -> VerificationView:
    """Cancel a verification without a verdict. 409 for a running replay, which ends by itself."""
    verification = find_verification(session, verification_id)
    before, submission = {"state": verification.state}, verification.submission
    stood = None if submission is None else row_evidence(submission)
    move(session, verification, "cancel")
    after = {"state": verification.state}
    if submission is not None and stood is not None:
        words = consequence(stood, row_evidence(submission))
        after["consequence"] = f"no verdict; the row {words}"
    record(session, caller, "verification.cancel", verification, before=before, after=after)
    return view(session, verification)


# Each request draws other seeds, and the worker may be the submitter's.
MOST_REQUESTS = 3
ASK_AN_ORGANISER = "Only an organiser can request another one."


@router.command(
    "/submissions/{submission_id}/verifications",
    Form("/submissions/{submission_id}/verify", to="/verifications/{0.id}"),
    role="submitter",
    status=201,
)
def request_verification(
    session: Session,
    caller: Caller,
    submission_id: str,
    body: VerificationCreate | None = None,
) -> VerificationView:
    """Request the verification of a submission, or another kind that you name.

    The answer seals the drawn runs and seeds. A submitter may request the first verification of
    their own submission, which counts against their quota. Organisers may request any.
    """
    wanted = body or VerificationCreate()
    submission, reserved = find_visible(session, caller, submission_id), None
    kind = wanted.kind or kind_that_checks(submission)
    wishes = {REPEATS: wanted.repeats}
    if submission.user.name == REFERENCE and submission.pool_id is None:
        wishes["runs"] = REFERENCE_RUNS
    if not caller.is_organiser:
        if submission.user_id != caller.user_id:
            raise NotAllowedError(
                "This submission belongs to another user: only they or an organiser may request it."
            )
        _require_first(session, submission, kind)
        reserved = reserve_replay(
            session, submission, user_id=caller.user_id, kind=kind, wishes=wishes
        )
    package = submission.trained_package
    if kind == ABLATION.name and package is not None and not is_source_public(package):
        raise ConflictError(
            "The runs of an ablation name the factors, and this source is not public yet.",
            hint="Ask for them after the first verdict, which publishes it.",
        )
    purpose = PURPOSES[kind]
    order = Order(
        purpose, caller.user_id, wanted.reason, submission, wishes=wishes, reserved=reserved
    )
    verification = queue_request(session, order)
    note(verification_id=verification.id)
    after = {"verification": verification.id, "seal": verification.seal}
    record(session, caller, "verification.request", submission, reason=wanted.reason, after=after)
    session.flush()
    session.refresh(verification)
    return view(session, verification)


def why_no_room(
    session: Session, caller: Caller, submission: Submission, kind: str | None = None
) -> str | None:
    """Say why the caller has no room for a job. Without a lock: the request itself decides."""
    if caller.is_organiser:
        return None
    kind = kind or kind_that_checks(submission)
    try:
        _require_few_requests(session, submission)
        reserve_replay(session, submission, user_id=caller.user_id, kind=kind)
    except (UsedUpError, NotAllowedError) as refused:
        return f"{str(refused).removesuffix(NOTHING_KEPT).removesuffix('.')}."
    return None


def _require_first(session: Session, submission: Submission, kind: str) -> None:
    if submission.published is not None:
        raise NotAllowedError(f"This is an archive's result. {ASK_AN_ORGANISER}")
    checks = kind_that_checks(submission)
    if kind not in (checks, ABLATION.name):
        raise NotAllowedError(
            f"A {kind} does not check this submission, the kind {checks} does. {ASK_AN_ORGANISER}"
        )
    earlier = session.scalars(
        select(Verification)
        .where(Verification.submission_id == submission.id, Verification.kind == kind)
        .options(undefer(Verification.reasons))
    ).all()
    for verification in earlier:
        if verification.state in OPEN:
            raise ConflictError(f"Verification {verification.id} of it is under way: wait for it.")
        if _says_something(verification) and not purpose_of(verification).in_box:
            raise NotAllowedError(
                f"Verification {verification.id} ended {verification.outcome}, and that stands. "
                f"{ASK_AN_ORGANISER}"
            )
    _require_few_requests(session, submission)


def _require_few_requests(session: Session, submission: Submission) -> None:
    asked = session.scalar(
        select(func.count())
        .select_from(Verification)
        .where(
            Verification.submission_id == submission.id,
            Verification.kind != HEAD_TO_HEAD.name,
            Verification.gpu_seconds_reserved.is_not(None),
        )
    )
    if (asked or 0) >= MOST_REQUESTS:
        raise NotAllowedError(f"You made {asked} requests for this submission. {ASK_AN_ORGANISER}")


def _says_something(verification: Verification) -> bool:
    """Check whether a verification's end is about the submission, not the infrastructure."""
    if verification.state == "done":
        return True
    codes = {reason.get("code") for reason in verification.reasons}
    return verification.state == "failed" and codes != {"infrastructure"}


JUDGED = ("challenger_faster", "not_proven")
HEAD_TO_HEADS = "/console/head-to-heads"


class HeadToHeadCreate(Body):
    """Request for a head-to-head: two submissions to train in turn, and the reason."""

    model_config = example(challenger="3f9k2m7q1xyz", holder="7wyexdafxm0d", reason="record claim")

    challenger: str = Field(min_length=1, max_length=20)
    holder: str = Field(min_length=1, max_length=20)
    reason: str | None = Field(default=None, max_length=2000)


@dataclass(frozen=True)
class Cost:
    """Pairs and runs of a head-to-head, their seconds of devices, and the basis."""

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
        Estimator(session, kind_that_checks(side)).estimate(side, benchmark) for side in sides
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
    session: Session, caller: Caller, body: HeadToHeadCreate
) -> VerificationView:
    """Request a head-to-head: two submissions trained in turn on one worker.

    A submitter names their own row, which takes less than 1.1 times the holder's time, and the
    holder of its board. Its runs count against their quota. Organisers may name any two.
    """
    challenger, holder = _find_both(session, caller, body)
    board = challenger.division, challenger.system["hardware_class"]
    benchmark = definition(session, challenger.benchmark_sha256)
    place = read_first_places(session, benchmark).get(board) or FirstPlace()
    if place.holder is not None and place.holder.submission_id == challenger.id:
        challenger, holder = holder, challenger
    require_comparable(session, challenger, holder)
    _require_no_other(session, challenger, holder)
    reserved = None
    if not caller.is_organiser:
        _require_own_try(caller, place, challenger, holder)
        reserved = reserve_head_to_head(session, challenger, holder)
    verification = queue_pairs(
        session,
        challenger,
        holder,
        requested_by=caller.user_id,
        reason=body.reason,
        reserved=reserved,
    )
    after = {"challenger": challenger.id, "holder": holder.id, "seal": verification.seal}
    record(session, caller, "head_to_head.request", verification, reason=body.reason, after=after)
    session.refresh(verification)
    return view(session, verification)


def _require_own_try(
    caller: Caller, place: FirstPlace, challenger: Submission, holder: Submission
) -> None:
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
    if not place.score.is_near(row.figure, first.figure):
        found = f"takes {row.figure / first.figure:.2f} times the holder's time"
        expected = "less than 1.1 times"
        if place.score.by == "quality":
            found, expected = f"has {row.figure:.4g}", f"less than 1 % from {first.figure:.4g}"
        raise ConflictError(f"Submission {challenger.id} {found}, expected {expected}.", hint=ask)
    if place.is_busy:
        raise ConflictError(
            "A head-to-head of this board is under way, and a board has one at a time.",
            hint="Ask again when it has ended.",
        )
    if not may_try(place.met.get(challenger.id, ())):
        raise ConflictError("The head-to-heads of these two found nothing.", hint=ask)


def reserve_head_to_head(session: Session, challenger: Submission, holder: Submission) -> float:
    """Return the device seconds of the first pairs. Raises UsedUpError or NotAllowedError."""
    benchmark = definition(session, challenger.benchmark_sha256)
    pairs = looks_of(benchmark.ranking.pairs)[0]
    wanted = cost_of_head_to_head(session, benchmark, (challenger, holder), pairs=pairs).seconds
    user = challenger.user
    if user.role not in ORGANISERS:
        require_gpu_seconds(session, wanted, user_id=user.id, what="this head-to-head")
    return wanted


def _find_both(
    session: Session, caller: Caller, body: HeadToHeadCreate
) -> tuple[Submission, Submission]:
    if body.challenger == body.holder:
        raise ContentError(
            f"Submission {body.challenger} cannot have a head-to-head with itself; expected two "
            "submissions."
        )
    found = (
        find_visible(session, caller, body.challenger),
        find_visible(session, caller, body.holder),
    )
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
    """Return the definition of both. Raises ContentError for incomparable times."""
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
