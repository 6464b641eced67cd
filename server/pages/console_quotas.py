"""Quotas from the console: the limits, a subject's use of them, and the form that sets them."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from finishline.api.quotas import QuotaSet, QuotaView, SubjectKind
from server.base.errors import NotFoundError
from server.base.viewer import ORGANISER
from server.pages.console_page import Console, Done, Errors, OrganiserDep, filled, read_form
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.submissions.quota_admin import change_quota, read_quota, read_quotas

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/quotas"
KINDS: dict[str, SubjectKind] = {
    "user": "user",
    "organisation": "organisation",
    "benchmark": "benchmark",
}
WORDS = ("unlimited", "default")
# Units of a form's field in the units of the API.
EACH = {"submissions_per_day": 1, "gpu_seconds_per_month": 3600}
LONGEST_NAME = 100
NameDep = Annotated[str, Query(max_length=LONGEST_NAME)]


@router.get(ADDRESS)
def quotas_page(
    console: OrganiserDep, kind: NameDep = "user", subject: NameDep = ""
) -> HTMLResponse:
    """Every quota that is set; for a chosen subject its use, and the form with its name."""
    return _page(console, {"kind": kind, "subject": subject})


@router.post(ADDRESS)
def change(console: OrganiserDep, form: FormDep) -> Response:
    """Set the quota of a user, of each member of an organisation, or of all on a benchmark."""
    page = partial(_page, console, form)
    typed = filled(form)
    kind, subject = KINDS.get(typed.pop("kind", "")), typed.pop("subject", "")
    wanted, errors = read_form(QuotaSet, {name: _amount(name, typed[name]) for name in typed})
    errors = _missing(kind, subject, typed) | _in_own_words(errors)
    if wanted is None or kind is None or errors:
        return page(errors=errors)

    def set_quota(session: Session) -> Done:
        change_quota(session, console.services, console.caller, kind, subject, wanted)
        return ADDRESS, Notice(f"The quota of {kind} {subject} is set.")

    return console.change(set_quota, page)


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


def _missing(kind: str | None, subject: str, typed: Mapping[str, str]) -> Errors:
    found: Errors = {}
    if kind is None:
        found["kind"] = "Choose a user, organisation or benchmark."
    if not subject or len(subject) > LONGEST_NAME:
        found["subject"] = (
            "This field is required." if not subject else "Use at most 100 characters."
        )
    if not any(name in typed for name in EACH):
        found["submissions_per_day"] = "Enter at least one limit."
    return found


def _in_own_words(errors: Errors) -> Errors:
    """Of an amount the form takes more than the API does, and in another unit."""
    expected = {
        name: f"Expected a {'whole ' if each == 1 else ''}number, {' or '.join(WORDS)}."
        for name, each in EACH.items()
    }
    return {name: expected.get(name, text) for name, text in errors.items()}


def _page(console: Console, typed: Mapping[str, str], **wrong: Any) -> HTMLResponse:
    with console.services.database.read(ORGANISER) as session:
        quotas = read_quotas(session, console.services.settings)
    chosen = _used(console, typed.get("kind", ""), typed.get("subject", "").strip())
    return console.page("quotas.html", typed=typed, quotas=quotas, chosen=chosen, **wrong)


def _used(console: Console, kind: str, subject: str) -> QuotaView | None:
    """A subject's quotas with their use, or None if there is no such subject."""
    if kind not in KINDS or not subject:
        return None
    try:
        with console.services.database.read(ORGANISER) as session:
            return read_quota(session, console.services, KINDS[kind], subject)
    except NotFoundError:
        return None
