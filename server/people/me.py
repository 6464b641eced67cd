"""One's own account: read it, and change the name that readers see."""

from sqlalchemy.orm import Session

from finishline.api.people import MeView
from server.base.models import Token, User
from server.people.audit import audited
from server.people.declared import Form, Routes, filled
from server.people.dependencies import Caller
from server.people.signed_in import Fields
from server.people.users import set_display_name
from server.people.views import MeChange, me_view

router = Routes(tags=["accounts"])
CONSOLE = "/account"


@router.read("/me", role="user")
def get_me(session: Session, caller: Caller) -> MeView:
    """Read the user, role and expiry of this request's token."""
    return me_view(session.get_one(Token, caller.token_id))


def _name_or_none(fields: Fields) -> dict[str, str | None]:
    return {"display_name": filled(fields).get("display_name")}


@router.command(
    "/me",
    Form(
        CONSOLE + "/display-name",
        lambda made, body: f"Readers see you as {made.display_name or made.user}.",
        page=CONSOLE,
        read=_name_or_none,
    ),
    role="submitter",
    method="PATCH",
)
def change_me(session: Session, caller: Caller, body: MeChange) -> MeView:
    """Change the name that readers see beside my results; null for that of the account."""
    user = session.get_one(User, caller.user_id)
    with audited(session, caller, "user.update", user):
        set_display_name(session, user, body.display_name)
    return get_me(session, caller)
