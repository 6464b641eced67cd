"""What a submission's system rented: refused where it is another, and told beside its cost."""

from dataclasses import asdict

from pydantic import BaseModel
from sqlalchemy.orm import Session

from rules.claim import Claim
from rules.errors import SubmissionError
from rules.instance_shape import InstanceCheck, check_instance
from server.database import utc_now
from server.prices.costs import read_book


class InstanceFigureView(BaseModel):
    """A figure of the system: as claimed, null if not stated, and as all its instances have it."""

    field: str
    claimed: str | None
    expected: str
    agrees: bool


class InstanceCheckView(BaseModel):
    """A system held against the instances that it names, as entry `price` of the book has them.

    Without `price` the book has no shape of the instance, and there are no `figures`. `differs` is
    whether the system is another one; `in_words` says what came of it.
    """

    price: int | None
    source_url: str | None
    differs: bool
    in_words: str
    figures: list[InstanceFigureView]


def require_what_was_rented(session: Session, claim: Claim, *, file: str) -> None:
    """Raise a RuleError with each figure in which a claim's system is not what it names."""
    day = claim.submitted_on or utc_now().date()
    check = check_instance(asdict(claim.system), read_book(session), on=day)
    problems = check.problems(file=file) if check is not None else []
    if problems:
        raise SubmissionError([*problems]) if len(problems) > 1 else problems[0]


def instance_check_view(check: InstanceCheck | None) -> InstanceCheckView | None:
    """A check as the API and the pages show it."""
    if check is None:
        return None
    entry = check.entry
    return InstanceCheckView(
        price=entry.number if entry is not None else None,
        source_url=entry.price.source_url if entry is not None else None,
        differs=bool(check.differences),
        in_words=check.in_words,
        figures=[InstanceFigureView(**asdict(figure)) for figure in check.figures],
    )
