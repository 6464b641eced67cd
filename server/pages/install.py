"""Where the command and the source come from: the participant's wheel, and a link to the source."""

from importlib.metadata import metadata

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from server.base.addresses import site_address
from server.base.code_version import code_version
from server.base.errors import NotFoundError
from server.base.services import ServicesDep
from server.base.settings import Settings
from server.pages.client_wheel import client_wheel
from web.render import render

router = APIRouter(include_in_schema=False)
LABELS = ("source", "source code", "repository", "code", "homepage")


@router.get("/install", response_class=HTMLResponse)
def install_page(services: ServicesDep, request: Request) -> str:
    """How to install the command from this server, and where its source is."""
    return render(
        "install.html",
        site=site_address(request, services.settings),
        wheel=client_wheel(),
        members=services.settings.reads == "members",
        source=source_address(services.settings),
        commit=code_version(services.settings.code_commit).commit,
    )


@router.get("/install/{stem}.whl")
def wheel(stem: str) -> Response:
    """The participant's distribution, for pip."""
    made = client_wheel()
    if f"{stem}.whl" != made.name:
        raise NotFoundError(f"There is no {stem[:100]}.whl here. This server has {made.name}.")
    return Response(made.content, media_type="application/zip")


def source_address(settings: Settings) -> str | None:
    """Where the source is: as the organiser says, else as the distribution's metadata does."""
    if settings.source_url is not None:
        return settings.source_url
    named = metadata("finishline-server").get_all("Project-URL") or []
    pairs = [each.partition(",") for each in named]
    addresses = {label.strip().lower(): address.strip() for label, _, address in pairs}
    return next((addresses[label] for label in LABELS if label in addresses), None)
