"""Quotas from the console: the limits, a user's use of them, and the form that sets them."""

from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from server.base.services import Services
from server.pages.declared import Context, page
from server.people.accounts import find_user_or_none
from server.submissions import quotas


@page(quotas.CONSOLE, "quotas.html", role="organiser")
def quotas_page(
    session: Session, services: Services, user: Annotated[str, Query(max_length=100)] = ""
) -> Context:
    """Every quota that is set; for a chosen user its use, and the form with its name."""
    found = find_user_or_none(session, user.strip())
    return {
        "typed": {"user": user},
        "quotas": quotas.list_quotas(session, services),
        "chosen": found and quotas.quota_of(session, services, found),
    }
