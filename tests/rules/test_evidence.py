"""Three words for evidence, and the check beside one of them."""

import pytest

from finishline.rules.ranking.evidence import check_of, evidence_of, is_timed, may_be_measured

WELL = {
    "status": "verified",
    "kind": "train",
    "trained_with": "reference",
    "same_class": True,
    "timed": True,
}


def test_archive_is_published_whatever_was_replayed() -> None:
    assert evidence_of(archive=True, measured=True) == "published"
    assert evidence_of(archive=False, measured=True) == "measured"
    assert evidence_of(archive=False, measured=False) == "claimed"


@pytest.mark.parametrize(
    ("status", "check"),
    [
        ("claimed", "none"),
        ("verifying", "queued"),
        ("verified", "epochs_agree"),
        ("inconclusive", "undecided"),
        ("rejected", "contradicted"),
    ],
)
def test_check_follows_the_verdict_of_a_claim(status: str, check: str) -> None:
    assert check_of("claimed", status) == check
    assert check_of("measured", status) is None
    assert check_of("published", status) is None


def test_check_tells_running_from_queued_and_uncalibrated_from_agreeing() -> None:
    assert check_of("claimed", "verifying", running=True) == "running"
    assert check_of("claimed", "verified", uncalibrated=True) == "undecided"
    assert check_of("claimed", "rejected", uncalibrated=True) == "contradicted"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"status": "inconclusive"},
        {"kind": "inference"},
        {"trained_with": "own"},
        {"same_class": False},
        {"timed": False},
    ],
)
def test_only_what_was_trained_on_a_quiet_worker_of_its_class_is_measured(
    otherwise: dict[str, object],
) -> None:
    assert may_be_measured(**WELL)  # type: ignore[arg-type]
    assert not may_be_measured(**WELL | otherwise)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", ["hardware_differs", "worker_drifted", "noisy_host"])
def test_replay_is_not_timed_where_its_reasons_say_so(code: str) -> None:
    agrees = {"code": "convergence_agrees"}
    assert is_timed([agrees])
    assert not is_timed([agrees, {"code": code}])
