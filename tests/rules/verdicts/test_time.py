"""The claimed time against that of the replays."""

import dataclasses
from collections.abc import Sequence

import pytest

from rules.benchmark import Benchmark
from rules.claim import Claim
from rules.messages import ReplayReport, WorkerSystem
from rules.verification import judge
from tests.support.verdicts import (
    HONEST_EPOCHS,
    LAPTOP,
    SECONDS_PER_EPOCH,
    Judge,
    claimed,
    codes,
    replay,
    report,
    weight_of,
)


def test_one_slow_run_does_not_hide_times_that_are_too_short(verdict: Judge) -> None:
    cheat = verdict(claimed(HONEST_EPOCHS, seconds=[0.1, 0.1, 1000.0]))

    assert cheat.outcome == "rejected"
    assert "slower_than_claimed" in codes(cheat)


def test_a_claim_slower_than_the_replay_is_verified(verdict: Judge) -> None:
    assert verdict(claimed([11, 12, 12])).outcome == "verified"


def test_a_replay_slower_than_claimed_beyond_tolerance_is_held_against_it(
    verdict: Judge, curve: list[float]
) -> None:
    slow = [replay(i, curve[:8], slowness=s) for i, s in enumerate((3.0, 3.1, 3.05))]

    found = verdict(replays=slow)

    assert found.outcome == "rejected"
    assert weight_of(found, "slower_than_claimed") == "rejects"
    assert found.reasons[3].numbers["ratio"] == pytest.approx(3.05, abs=0.01)
    assert found.reasons[3].numbers["tolerated_ratio"] == 1.5


def test_a_replay_slower_within_the_tolerance_agrees(verdict: Judge, curve: list[float]) -> None:
    slow = [replay(i, curve[:8], slowness=s) for i, s in enumerate((1.44, 1.45, 1.46))]

    assert verdict(replays=slow).outcome == "verified"


@pytest.mark.parametrize("cpu_seconds", [(0.6, 0.6, 0.6), (1.9, 0.6, None)])
def test_on_a_noisy_host_time_is_not_held_against_the_claim(
    verdict: Judge, curve: list[float], cpu_seconds: Sequence[float | None]
) -> None:
    slow = [
        replay(i, curve[:8], slowness=s, parent_seconds=2.0, cpu_seconds=cpu_seconds[i])
        for i, s in enumerate((3.0, 3.1, 3.05))
    ]

    noisy = verdict(replays=slow)

    assert noisy.outcome == "verified"
    assert weight_of(noisy, "noisy_host") == "note"
    assert noisy.reasons[3].numbers["cpu_share"] == pytest.approx(0.3)


def test_a_processor_that_was_the_replays_for_four_fifths_is_quiet(
    verdict: Judge, curve: list[float]
) -> None:
    def judged(cpu_seconds: float) -> list[str]:
        slow = [
            replay(i, curve[:8], slowness=s, cpu_seconds=cpu_seconds)
            for i, s in enumerate((1.8, 1.81, 1.82))
        ]
        return codes(verdict(replays=slow))

    assert "slower_than_claimed" in judged(0.8)
    assert "noisy_host" in judged(0.79)


