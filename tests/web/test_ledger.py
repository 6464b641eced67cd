import pytest

from web.run_measurements import ledger_bars, phases_used


def test_bars_share_the_scale_of_the_longest_run() -> None:
    short, long = {"train": 1.0, "init": 1.0}, {"train": 3.0, "init": 1.0, "idle": 0.0}
    bars = ledger_bars([{"ledger": short}, {"ledger": long}])
    assert [(s.phase, s.percent) for s in bars[0].segments] == [("init", 25.0), ("train", 25.0)]
    assert [s.start_percent for s in bars[0].segments] == [0.0, 25.0]
    assert sum(s.percent for s in bars[1].segments) == pytest.approx(100.0)
    assert [bar.total_seconds for bar in bars] == [2.0, 4.0]


def test_a_run_without_a_ledger_has_an_empty_bar() -> None:
    runs = [{"ledger": None}, {"ledger": {"train": 0.0}}]
    assert [bar.segments for bar in ledger_bars(runs)] == [(), ()]
    assert phases_used(runs) == []
