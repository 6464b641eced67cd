"""Quotas from the console: the limits, a user's use of them, and the form that sets them."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.models import User
from server.base.viewer import ORGANISER
from server.pages.console_page import Console, Done, OrganiserDep
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.submissions.quotas import QuotaSet, change_quota, quota_of, read_quotas

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/quotas"
# Units of a form's field in the units of the API.
EACH = {"submissions_per_day": 1, "gpu_seconds_per_month": 3600}
NameDep = Annotated[str, Query(max_length=100)]


class QuotaForm(QuotaSet):
    """Quotas to set, and whose."""

    user: str = Field(min_length=1, max_length=100)


@router.get(ADDRESS)
def quotas_page(console: OrganiserDep, user: NameDep = "") -> HTMLResponse:
    """Every quota that is set; for a chosen user its use, and the form with its name."""
    return _page(console, {"user": user})


@router.post(ADDRESS)
def change(console: OrganiserDep, form: FormDep) -> Response:
    """Set the quota of a user."""

    def set_quota(session: Session, wanted: QuotaForm) -> Done:
        change_quota(session, console.caller, wanted.user, wanted)
        return ADDRESS, Notice(f"The quota of {wanted.user} is set.")

    fields = {name: _amount(name, text) for name, text in filled(form).items()}
    return console.submit(QuotaForm, fields, set_quota, partial(_page, console, form))


def _amount(name: str, text: str) -> int | str:
    """Convert a typed amount to the API's units: hours to seconds. Other text stays as it is.

    Hours are rounded to seconds; a part of a submission is no amount.
    """
    if name not in EACH:
        return text
    try:
        amount = float(text) * EACH[name]
    except ValueError:
        return text
    is_whole = EACH[name] > 1 or amount.is_integer()
    return round(amount) if math.isfinite(amount) and is_whole else text


def _page(console: Console, typed: Mapping[str, str], **wrong: Any) -> HTMLResponse:
    settings, name = console.services.settings, typed.get("user", "").strip()
    with console.services.database.read(ORGANISER) as session:
        quotas = read_quotas(session, settings)
        user = session.scalar(select(User).where(User.name == name))
        chosen = None if user is None else quota_of(session, settings, user)
    return console.page("quotas.html", typed=typed, quotas=quotas, chosen=chosen, **wrong)
