"""The listeners of this process: who reacts to which event, in which order."""

from server.events import (
    CalibrationAdopted,
    StatusChanged,
    SubmissionAccepted,
    SubmissionWithdrawn,
    VerificationChanged,
    WorkerOut,
    connect,
)
from server.notices import announce


def connect_rooms() -> None:
    """Connect the rooms of the server; to connect them again changes nothing."""
    connect(
        {
            SubmissionAccepted: [announce.tell_accepted],
            SubmissionWithdrawn: [announce.tell_withdrawn],
            StatusChanged: [announce.tell_status],
            VerificationChanged: [announce.tell_verification],
            CalibrationAdopted: [announce.tell_calibration],
            WorkerOut: [announce.tell_worker],
        }
    )
