"""The events there are: a closed list, with what each of them means."""

from typing import Literal, cast, get_args

EventKind = Literal[
    "submission.accepted",
    "submission.verifying",
    "submission.verified",
    "submission.rejected",
    "submission.inconclusive",
    "submission.withdrawn",
    "verification.queued",
    "verification.started",
    "verification.lost",
    "verification.done",
    "verification.failed",
    "verification.cancelled",
    "record.set",
    "calibration.adopted",
    "decision.published",
    "worker.drifted",
    "worker.lost",
    "worker.paused",
    "worker.refused",
]
KINDS = cast(tuple[EventKind, ...], get_args(EventKind))
ABOUT: dict[str, str] = {
    "submission.accepted": "A submission is stored and scored.",
    "submission.verifying": "The first check of its claim was asked for.",
    "submission.verified": "It counts as verified.",
    "submission.rejected": "It counts as rejected.",
    "submission.inconclusive": "Its check left open whether it holds.",
    "submission.withdrawn": "It was withdrawn.",
    "verification.queued": "An attempt waits for a worker.",
    "verification.started": "A worker has taken the attempt.",
    "verification.lost": "The worker went silent; another attempt follows while any are left.",
    "verification.done": "It ended with an outcome.",
    "verification.failed": "It ended without one.",
    "verification.cancelled": "It was cancelled.",
    "record.set": "A measured time or a duel took the record of its division.",
    "calibration.adopted": "A calibration judges what is planned from now on.",
    "decision.published": "An organiser published the verdict of a rerun.",
    "worker.drifted": "A worker is out: it is not as fast as it was.",
    "worker.lost": "A worker went silent while it trained.",
    "worker.paused": "The server paused a worker: it failed too often, or others contradict it.",
    "worker.refused": "A worker's report was refused: it does not agree with what was seen.",
}
# What nobody can ask for: a ping, the confirmation of an address, a webhook that was switched off.
TEST = "webhook.test"
CONFIRM = "mail.confirm"
SWITCHED_OFF = "webhook.disabled"
# Not told to anybody: a submission that may have set a record.
RECORD_CHECK = "record.check"


def is_submission_status(status: str) -> bool:
    """Whether a submission that comes to this status is an event."""
    return f"submission.{status}" in KINDS
