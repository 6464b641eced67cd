"""The API's description as a page: Swagger UI from an installed package, no other host asked."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from web.render import render

router = APIRouter(include_in_schema=False)
ASSETS = "/docs-assets"


@router.get("/docs/api", response_class=HTMLResponse)
def api_reference(request: Request) -> str:
    """Every endpoint, to read and to try."""
    return render("api_reference.html", openapi_url=request.app.openapi_url, assets=ASSETS)


@cache
def reference_assets() -> StaticFiles:
    """Swagger UI's script and style as the package `fastapi-offline` ships them."""
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        raise RuntimeError("The package fastapi-offline is not installed: run 'make install'.")
    return StaticFiles(directory=Path(package.origin).parent / "static")
