"""Tickets: seeds drawn for a claim before its training, and spent with it."""

import math
import secrets
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.tickets import TicketCreate, TicketList, TicketView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError, RuleError
from finishline.rules.fields import Fields
from finishline.rules.submissions.claim import Claim, read_hyperparameters
from finishline.rules.submissions.tickets import (
    LIFETIME,
    MOST_OPEN,
    NEXT_STEP,
    SEED_LIMIT,
    Ticket,
    check_runs,
    full_settings,
)
from finishline.rules.text import did_you_mean
from server.base.database import utc_now
from server.base.errors import ConflictError, UsedUpError, no_such
from server.base.models import User
from server.base.models.submissions import TicketRow
from server.base.services import Services, ServicesDep
from server.people.dependencies import Caller, SubmitterDep
from server.submissions.rows import new_id


def ticket_view(row: TicketRow) -> TicketView:
    """View of a stored ticket."""
    return TicketView(
        id=row.id,
        benchmark=row.benchmark_id,
        benchmark_sha256=row.benchmark_sha256,
        division=row.division,
        settings=row.settings,
        hardware_class=row.hardware_class,
        seeds=row.seeds,
        created_at=row.created_at,
        expires_at=row.expires_at,
        submission=row.submission_id,
    )


MOST_LISTED = 100


def issue_ticket(
    services: Services, session: Session, caller: Caller, wanted: TicketCreate
) -> TicketRow:
    """Draw seeds for a training.

    Raises ContentError or RuleError naming the field, and UsedUpError with three tickets open.
    """
    benchmark = _benchmark(services, wanted.benchmark)
    division = _division(benchmark, wanted.division)
    table = Fields(wanted.settings, file=None, error=ClaimError, path="settings")
    settings = read_hyperparameters(table, benchmark, division)
    runs = check_runs(benchmark, wanted.runs)
    _require_few_open(session, caller, benchmark)
    now = utc_now()
    ticket = TicketRow(
        id=new_id(),
        user_id=caller.user_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        division=division,
        settings=full_settings(benchmark, settings),
        hardware_class=wanted.hardware_class,
        seeds=secrets.SystemRandom().sample(range(SEED_LIMIT), runs),
        created_at=now,
        expires_at=now + LIFETIME,
    )
    session.add(ticket)
    session.flush()
    return ticket


def own_tickets(session: Session, caller: Caller) -> Sequence[TicketRow]:
    """Return the caller's newest tickets."""
    return session.scalars(
        select(TicketRow)
        .where(TicketRow.user_id == caller.user_id)
        .order_by(TicketRow.created_at.desc(), TicketRow.id)
        .limit(MOST_LISTED)
    ).all()


def own_ticket(session: Session, caller: Caller, ticket_id: str) -> TicketRow:
    """Return one ticket of the caller's. Raises NotFoundError, also for somebody else's."""
    ticket = session.get(TicketRow, ticket_id)
    if ticket is None or ticket.user_id != caller.user_id:
        raise no_such("ticket", ticket_id, of="You have no")
    return ticket


def find_ticket(services: Services, caller: Caller, claim: Claim, *, file: str) -> Ticket | None:
    """Return the ticket that a claim names, None if it names none.

    Raises ClaimError unless it is the caller's, and ConflictError if it is spent or expired.
    """
    if claim.ticket is None:
        return None
    with services.database.read() as session:
        row = session.get(TicketRow, claim.ticket)
        if row is None or row.user_id != caller.user_id:
            raise ClaimError(
                f"you have no ticket {claim.ticket!r}",
                file=file,
                field="ticket",
                expected=f"the id of a ticket of yours, from GET /api/v1/tickets; or {NEXT_STEP}",
                code="unknown_ticket",
            )
        _require_open(row)
        return _ticket(row)


