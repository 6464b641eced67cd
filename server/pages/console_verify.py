"""Verifying from the console: choose, read the dry run's cost, confirm exactly that; cancel."""

import re
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from finishline.rules.text import count_text
from server.base.errors import ServerError
from server.base.services import Services, ServicesDep
from server.pages.console_overview import under_way
from server.pages.console_page import console_page, filled, go_on, read_form
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import ConsoleDep, FormDep, viewer_for
from server.verifications.requests import cancel
from server.verifications.rerun_schemas import BatchCreate, BatchView
from server.verifications.reruns import verify_batch

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/verify"
STATUSES = ("claimed", "verifying", "verified", "rejected", "inconclusive")
# A dry run keeps nothing, but a batch has a reason.
DRY_RUN = {"reason": "dry run", "dry_run": True}
Typed = dict[str, Any]


@router.get(ADDRESS)
def choose(request: Request, services: ServicesDep, signed_in: ConsoleDep) -> HTMLResponse:
    """The form that chooses submissions, or with `preview` the dry run of that choice."""
    typed: Typed = filled(request.query_params)
    if typed.pop("preview", None) is None:
        return _form(services, signed_in, typed)
    wanted, errors = read_form(BatchCreate, _chosen(typed) | DRY_RUN)
    if wanted is None:
        return _form(services, signed_in, typed, errors=_by_own_fields(errors))
    try:
        preview = verify_batch(services, signed_in.caller, wanted)
    except ServerError as error:
        return _form(services, signed_in, typed, refusal=error)
    back = f"{ADDRESS}?{urlencode(typed)}"
    return _preview(services, signed_in, preview, kind=wanted.kind, back=back)


@router.post(ADDRESS)
def confirm(services: ServicesDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Queue exactly the verifications that the dry run listed."""
    chosen = _chosen({name: form.get(name, "") for name in ("kind", "submissions")})
    wanted, errors = read_form(BatchCreate, chosen | {"reason": form.get("reason", "").strip()})
    try:
        if wanted is None:
            return _shown_again(services, signed_in, chosen, errors, typed=form)
        queued = verify_batch(services, signed_in.caller, wanted)
    except ServerError as error:
        return _form(services, signed_in, dict(form), refusal=error)
    return go_on(services, signed_in, ADDRESS, Notice(_told(queued)))


@router.post("/console/verifications/{verification_id}/cancel")
def cancel_verification(
    verification_id: str, services: ServicesDep, signed_in: ConsoleDep, _form_sent: FormDep
) -> Response:
    """End a verification without a verdict."""
    try:
        with services.database.write() as session:
            goes_on = cancel(session, signed_in.caller, verification_id).state == "running"
    except ServerError as error:
        return _form(services, signed_in, {}, refusal=error)
    rest = "; its runs are finished first" if goes_on else ""
    said = Notice(f"Verification {verification_id} is cancelled{rest}.")
    return go_on(services, signed_in, ADDRESS, said)


def _chosen(typed: Typed) -> Typed:
    """The fields of the form as a batch has them: ids apart, no field that is empty."""
    ids = [name for name in re.split(r"[\s,;]+", typed.get("submissions", "")) if name]
    chosen = {name: typed[name] for name in ("kind", "benchmark", "status") if typed.get(name)}
    return chosen | ({"submissions": list(dict.fromkeys(ids))} if ids else {})


def _by_own_fields(errors: dict[str, str]) -> dict[str, str]:
    """Move an error of the whole form to its first field."""
    return {("submissions" if name == "form" else name): text for name, text in errors.items()}


def _form(services: Services, signed_in: SignedIn, typed: Typed, **wrong: Any) -> HTMLResponse:
    with services.database.read(viewer_for(signed_in.caller)) as session:
        listed = under_way(session, alive_seconds=services.settings.worker_alive_seconds)
    return console_page(
        services,
        signed_in,
        "verify.html",
        typed={"kind": "replay"} | typed,
        preview=None,
        under_way=listed,
        benchmarks=[("", "–"), *((name, name) for name in sorted(services.benchmarks))],
        statuses_to_choose=[("", "any status"), *((word, word) for word in STATUSES)],
        **wrong,
    )


def _preview(
    services: Services,
    signed_in: SignedIn,
    preview: BatchView,
    *,
    kind: str,
    back: str,
    **again: Any,
) -> HTMLResponse:
    return console_page(
        services,
        signed_in,
        "verify.html",
        preview=preview.model_dump(mode="json"),
        kind=kind,
        shown=" ".join(item.submission_id for item in preview.replays),
        back=back,
        **again,
    )


def _shown_again(
    services: Services, signed_in: SignedIn, chosen: Typed, errors: dict[str, str], *, typed: Typed
) -> HTMLResponse:
    """Show the dry run of the same submissions again, with the errors of the form."""
    wanted, unclear = read_form(BatchCreate, chosen | DRY_RUN)
    if wanted is None:
        return _form(services, signed_in, typed, errors=_by_own_fields(unclear))
    preview = verify_batch(services, signed_in.caller, wanted)
    return _preview(
        services, signed_in, preview, kind=wanted.kind, back=ADDRESS, typed=typed, errors=errors
    )


def _told(queued: BatchView) -> str:
    count = len(queued.replays)
    text = f"{count_text(count, 'verification is', 'verifications are')} queued."
    skipped = [f"{item.submission_id}: {item.why}" for item in queued.skipped]
    return " ".join([text, *([f"Skipped since: {' '.join(skipped)}"] if skipped else [])])
