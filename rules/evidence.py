"""Evidence: which time of a submission may be ranked, and how far its claim was checked."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from rules.claim import Kind

Evidence = Literal["measured", "published", "claimed"]
Check = Literal[
    "none", "queued", "running", "epochs_agree", "witnessed", "undecided", "contradicted"
]
FEWEST_SEALED_RUNS = 3
CHECK_OF_STATUS: dict[str, Check] = {
    "claimed": "none",
    "verifying": "queued",
    "verified": "epochs_agree",
    "inconclusive": "undecided",
    "rejected": "contradicted",
}


def evidence_of(*, archive: bool, measured: bool) -> Evidence:
    """The word for a submission: an archive's is published, a pool's measured, any other claimed.

    `measured` is whether its own configuration was trained on our workers with a measured time, by
    a verdict that stands (`may_be_measured`).
    """
    if archive:
        return "published"
    return "measured" if measured else "claimed"


def check_of(
    evidence: Evidence,
    status: str,
    *,
    running: bool = False,
    uncalibrated: bool = False,
    witnessed: bool = False,
) -> Check | None:
    """How far a claim was checked; None of whatever is not claimed.

    `status` is the word of its verdict. `running` tells a verification that has begun from one that
    waits. A verified claim is `undecided` where its settings are not calibrated. `witnessed` says
    that its epochs agreed on its submitter's machine: that changes nothing our workers found.
    """
    if evidence != "claimed":
        return None
    if status == "verifying" and running:
        return "running"
    if status == "verified" and uncalibrated:
        return "undecided"
    check = CHECK_OF_STATUS[status]
    return "witnessed" if witnessed and check in ("none", "epochs_agree") else check


def may_be_measured(
    *, status: str, kind: Kind, trained_with: str, same_class: bool, timed: bool
) -> bool:
    """Whether sealed runs measure a submission itself, and not only its epochs.

    The reference with these settings, trained on its own hardware class by a worker that was quiet
    and had not drifted, with a verdict that verifies the claim.
    """
    return (
        kind == "train"
        and status == "verified"
        and trained_with == "reference"
        and same_class
        and timed
    )


def is_timed(reasons: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a verdict's reasons leave its times standing: a quiet worker that did not drift.

    `reasons` are as they are stored, `rules.verdict.Reason` as tables.
    """
    untimed = {"hardware_differs", "worker_drifted", "noisy_host"}
    return not any(reason["code"] in untimed for reason in reasons)
