"""The page that checks a proof in its reader's browser; nothing is sent to the server."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.base.services import ServicesDep
from server.verifications.proof_endpoints import list_keys
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/proof", response_class=HTMLResponse)
def proof_page(services: ServicesDep) -> str:
    """The form that takes a proof, with the public keys of this server."""
    return render("proof.html", keys=list_keys(services).model_dump_json(indent=1))
