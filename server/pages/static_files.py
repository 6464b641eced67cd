"""Static files under addresses that name their content."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from web.assets import static_asset

router = APIRouter(include_in_schema=False)


@router.get("/static/{path:path}")
def static_file(path: str, request: Request) -> Response:
    """A static file: compressed once, kept for ever under its fingerprinted address."""
    asset = static_asset(path)
    if asset is None:
        raise HTTPException(404, "Not found")
    keep = "public, max-age=31536000, immutable" if asset.immutable else "no-cache"
    headers = {"ETag": asset.etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    content = asset.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = asset.gzip_content
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)
