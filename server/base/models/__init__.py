"""The schema, a module a subject. Curves, results and reports are JSON: they are read whole.

Curves and reports are large, so they are read only where they are asked for (`deferred`).
"""

import server.base.models.visibility  # noqa: F401  so that its conditions hold wherever rows are read
from server.base.models.attempts import Attempt, PauseRow, ReplayEventRow
from server.base.models.base import Base
from server.base.models.benchmarks import (
    BenchmarkDefinition,
    BenchmarkPhases,
    Board,
    BoardChange,
    PriceRow,
)
from server.base.models.notices import Message, Receiver
from server.base.models.people import (
    AuditRecord,
    Invitation,
    Organisation,
    Token,
    User,
)
from server.base.models.pools import Pool, PoolRun
from server.base.models.submissions import (
    DISPLAY_NAME,
    SUBMITTER,
    PublishedResult,
    RunRow,
    Submission,
)
from server.base.models.trainings import TrainingPackage
from server.base.models.verifications import (
    Calibration,
    CalibrationRunRow,
    Evidence,
    JobTraining,
    SigningKey,
    Verification,
)
from server.base.models.workers import HardwareClassRow, WorkerProbeRow, WorkerRow

__all__ = [
    "DISPLAY_NAME",
    "SUBMITTER",
    "Attempt",
    "AuditRecord",
    "Base",
    "BenchmarkDefinition",
    "BenchmarkPhases",
    "Board",
    "BoardChange",
    "Calibration",
    "CalibrationRunRow",
    "Evidence",
    "HardwareClassRow",
    "Invitation",
    "JobTraining",
    "Message",
    "Organisation",
    "PauseRow",
    "Pool",
    "PoolRun",
    "PriceRow",
    "PublishedResult",
    "Receiver",
    "ReplayEventRow",
    "RunRow",
    "SigningKey",
    "Submission",
    "Token",
    "TrainingPackage",
    "User",
    "Verification",
    "WorkerProbeRow",
    "WorkerRow",
]
