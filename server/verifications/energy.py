"""The energy that a replay measured, beside the claim it verified."""

from pydantic import TypeAdapter

from finishline.rules.scoring.energy import energy_to_target_joules
from finishline.rules.verification.messages import ReplayReport
from server.models import Verification
from server.verifications.publishing import is_published

REPORT = TypeAdapter(ReplayReport)


def show_energy(verification: Verification) -> None:
    """Put what the published replay measured on the board, or nothing where it measured none.

    Only what was trained on the hardware class of the claim may stand beside its time. To be
    called where a verdict is published, which raises the board's version.
    """
    submission = verification.submission
    if verification.kind != "replay" or submission is None or verification.report is None:
        return
    if not is_published(verification):
        return
    report = REPORT.validate_python(verification.report)
    same_class = report.system.hardware_class == submission.system["hardware_class"]
    submission.energy_joules = _joules(report) if same_class else None


def _joules(report: ReplayReport) -> float | None:
    return energy_to_target_joules(
        [
            None if run.telemetry is None else run.telemetry.energy_joules
            for run in report.runs
            if run.status == "reached"
        ]
    )