def test_a_noisy_host_takes_nothing_from_a_replay_that_was_not_slow(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [
        replay(i, curve[:8], slowness=s, cpu_seconds=0.3) for i, s in enumerate((1.1, 1.2, 1.3))
    ]

    assert weight_of(verdict(replays=replays), "time_agrees") == "supports"


def test_a_pace_beyond_the_tolerance_by_no_more_than_chance_agrees_and_says_so(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [replay(i, curve[:8], slowness=s) for i, s in enumerate((0.6, 1.1, 9.0))]
    found = verdict(replays=replays)
    (agrees,) = (reason for reason in found.reasons if reason.code == "time_agrees")

    assert agrees.numbers["ratio"] > agrees.numbers["tolerated_ratio"] == 1.5
    assert agrees.message.endswith("the tolerated 1.50, but not by more than chance may do")
    assert verdict().reasons[3].message.endswith("times the claimed seconds per epoch")


@pytest.mark.parametrize(
    ("slowness", "cpu_seconds", "explained"),
    [
        # Much slower, and by too little to be sure of it: p is between the two limits.
        ((3.0, 5.0, 8.0), 0.98, False),
        # Plainly slower, and a processor that was the replay's for a quarter explains four times.
        ((9.9, 10.0, 10.1), 0.25, False),
        ((3.9, 4.0, 4.1), 0.25, True),
    ],
)
def test_a_claim_far_faster_than_noise_explains_is_never_verified(
    verdict: Judge,
    curve: list[float],
    slowness: Sequence[float],
    cpu_seconds: float,
    explained: bool,
) -> None:
    replays = [
        replay(i, curve[:8], slowness=s, cpu_seconds=cpu_seconds) for i, s in enumerate(slowness)
    ]

    found = verdict(replays=replays)

    assert ("time_not_confirmed" in codes(found)) is not explained
    assert ("other work" in found.reasons[3].message) is (cpu_seconds < 0.8)
    assert found.outcome == ("verified" if explained else "inconclusive")


def test_what_leaves_a_time_open_tells_how_much_other_work_explains(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [
        replay(i, curve[:8], slowness=s, cpu_seconds=0.25) for i, s in enumerate((9.9, 10.0, 10.1))
    ]

    (reason,) = (r for r in verdict(replays=replays).reasons if r.code == "time_not_confirmed")

    assert reason.weight == "leaves_open"
    assert "10.00 times the claimed seconds per epoch, of which other work explains 4.00" in (
        reason.message
    )
    assert reason.numbers["cpu_share"] == pytest.approx(0.25)


def test_several_threads_explain_no_more_than_a_processor_of_its_own(
    verdict: Judge, curve: list[float]
) -> None:
    replays = [replay(i, curve[:8], slowness=s, cpu_seconds=2.0) for i, s in enumerate((3, 5, 8))]

    (reason,) = (r for r in verdict(replays=replays).reasons if r.code == "time_not_confirmed")

    assert reason.numbers["cpu_share"] == 1.0


def test_time_is_compared_on_the_same_hardware_class_only(verdict: Judge) -> None:
    other = verdict(hardware_class="h200")

    assert weight_of(other, "hardware_differs") == "note"
    assert "time_agrees" not in codes(other)
    assert "cpu-x86_64" in other.reasons[3].message
    assert "h200" in other.reasons[3].message


def test_times_of_a_worker_that_drifted_are_compared_with_nothing(
    digits: Benchmark, curve: list[float]
) -> None:
    claim = Claim("digits", "closed", "m", "f", LAPTOP, ("run_0.log",))
    slow = report([replay(i, curve[:8], slowness=3.0) for i in range(3)])
    assert judge(digits, claim, claimed(HONEST_EPOCHS), slow).outcome == "rejected"
    drifted = dataclasses.replace(slow, drift="60 % slower than its own baseline")
    found = judge(digits, claim, claimed(HONEST_EPOCHS), drifted)
    assert found.outcome == "verified"
    assert weight_of(found, "worker_drifted") == "note"
    assert "slower_than_claimed" not in codes(found)


def test_a_claim_of_no_time_at_all_is_rejected_and_breaks_nothing(verdict: Judge) -> None:
    found = verdict(claimed(HONEST_EPOCHS, seconds=[0.0, 0.0, 0.0]))

    assert found.outcome == "rejected"
    assert "slower_than_claimed" in codes(found)


def test_a_claim_of_fewer_epochs_at_an_honest_time_has_a_slow_pace_not_a_slow_replay(
    verdict: Judge,
) -> None:
    """Epochs and pace are judged apart: too few epochs are no matter of the clock."""
    found = verdict(claimed([4, 4, 4], seconds=[0.8, 0.88, 0.9]))

    assert {r.code for r in found.reasons if r.weight == "rejects"} == {
        "converges_faster_than_replay"
    }
    numbers = next(r.numbers for r in found.reasons if r.code == "time_agrees")
    assert numbers["claimed_seconds_per_epoch"] == pytest.approx(0.22)
    assert numbers["replayed_seconds_per_epoch"] == pytest.approx(0.11, rel=0.02)
    assert numbers["ratio"] == pytest.approx(0.5, rel=0.02)


def test_a_pace_beyond_tolerance_is_caught_though_the_times_would_pass(verdict: Judge) -> None:
    """Twice the epochs at the replays' time: each epoch is claimed to take half as long."""
    found = verdict(claimed([15, 16, 16], seconds=[0.87, 0.88, 0.89]))

    assert found.outcome == "rejected"
    assert weight_of(found, "slower_than_claimed") == "rejects"
    assert "seconds per epoch" in next(
        r.message for r in found.reasons if r.code == "slower_than_claimed"
    )


def test_one_run_of_too_few_epochs_and_one_of_too_few_seconds_do_not_hide_each_other(
    verdict: Judge,
) -> None:
    """Each is dropped where its own factor is averaged, but of the times one of them is ranked.

    1 epoch at the honest pace, 8 epochs at a twentieth of it, and one honest run: the middle of
    epochs and of paces is honest, that of the times is 1 epoch's.
    """
    pace = SECONDS_PER_EPOCH
    found = verdict(claimed([1, 8, 8], seconds=[pace, 8 * pace / 20, 8 * pace]))

    assert found.outcome == "rejected"
    assert "convergence_agrees" in codes(found)
    (slower,) = (r for r in found.reasons if r.weight == "rejects")
    assert slower.code == "slower_than_claimed"
    assert slower.numbers["claimed_seconds"] == pytest.approx(pace)
    assert slower.numbers["claimed_seconds_per_epoch"] == pytest.approx(pace / 8)
    assert slower.numbers["ratio"] == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("silent", ["claim", "replay"])
def test_where_a_run_tells_no_epochs_whole_times_are_compared(
    verdict: Judge, curve: list[float], silent: str
) -> None:
    """The claim's time is the middle of 0.77, 0.88 and a run that missed the target."""
    runs = claimed([7, 8, None])
    replays = [replay(i, curve[:8], slowness=3 + i / 20) for i in range(3)]
    if silent == "claim":
        runs[0] = dataclasses.replace(runs[0], epochs_to_target=None)
    else:
        untold = [dataclasses.replace(e, epoch=0.0) for e in replays[2].evaluations]
        replays[2] = dataclasses.replace(replays[2], evaluations=untold)

    found = verdict(runs, replays)

    (slower,) = (r for r in found.reasons if r.code == "slower_than_claimed")
    assert "3.05 times the claimed time, " in slower.message
    assert slower.numbers["claimed_seconds"] == pytest.approx(0.88)
    assert slower.numbers["replayed_mean_seconds"] == pytest.approx(3.05 * 0.88)
    assert "claimed_seconds_per_epoch" not in slower.numbers


def test_on_an_accelerator_the_processor_share_tells_nothing(
    digits: Benchmark, curve: list[float]
) -> None:
    system = WorkerSystem("w1", "cpu-x86_64", "any", 2, 24.0, "H200", 1, 1, {})
    runs = [replay(i, curve[:8], slowness=3 + i / 20, cpu_seconds=0.1) for i in range(3)]
    claim = Claim("digits", "closed", "m", "f", LAPTOP, ("run_0.log",))

    found = judge(digits, claim, claimed(HONEST_EPOCHS), ReplayReport(runs, system))

    assert weight_of(found, "slower_than_claimed") == "rejects"
