"""Source of the expected seconds: the table of clocks in docs/rules, phase by phase."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.scoring.run import CLOCK_NAMES, Clock, Ledger, Phase

# Powers of two: each sum tells which phases went into it.
LEDGER = Ledger(init=1, compile=2, warmup=4, data=8, train=16, eval=32, checkpoint=64, idle=128)


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        ("dawnbench", 1 + 2 + 4 + 8 + 16 + 64 + 128),  # everything but evaluation
        ("mlperf", 8 + 16 + 32 + 64 + 128),  # all after the free preparation, evaluation too
        ("speedrun", 8 + 16 + 64 + 128),  # as mlperf, paused at evaluations
    ],
)
def test_each_clock_counts_its_own_phases(clock: str, seconds: float) -> None:
    assert Clock(clock).seconds(LEDGER, division="closed") == seconds


@pytest.mark.parametrize(
    ("division", "preparation", "counted"),
    [
        ("closed", 1800.0, 0.0),  # exactly 30 minutes are free
        ("closed", 1800.5, 0.5),
        ("open", 4 * 3600.0, 0.0),  # exactly 4 hours are free
        ("open", 4 * 3600.0 + 60, 60.0),
    ],
)
def test_on_the_mlperf_clock_only_preparation_beyond_the_allowance_counts(
    division: str, preparation: float, counted: float
) -> None:
    ledger = Ledger(init=preparation - 200, compile=150, warmup=50, train=10)

    assert Clock("mlperf").seconds(ledger, division=division) == pytest.approx(10 + counted)


@pytest.mark.parametrize("clock", CLOCK_NAMES)
def test_an_empty_ledger_is_no_time_on_any_clock(clock: str) -> None:
    assert Clock(clock).seconds(Ledger(), division="closed") == 0.0


@given(st.sampled_from(CLOCK_NAMES), st.sampled_from(list(Phase)), st.floats(0, 1e6))
def test_more_time_in_a_phase_never_makes_a_run_faster(
    clock: str, phase: Phase, seconds: float
) -> None:
    before = Clock(clock).seconds(LEDGER, division="closed")

    after = Clock(clock).seconds(LEDGER.plus(phase, seconds), division="closed")

    assert before <= after <= before + seconds + 1e-9
