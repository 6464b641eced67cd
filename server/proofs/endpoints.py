"""Proofs of verifications, and the keys they are signed with. Anybody may read both."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from server.artifacts import pieces
from server.dependencies import PartsDep
from server.proofs import queries, service
from server.proofs.bundle import write_bundle
from server.proofs.schemas import KeyList, key_view
from server.sessions.viewing import ViewerDep

router = APIRouter(tags=["proofs"])

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`proof.json` and the claim's files under `logs/`, named by their SHA-256.",
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}
Format = Annotated[
    Literal["zip", "json"], Query(alias="format", description="json: proof.json alone.")
]


@router.get("/verifications/{verification_id}/proof", response_class=Response, responses=ANSWERS)
def get_proof(
    verification_id: str, parts: PartsDep, viewer: ViewerDep, kind: Format = "zip"
) -> Response:
    """All that a verdict stands on, signed. `finishline check-proof` checks it anywhere."""
    signed = service.sign_proof(parts, verification_id, viewer)
    if kind == "json":
        return Response(signed.content, media_type="application/json")
    bundle = write_bundle(signed.content, signed.files, parts.artifacts)
    name = f'attachment; filename="proof-{verification_id}.zip"'
    return StreamingResponse(
        pieces(bundle), media_type="application/zip", headers={"Content-Disposition": name}
    )


@router.get("/keys")
def list_keys(parts: PartsDep) -> KeyList:
    """Every public key that proofs of this server were signed with, earlier ones too."""
    current = service.current_signer(parts).key_id
    with parts.database.read() as session:
        keys = queries.list_keys(session)
    return KeyList(keys=[key_view(key, current=current) for key in keys])
