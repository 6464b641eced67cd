"""Addresses of this server as others use them: in a README, a citation, a chat."""

from fastapi import Request

from server.base.settings import Settings


def site_address(request: Request, settings: Settings) -> str:
    """The server's address without a slash at its end: as it is set, else as it was asked."""
    return (settings.public_url or str(request.base_url)).rstrip("/")
