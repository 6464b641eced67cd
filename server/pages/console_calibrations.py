"""Calibrations in the console: the pages around the forms that start and change one."""

from sqlalchemy.orm import Session

from server.base.services import Services
from server.pages.declared import Context, choices, page
from server.verifications import calibration_views as views
from server.verifications.calibrations import CONSOLE, ONE

LATEST = 50


@page(CONSOLE, "calibrations.html", role="organiser")
def calibrations_page(session: Session, services: Services) -> Context:
    """The calibrations, and the form that starts one."""
    offered = sorted(services.benchmarks.items())
    return {
        "typed": {"runs": "20"},
        "calibrations": views.list_calibrations(session, services, limit=LATEST).calibrations,
        "benchmarks": choices([name for name, made in offered if made.replay is not None]),
    }


@page(ONE, "calibration.html", role="organiser")
def calibration_page(session: Session, services: Services, calibration_id: str) -> Context:
    """A calibration: its progress, and the forms that adopt, continue or cancel it."""
    return {"calibration": views.get_calibration(session, services, calibration_id)}
