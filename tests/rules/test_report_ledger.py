"""Do the seconds of a report add up?"""

from dataclasses import replace

import pytest

from finishline.rules.errors import RuleError
from finishline.rules.scoring.run import Clock
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.report_check import (
    OffClock,
    check_ledgers,
    check_off_clock,
    check_spans,
    off_clock,
)

MLPERF, DAWNBENCH = Clock("mlperf"), Clock("dawnbench")
LEDGER = {"init": 2.0, "train": 1.0, "eval": 0.5}
RUN = ReplayRun(
    index=0,
    seed=1,
    status="reached",
    evaluations=[ReplayEvaluation(1.0, 100, 1.5, 98.0, LEDGER)],
    ledger=LEDGER,
    tta_seconds=1.5,
    parent_seconds=1.5,
    child_seconds=1.5,
)
REPORT = ReplayReport([RUN], WorkerSystem("w", "cpu", "any", 2, 24.0, None, 0, 1, {}))


def test_seconds_are_those_of_the_ledger_on_the_clock() -> None:
    check_ledgers(RUN, MLPERF, division="closed")
    with pytest.raises(RuleError, match=r"3\.0 s by its ledger on the dawnbench clock"):
        check_ledgers(RUN, DAWNBENCH, division="closed")


def test_no_phase_loses_seconds_though_the_total_grows() -> None:
    moved = replace(RUN, ledger=LEDGER | {"eval": 0.0, "train": 9.0})
    with pytest.raises(RuleError, match=r"eval loses seconds"):
        check_ledgers(moved, MLPERF, division="closed")


def test_the_clocks_of_a_run_span_its_ledger_after_the_preparation() -> None:
    check_spans(RUN)
    with pytest.raises(RuleError, match=r"1\.500 s, as its ledger adds up"):
        check_spans(replace(RUN, parent_seconds=3.5))


def test_what_each_clock_leaves_out() -> None:
    assert off_clock(RUN, MLPERF) == OffClock(preparation=2.0)
    assert off_clock(RUN, DAWNBENCH) == OffClock(evaluation=0.5)


@pytest.mark.parametrize(("calibrated", "passes"), [(1.0, True), (0.8, False)])
def test_preparation_takes_at_most_twice_the_calibrated(calibrated: float, passes: bool) -> None:
    # 2 * 1.0 + 0.25 = 2.25 s, 2 * 0.8 + 0.25 = 1.85 s; the run prepared for 2 s.
    if passes:
        check_off_clock(REPORT, MLPERF, [OffClock(preparation=calibrated)])
        return
    with pytest.raises(RuleError, match=r"at most 1\.850 s of preparation"):
        check_off_clock(REPORT, MLPERF, [OffClock(preparation=calibrated)])


def test_without_calibrated_seconds_nothing_is_compared() -> None:
    check_off_clock(REPORT, MLPERF, [])
