"""Names of new users and organisations: unlike all that are there, of either kind."""

from sqlalchemy import literal, select, text, union_all
from sqlalchemy.orm import Session

from finishline.rules.text import fault_in, skeletons
from server.errors import ConflictError, ContentError
from server.models import Organisation, User

# Any number that no other lock of this database has.
LOCK = 0x66696E6E616D65


def require_new_name(session: Session, name: str) -> None:
    """Keep others from taking a like name until the end of the transaction.

    Raises ContentError about its form, ConflictError naming the one that it looks like. The names
    that are there already stay as they are.
    """
    if fault := fault_in(name):
        raise ContentError(f"The name {name!r} {fault}.")
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    taken = union_all(
        select(literal("a user"), User.name),
        select(literal("an organisation"), Organisation.name),
    )
    shapes = skeletons(name)
    for kind, other in session.execute(taken):
        if other == name:
            raise ConflictError(f"There is {kind} {other!r} already.")
        if not shapes.isdisjoint(skeletons(other)):
            raise ConflictError(
                f"The name {name!r} looks like that of {kind}, {other!r}. Choose one that nobody "
                "takes for it."
            )
