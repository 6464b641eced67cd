"""Static files under addresses that name their content."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from server.base.middleware import reader_has, reader_takes_gzip
from web.assets import Asset, static_asset

router = APIRouter(include_in_schema=False)
# Crawlers may read every public page; sorted and filtered boards repeat the same board.
ROBOTS = """User-agent: *
Disallow: /api/
Disallow: /console
Disallow: /*/charts/
"""


@router.get("/static/{path:path}")
def static_file(path: str, request: Request) -> Response:
    """A static file: compressed once, kept for ever under its fingerprinted address."""
    asset = static_asset(path)
    if asset is None:
        raise HTTPException(404, "Not found")
    return asset_answer(asset, request)


@router.get("/favicon.ico")
def favicon(request: Request) -> Response:
    """The icon at the address that browsers request by default."""
    return static_file("favicon.svg", request)


@router.get("/robots.txt")
def robots() -> Response:
    """Addresses that crawlers should skip."""
    return Response(ROBOTS, media_type="text/plain; charset=utf-8")


def asset_answer(asset: Asset, request: Request) -> Response:
    """Respond with an asset, compressed where accepted, or with 304 to a reader that has it."""
    keep = "public, max-age=31536000, immutable" if asset.immutable else "no-cache"
    headers = {"ETag": asset.etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    if reader_has(request, asset.etag):
        return Response(status_code=304, headers=headers)
    content = asset.content
    if reader_takes_gzip(request):
        content = asset.gzip_content
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)
