"""List the purposes of jobs: a new one is a module with its plan and judge, and a line."""

from finishline.rules.verification.calibration import CALIBRATION
from finishline.rules.verification.cross_check import CROSS_CHECK
from finishline.rules.verification.entry import ABLATION, ENTRY
from finishline.rules.verification.head_to_head import HEAD_TO_HEAD
from finishline.rules.verification.latency import LATENCY
from finishline.rules.verification.replay import REPLAY

__all__ = ["ABLATION", "CALIBRATION", "CROSS_CHECK", "ENTRY", "HEAD_TO_HEAD", "LATENCY", "REPLAY"]

ALL = (REPLAY, CALIBRATION, HEAD_TO_HEAD, LATENCY, CROSS_CHECK, ENTRY, ABLATION)
PURPOSES = {purpose.name: purpose for purpose in ALL}
# Purposes that somebody requests for one submission.
ASKED_FOR = tuple(name for name, purpose in PURPOSES.items() if purpose.claims == 1)


def is_in_box(name: str) -> bool:
    """Whether jobs of a purpose train code. False for an unknown one."""
    return name in PURPOSES and PURPOSES[name].in_box
