"""A claim's described system against the registry of hardware classes."""

from dataclasses import asdict

from sqlalchemy.orm import Session

from finishline.rules.errors import ClaimError
from finishline.rules.submissions.claim import Claim
from server.hardware_classes import misfit_of_claim


def require_own_class(session: Session, claim: Claim, *, file: str) -> None:
    """Raise ClaimError where a claim describes another machine than its hardware class is."""
    misfit = misfit_of_claim(session, asdict(claim.system))
    if misfit is not None:
        raise ClaimError(
            f"got {misfit.found}",
            file=file,
            field=f"system.{misfit.field}",
            expected=f"{misfit.expected}, as hardware class {claim.system.hardware_class} has; "
            "name the class of your machine, or another name if it is in none "
            "(GET /api/v1/hardware-classes lists them)",
            code="hardware_class_contradicts_claim",
        )
