"""The listeners of this process: who reacts to which event, in which order."""

from server.base.events import (
    AuditDayEnded,
    CalibrationAdopted,
    DuplicateMarked,
    EmbargoLifted,
    OriginalReplaced,
    StatusChanged,
    SubmissionAccepted,
    SubmissionWithdrawn,
    VerificationChanged,
    VerificationWanted,
    WorkerOut,
    connect,
)
from server.notices.events import announce
from server.submissions.standing_changes import mark_after_embargo, replace_withdrawn
from server.verifications.jobs import settle_calibration
from server.verifications.judge import (
    check_duplicate,
    give_up_cross_check,
    settle_submission,
)
from server.verifications.proofs import keep_evidence
from server.verifications.requests import end_withdrawn, measure_original, verify_by_policy


def connect_rooms() -> None:
    """Connect the rooms of the server. Connecting them again changes nothing."""
    connect(
        {
            SubmissionAccepted: [announce],
            VerificationWanted: [verify_by_policy],
            SubmissionWithdrawn: [end_withdrawn, replace_withdrawn, announce],
            EmbargoLifted: [mark_after_embargo],
            DuplicateMarked: [check_duplicate],
            OriginalReplaced: [measure_original],
            StatusChanged: [announce],
            VerificationChanged: [
                announce,
                settle_calibration,
                keep_evidence,
                settle_submission,
                give_up_cross_check,
            ],
            CalibrationAdopted: [announce],
            WorkerOut: [announce],
            AuditDayEnded: [announce],
        }
    )
