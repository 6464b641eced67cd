"""Endpoints of proofs: download a signed bundle, list the keys they are signed with."""

import shutil
import zipfile
from collections.abc import Iterable
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from finishline.api.schema import Schema
from finishline.rules.proof.proof import ENVELOPE_NAME, LOGS_FOLDER
from server.base.artifacts import CHUNK_BYTES, ArtifactStore, pieces
from server.base.errors import LostFileError
from server.base.models import SigningKey
from server.base.services import ServicesDep
from server.base.settings import MIB
from server.people.callers import ViewerDep
from server.verifications.proofs import current_signer, known_keys, sign_proof


class KeyView(Schema):
    """A public key in hex; `id` is the first 16 hex digits of its SHA-256."""

    id: str
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    created_at: datetime
    current: bool


class KeyList(Schema):
    """Every key this server has signed with, newest first."""

    keys: list[KeyView]


def key_view(key: SigningKey, *, current: str) -> KeyView:
    """View of a stored key."""
    return KeyView.of(key, current=key.id == current)


router = APIRouter(tags=["proofs"])

DSSE = "application/vnd.dsse.envelope.v1+json"
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`proof.dsse.json` and, under `logs/`, the claim's files, named by their "
        "SHA-256.",
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            DSSE: {"schema": {"type": "object"}},
        },
    }
}
Format = Annotated[
    Literal["zip", "dsse"], Query(alias="format", description="dsse: the envelope alone.")
]


@router.get("/verifications/{verification_id}/proof", response_class=Response, responses=ANSWERS)
def get_proof(
    verification_id: str, services: ServicesDep, viewer: ViewerDep, kind: Format = "zip"
) -> Response:
    """Download the signed evidence of a verdict. `finishline proof` checks it anywhere."""
    signed = sign_proof(services, verification_id, viewer)
    if kind == "dsse":
        return Response(signed.content, media_type=DSSE)
    bundle = write_bundle(signed.content, signed.files, services.artifacts)
    name = f'attachment; filename="proof-{verification_id}.zip"'
    return StreamingResponse(
        pieces(bundle), media_type="application/zip", headers={"Content-Disposition": name}
    )


@router.get("/keys")
def list_keys(services: ServicesDep) -> KeyList:
    """List every public key that signed proofs of this server, earlier ones included."""
    current = current_signer(services).key_id
    with services.database.read() as session:
        keys = known_keys(session)
    return KeyList(keys=[key_view(key, current=current) for key in keys])


# A zip must say when a file was made; the earliest moment it can say is the same every time.
MOMENT = (1980, 1, 1, 0, 0, 0)
IN_MEMORY_BYTES = 8 * MIB


def write_bundle(proof: bytes, files: Iterable[str], artifacts: ArtifactStore) -> IO[bytes]:
    """Write the zip of a proof and of the stored files of these hashes; at its beginning."""
    target = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  the caller closes it
    try:
        with zipfile.ZipFile(target, "w") as bundle:
            bundle.writestr(_entry(ENVELOPE_NAME), proof)
            for sha256 in sorted(set(files)):
                _add(bundle, sha256, artifacts)
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def _add(bundle: zipfile.ZipFile, sha256: str, artifacts: ArtifactStore) -> None:
    try:
        source = artifacts.open(sha256)
    except OSError as error:
        raise LostFileError(sha256) from error
    with source, bundle.open(_entry(LOGS_FOLDER + sha256), "w") as target:
        shutil.copyfileobj(source, target, CHUNK_BYTES)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    entry.create_system = 3
    return entry
