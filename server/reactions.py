"""The listeners of this process: who reacts to which event, in which order."""

from server.base.events import (
    AuditDayEnded,
    CalibrationAdopted,
    StatusChanged,
    SubmissionAccepted,
    SubmissionWithdrawn,
    VerificationChanged,
    VerificationWanted,
    WorkerOut,
    connect,
)
from server.notices import announce
from server.verifications.service import end_withdrawn, verify_by_policy


def connect_rooms() -> None:
    """Connect the rooms of the server; to connect them again changes nothing."""
    connect(
        {
            SubmissionAccepted: [announce.tell_accepted],
            VerificationWanted: [verify_by_policy],
            SubmissionWithdrawn: [end_withdrawn, announce.tell_withdrawn],
            StatusChanged: [announce.tell_status],
            VerificationChanged: [announce.tell_verification],
            CalibrationAdopted: [announce.tell_calibration],
            WorkerOut: [announce.tell_worker],
            AuditDayEnded: [announce.tell_audit_head],
        }
    )
