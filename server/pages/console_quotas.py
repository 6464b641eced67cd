"""Quotas from the console: the limits, a subject's use of them, and the form that sets them."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from server.base.errors import NotFoundError, ServerError
from server.base.services import Services, ServicesDep
from server.base.viewer import ORGANISER
from server.pages.console_page import Errors, console_page, filled, go_on, read_form
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import ConsoleDep, FormDep
from server.submissions.quota_admin import (
    QuotaSet,
    QuotaView,
    SubjectKind,
    change_quota,
    read_quota,
    read_quotas,
)

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
    services: ServicesDep, signed_in: ConsoleDep, kind: NameDep = "user", subject: NameDep = ""
) -> HTMLResponse:
    """Every quota that is set; for a chosen subject its use, and the form with its name."""
    return _page(services, signed_in, {"kind": kind, "subject": subject})


@router.post(ADDRESS)
def change(services: ServicesDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Set the quota of a user, of each member of an organisation, or of all on a benchmark."""
    typed = filled(form)
    kind, subject = KINDS.get(typed.pop("kind", "")), typed.pop("subject", "")
    wanted, errors = read_form(QuotaSet, {name: _amount(name, typed[name]) for name in typed})
    errors = _missing(kind, subject, typed) | _in_own_words(errors)
    if wanted is None or kind is None or errors:
        return _page(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            change_quota(session, services, signed_in.caller, kind, subject, wanted)
    except ServerError as error:
        return _page(services, signed_in, form, refusal=error)
    return go_on(services, signed_in, ADDRESS, Notice(f"The quota of {kind} {subject} is set."))


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
        found["kind"] = "Choose whose quota it is."
    if not subject or len(subject) > LONGEST_NAME:
        found["subject"] = "Fill this in." if not subject else "No name is that long."
    if not any(name in typed for name in EACH):
        found["submissions_per_day"] = "Say what to set: here or beside it."
    return found


def _in_own_words(errors: Errors) -> Errors:
    """Of an amount the form takes more than the API does, and in another unit."""
    expected = {
        name: f"Expected a {'whole ' if each == 1 else ''}number, {' or '.join(WORDS)}."
        for name, each in EACH.items()
    }
    return {name: expected.get(name, text) for name, text in errors.items()}


def _page(
    services: Services, signed_in: SignedIn, typed: Mapping[str, str], **wrong: Any
) -> HTMLResponse:
    with services.database.read(ORGANISER) as session:
        quotas = read_quotas(session, services.settings)
    return console_page(
        services,
        signed_in,
        "quotas.html",
        typed=typed,
        quotas=quotas.model_dump(mode="json"),
        chosen=_used(services, typed.get("kind", ""), typed.get("subject", "").strip()),
        **wrong,
    )


def _used(services: Services, kind: str, subject: str) -> dict[str, Any] | None:
    """A subject's quotas with their use, or None if there is no such subject."""
    if kind not in KINDS or not subject:
        return None
    try:
        with services.database.read(ORGANISER) as session:
            view: QuotaView = read_quota(session, services, KINDS[kind], subject)
    except NotFoundError:
        return None
    return view.model_dump(mode="json")