def spend_ticket(session: Session, claim: Claim, *, submission_id: str) -> None:
    """Spend the ticket of a claim in the transaction that stores it.

    Raises ConflictError if another submission spent it meanwhile.
    """
    if claim.ticket is None:
        return
    row = session.scalars(
        select(TicketRow).where(TicketRow.id == claim.ticket).with_for_update()
    ).one()
    _require_open(row)
    row.submission_id = submission_id


def _require_open(row: TicketRow) -> None:
    if row.submission_id is not None:
        raise ConflictError(
            f"Ticket {row.id} was spent by submission {row.submission_id}. A ticket is good for "
            f"one submission: get another with `finishline ticket {row.benchmark_id}` and train "
            "again."
        )
    if row.expires_at <= utc_now():
        raise ConflictError(
            f"Ticket {row.id} expired on {row.expires_at:%Y-%m-%d}: {NEXT_STEP}, which gets "
            "another."
        )


def _ticket(row: TicketRow) -> Ticket:
    return Ticket(
        ticket_id=row.id,
        benchmark_id=row.benchmark_id,
        division=row.division,
        settings=row.settings,
        hardware_class=row.hardware_class,
        seeds=tuple(row.seeds),
        created_at=row.created_at,
    )


def _benchmark(services: Services, name: str) -> Benchmark:
    found = services.benchmarks.get(name)
    if found is None:
        known = sorted(services.benchmarks)
        message = f"unknown benchmark {name!r}{did_you_mean(name, known)}"
        raise RuleError(message, field="benchmark", expected=" or ".join(known))
    return found


def _division(benchmark: Benchmark, name: str | None) -> str:
    if name is not None and name not in benchmark.divisions:
        expected = " or ".join(benchmark.divisions)
        raise RuleError(f"unknown division {name!r}", field="division", expected=expected)
    return name or benchmark.divisions[0]


def _require_few_open(session: Session, caller: Caller, benchmark: Benchmark) -> None:
    """Raise UsedUpError with three open tickets. Requests of one user are counted in turn."""
    session.execute(select(User.id).where(User.id == caller.user_id).with_for_update())
    now = utc_now()
    rows = session.execute(
        select(TicketRow.id, TicketRow.expires_at)
        .where(
            TicketRow.user_id == caller.user_id,
            TicketRow.benchmark_id == benchmark.benchmark_id,
            TicketRow.submission_id.is_(None),
            TicketRow.expires_at > now,
        )
        .order_by(TicketRow.expires_at)
    ).all()
    if len(rows) < MOST_OPEN:
        return
    names, until = ", ".join(row.id for row in rows), rows[0].expires_at
    raise UsedUpError(
        f"You have {len(rows)} open tickets for {benchmark.benchmark_id} ({names}) and may have "
        f"{MOST_OPEN}. Train with one of them: `finishline ticket --id {rows[0].id}` writes its "
        f"file. The first expires on {until:%Y-%m-%d}.",
        measure="open_tickets",
        retry_seconds=math.ceil((until - now).total_seconds()),
    )


router = APIRouter(tags=["submissions"])
TicketId = Annotated[str, Path(max_length=20)]


@router.post("/tickets", status_code=201)
def create_ticket(services: ServicesDep, caller: SubmitterDep, body: TicketCreate) -> TicketView:
    """Draw seeds for a training, before it begins. A ticket is valid 30 days, for one submission.

    Three may be open for a benchmark; a fourth is refused with 429.
    """
    with services.database.write() as session:
        return ticket_view(issue_ticket(services, session, caller, body))


@router.get("/tickets")
def list_tickets(services: ServicesDep, caller: SubmitterDep) -> TicketList:
    """List your tickets, newest first; a hundred at the most."""
    with services.database.read() as session:
        rows = own_tickets(session, caller)
        return TicketList(tickets=[ticket_view(row) for row in rows])


@router.get("/tickets/{ticket_id}")
def get_ticket(ticket_id: TicketId, services: ServicesDep, caller: SubmitterDep) -> TicketView:
    """Read one of your tickets."""
    with services.database.read() as session:
        return ticket_view(own_ticket(session, caller, ticket_id))
