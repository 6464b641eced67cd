"""Logs that end in the middle of their run: no rule is broken, and their run missed the target."""

from collections.abc import Iterable

from rules.errors import LogFormatError
from rules.run import Run
from rules.scoring import RunScore


def find_cut_off(scored: Iterable[tuple[Run, RunScore]]) -> list[LogFormatError]:
    """A remark for each log of MLPerf's that has a run_start and no run_stop.

    It counts as far as it goes (rules.tta), so what is wrong is told and nothing refused.
    """
    return [
        LogFormatError(
            f"the log ends without run_stop, so it was probably cut off; {_meaning(score)}",
            file=run.name,
            field="run_stop",
            expected="a run_stop with its status at the end of a whole log",
            code="no_run_stop",
        )
        for run, score in scored
        if run.clock == "mlperf" and run.stop_seconds is None
    ]


def _meaning(score: RunScore) -> str:
    if score.reached:
        return "its time is that of the evaluation that reached the target"
    return "its run counts as one that did not reach the target"
