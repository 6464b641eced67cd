"""Every purpose that a job can have: a new one is a module with its plan and judge, and a line."""

from finishline.rules.errors import RuleError
from finishline.rules.verification.calibration import CALIBRATION
from finishline.rules.verification.cross_check import CROSS_CHECK
from finishline.rules.verification.duel import DUEL
from finishline.rules.verification.job import Purpose
from finishline.rules.verification.latency import LATENCY
from finishline.rules.verification.replay import REPLAY

__all__ = ["CALIBRATION", "CROSS_CHECK", "DUEL", "LATENCY", "PURPOSES", "REPLAY", "purpose_named"]

PURPOSES = {purpose.name: purpose for purpose in (REPLAY, CALIBRATION, DUEL, LATENCY, CROSS_CHECK)}


def purpose_named(name: str) -> Purpose:
    """The purpose of a name. Raises RuleError for an unknown one."""
    if name not in PURPOSES:
        raise RuleError(f"unknown purpose {name!r}", expected=" or ".join(PURPOSES))
    return PURPOSES[name]
