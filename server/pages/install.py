"""How to install the command, and where this server's source is."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from server.base.addresses import site_address
from server.base.code_version import code_version
from server.base.services import ServicesDep
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/install", response_class=HTMLResponse)
def install_page(services: ServicesDep, request: Request) -> str:
    """The two commands that install the client and sign in to this server."""
    return render(
        "install.html",
        site=site_address(request, services.settings),
        source=services.settings.source_url,
        commit=code_version(services.settings.code_commit).commit,
    )
