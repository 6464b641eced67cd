"""Signing what a verification came to."""

from dataclasses import dataclass
from typing import Any

from finishline.rules.proof.hash_chain import canonical
from finishline.rules.proof.proof import FORMAT, part_hashes, signed_bytes
from server.database import insert_missing, utc_now
from server.dependencies import Parts
from server.errors import ConflictError
from server.models import SigningKey
from server.proofs.queries import proof_parts
from server.signing import ALGORITHM, Signer, load_signer
from server.verifications.queries import find_verification
from server.verifications.schemas import ENDED
from server.viewer import Viewer


@dataclass(frozen=True)
class SignedProof:
    """A proof's canonical JSON, signature and all, and the hashes of the files it names."""

    content: bytes
    files: tuple[str, ...]


def sign_proof(parts: Parts, verification_id: str, viewer: Viewer) -> SignedProof:
    """The proof of a verification that has ended, signed with the present key.

    Raises NotFoundError, and ConflictError while the verification is under way: what was drawn
    stays sealed until then.
    """
    with parts.database.read(viewer) as session:
        verification = find_verification(session, verification_id)
        if verification.state not in ENDED:
            raise ConflictError(
                f"Verification {verification_id} is {verification.state}; "
                "there is a proof once it has ended."
            )
        if not verification.nonce:
            raise ConflictError(
                f"Verification {verification_id} was under way at the server that this one was "
                "made from: its draw stayed sealed there, and there is no proof of it."
            )
        document = {"format": FORMAT, **proof_parts(session, verification)}
    document["parts"] = part_hashes(document)
    signer = current_signer(parts)
    document["signature"] = {
        "algorithm": ALGORITHM,
        "key_id": signer.key_id,
        "public_key": signer.public_key,
        "value": signer.sign(signed_bytes(document)),
    }
    return SignedProof(canonical(document), _files(document["submission"]))


def _files(submission: dict[str, Any]) -> tuple[str, ...]:
    return (submission["claim_sha256"], *(log["sha256"] for log in submission["logs"]))


def current_signer(parts: Parts) -> Signer:
    """The signer of the present key, whose public half is listed from then on."""
    signer = load_signer(parts.settings.signing_key_path)
    with parts.database.read() as session:
        known = session.get(SigningKey, signer.key_id) is not None
    if not known:
        with parts.database.write() as session:
            insert_missing(
                session,
                SigningKey,
                id=signer.key_id,
                public_key=signer.public_key,
                created_at=utc_now(),
            )
    return signer
