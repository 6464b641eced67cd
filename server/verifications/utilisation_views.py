"""How much of its machine each replay used, as the API and the pages show it."""

from dataclasses import asdict

from pydantic import BaseModel, TypeAdapter

from finishline.rules.scoring.measurements import Figure
from finishline.rules.scoring.utilisation import run_utilisations
from finishline.rules.verification.messages import ReplayReport
from server.models import Verification

Figures = dict[str, Figure]


class UtilisationView(BaseModel):
    """One run: samples and FLOP/s of its train phase, and model FLOPs utilisation (MFU, 0 to 1).

    `roof_flops` is what it is held against: the worker's measured FLOP/s in the `precision` of the
    training. `intensity` is FLOP per byte. `missing` says why one of them is absent.
    """

    run: int
    samples_per_second: float | None
    achieved_flops: float | None
    utilisation: float | None
    roof_flops: float | None
    precision: str | None
    intensity: float | None
    missing: str | None


def utilisation_views(verification: Verification, figures: Figures) -> list[UtilisationView]:
    """The utilisation of each run that was reported; none before the report."""
    if verification.report is None:
        return []
    report = TypeAdapter(ReplayReport).validate_python(verification.report)
    return [UtilisationView(**asdict(found)) for found in run_utilisations(report, figures)]
