"""The API's description as a page: Swagger UI from an installed package, no other host asked."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)
ASSETS = "/docs-assets"


@router.get("/docs/api", response_class=HTMLResponse)
def api_reference(request: Request) -> HTMLResponse:
    """Every endpoint, to read and to try."""
    return get_swagger_ui_html(
        openapi_url=request.app.openapi_url,
        title="Finishline API",
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url="/static/favicon.svg",
    )


@cache
def reference_assets() -> StaticFiles:
    """Swagger UI's script and style as the package `fastapi-offline` ships them."""
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        raise RuntimeError("The package fastapi-offline is not installed: run 'make install'.")
    return StaticFiles(directory=Path(package.origin).parent / "static")
