"""Show the documents, the API's description, the price book, and how to install the command."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy.orm import Session

from server.base.database import Services, ServicesDep, site_address
from server.base.errors import NotFoundError
from server.base.places import code_version
from server.benchmarks.prices import PriceQuery, list_prices
from server.pages.declared import Context, public_page, read_query
from server.pages.files import asset_answer
from web.documents import INDEX, Document, Documents, read_documents
from web.render import render

router = APIRouter(include_in_schema=False)
ASSETS = "/docs-assets"


@router.get("/docs/api", response_class=HTMLResponse)
def api_reference(request: Request) -> str:
    """Show every endpoint, to read and to try."""
    return render("api_reference.html", openapi_url=request.app.openapi_url, assets=ASSETS)


@cache
def reference_assets() -> StaticFiles:
    """Serve Swagger UI's script and style from the package `fastapi-offline`."""
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        raise RuntimeError("The package fastapi-offline is not installed: run 'make install'.")
    return StaticFiles(directory=Path(package.origin).parent / "static")


NO_DOCUMENTS = (
    "This server was installed without its documents. Whoever runs it can set "
    "FINISHLINE_DOCS_DIR to the folder docs of the source and start it again."
)


@router.get("/docs", response_class=HTMLResponse)
def docs_index(services: ServicesDep) -> str:
    """Show the index of the documents, in the order to read them."""
    return _page(services, INDEX)


@router.get("/docs/images/{name:path}")
def docs_image(name: str, services: ServicesDep, request: Request) -> Response:
    """Serve an image of the documents."""
    image = read_documents(services.settings.docs_dir).images.get(name)
    if image is None:
        raise NotFoundError(f"The documents have no image {name!r}.")
    return asset_answer(image, request)


@router.get("/docs/{name:path}", response_class=HTMLResponse)
def docs_page(name: str, services: ServicesDep) -> Response:
    """Show a document. With `.md` after its name, serve its text."""
    if name.endswith(".md"):
        document = _find(read_documents(services.settings.docs_dir), name.removesuffix(".md"))
        return Response(document.text, media_type="text/markdown; charset=utf-8")
    return HTMLResponse(_page(services, name))


def _page(services: ServicesDep, name: str) -> str:
    documents = read_documents(services.settings.docs_dir)
    return render(
        "docs.html",
        document=_find(documents, name),
        parts=documents.parts(),
    )


def _find(documents: Documents, name: str) -> Document:
    if not documents.by_name:
        raise NotFoundError(NO_DOCUMENTS)
    document = documents.find(name)
    if document is None:
        raise NotFoundError(f"There is no document {name!r}. /docs lists them.")
    return document


@public_page("/prices", "prices.html", to_all=True)
def prices_page(session: Session, request: Request) -> Context:
    """Show the price book: prices of instances with their dates and sources."""
    query = read_query(PriceQuery, request)
    filters = query.model_dump(mode="json", exclude_none=True)
    return {
        "prices": list_prices(session, query).prices,
        "filters": filters,
        "query": f"?{urlencode(filters)}" if filters else "",
    }


@public_page("/install", "install.html", to_all=True)
def install_page(services: Services, request: Request) -> Context:
    """Show the two commands to install the client and sign in to this server."""
    return {
        "site": site_address(request),
        "source": services.settings.source_url,
        "commit": code_version(services.settings.code_commit).commit,
    }
