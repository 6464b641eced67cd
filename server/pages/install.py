"""How to install the command, and where this server's source is."""

from fastapi import Request

from server.base.places import code_version
from server.base.services import Services, site_address
from server.pages.declared import Context, public_page


@public_page("/install", "install.html", to_all=True)
def install_page(services: Services, request: Request) -> Context:
    """The two commands that install the client and sign in to this server."""
    return {
        "site": site_address(request, services.settings),
        "source": services.settings.source_url,
        "commit": code_version(services.settings.code_commit).commit,
    }
