"""The schema, by what belongs together. Curves, results and reports are JSON: they are read whole.

Curves and reports are large, so they are read only where they are asked for (`deferred`).
"""

import server.models.visibility  # noqa: F401  so that its conditions hold wherever rows are read
from server.models.attempts import Attempt, QueueRow, QueueTurn, ReplayEventRow, ReplayOpening
from server.models.base import Base
from server.models.benchmarks import (
    BenchmarkDefinition,
    BenchmarkPhases,
    Board,
    BoardChange,
    PriceRow,
)
from server.models.notices import Delivery, MailSubscription, NoticeEvent, Webhook
from server.models.people import (
    AuditRecord,
    Charge,
    ConsoleSession,
    Organisation,
    Quota,
    Token,
    User,
)
from server.models.pools import Pool, PoolRun
from server.models.submissions import SUBMITTER, PublishedResult, RunRow, Submission, TicketRow
from server.models.verifications import (
    Calibration,
    CalibrationRunRow,
    Decision,
    Evidence,
    JobTraining,
    SigningKey,
    Verification,
)
from server.models.workers import HardwareClassRow, WorkerProbeRow, WorkerRow

__all__ = [
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
    "Charge",
    "ConsoleSession",
    "Decision",
    "Delivery",
    "Evidence",
    "HardwareClassRow",
    "JobTraining",
    "MailSubscription",
    "NoticeEvent",
    "Organisation",
    "Pool",
    "PoolRun",
    "PriceRow",
    "PublishedResult",
    "QueueRow",
    "QueueTurn",
    "Quota",
    "ReplayEventRow",
    "ReplayOpening",
    "RunRow",
    "SigningKey",
    "Submission",
    "TicketRow",
    "Token",
    "User",
    "Verification",
    "Webhook",
    "WorkerProbeRow",
    "WorkerRow",
]
