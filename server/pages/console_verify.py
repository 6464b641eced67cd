"""Verifying from the console: choose, read the dry run's cost, confirm exactly that; cancel."""

import re
from functools import partial
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from server.base.errors import ServerError
from server.pages.console_overview import under_way
from server.pages.console_page import Console, Done, OrganiserDep, Page, read_form, renamed
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.verifications.requests import cancel
from server.verifications.reruns import BatchCreate, BatchView, verify_batch

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/verify"
STATUSES = ("claimed", "verifying", "verified", "rejected", "inconclusive")
# A dry run keeps nothing, but a batch has a reason.
DRY_RUN = {"reason": "dry run", "dry_run": True}
Typed = dict[str, Any]


@router.get(ADDRESS)
def choose(request: Request, console: OrganiserDep) -> HTMLResponse:
    """The form that chooses submissions, or with `preview` the dry run of that choice."""
    typed: Typed = filled(request.query_params)
    if marked := request.query_params.getlist("ids"):
        typed["submissions"] = " ".join(marked)
    if typed.pop("preview", None) is None:
        return _form(console, typed)
    wanted, errors = read_form(BatchCreate, _chosen(typed) | DRY_RUN)
    if wanted is None:
        return _by_own_fields(console, typed)(errors=errors)
    try:
        preview = verify_batch(console.services, console.caller, wanted)
    except ServerError as error:
        return _form(console, typed, refusal=error)
    back = f"{ADDRESS}?{urlencode(typed)}"
    return _preview(console, preview, kind=wanted.kind, back=back)


@router.post(ADDRESS)
def confirm(console: OrganiserDep, form: FormDep) -> Response:
    """Queue exactly the verifications that the dry run listed."""
    chosen = _chosen({name: form.get(name, "") for name in ("kind", "submissions")})
    wanted, errors = read_form(BatchCreate, chosen | {"reason": form.get("reason", "").strip()})
    try:
        if wanted is None:
            return _shown_again(console, chosen, errors, typed=form)
        queued = verify_batch(console.services, console.caller, wanted)
    except ServerError as error:
        return _form(console, dict(form), refusal=error)
    return console.go_on(ADDRESS, Notice(_told(queued)))


@router.post("/console/verifications/{verification_id}/cancel")
def cancel_verification(
    verification_id: str, console: OrganiserDep, _form_sent: FormDep
) -> Response:
    """End a verification without a verdict."""

    def cancel_it(session: Session) -> Done:
        cancel(session, console.caller, verification_id)
        return ADDRESS, Notice(f"Verification {verification_id} is cancelled.")

    return console.change(cancel_it, partial(_form, console, {}))


def _chosen(typed: Typed) -> Typed:
    """The fields of the form as a batch has them: ids apart, no field that is empty."""
    ids = [name for name in re.split(r"[\s,;]+", typed.get("submissions", "")) if name]
    chosen = {name: typed[name] for name in ("kind", "benchmark", "status") if typed.get(name)}
    return chosen | ({"submissions": list(dict.fromkeys(ids))} if ids else {})


def _by_own_fields(console: Console, typed: Typed) -> Page:
    """The form with an error of the whole beside its first field."""
    return renamed(partial(_form, console, typed), form="submissions")


def _form(console: Console, typed: Typed, **wrong: Any) -> HTMLResponse:
    services = console.services
    with services.database.read(console.viewer) as session:
        listed = under_way(session)
    return console.page(
        "verify.html",
        typed={"kind": "replay"} | typed,
        preview=None,
        under_way=listed,
        benchmarks=[("", "–"), *((name, name) for name in sorted(services.benchmarks))],
        statuses_to_choose=[("", "any status"), *((word, word) for word in STATUSES)],
        **wrong,
    )


def _preview(
    console: Console, preview: BatchView, *, kind: str, back: str, **again: Any
) -> HTMLResponse:
    shown = " ".join(item.submission_id for item in preview.replays)
    return console.page("verify.html", preview=preview, kind=kind, shown=shown, back=back, **again)


def _shown_again(
    console: Console, chosen: Typed, errors: dict[str, str], *, typed: Typed
) -> HTMLResponse:
    """Show the dry run of the same submissions again, with the errors of the form."""
    wanted, unclear = read_form(BatchCreate, chosen | DRY_RUN)
    if wanted is None:
        return _by_own_fields(console, typed)(errors=unclear)
    preview = verify_batch(console.services, console.caller, wanted)
    return _preview(console, preview, kind=wanted.kind, back=ADDRESS, typed=typed, errors=errors)


def _told(queued: BatchView) -> str:
    count = len(queued.replays)
    text = f"{count_text(count, 'verification is', 'verifications are')} queued."
    skipped = [f"{item.submission_id}: {item.why}" for item in queued.skipped]
    return " ".join([text, *([f"Skipped since: {' '.join(skipped)}"] if skipped else [])])
