"""Records among measured configurations: a duel decides, and Welch where none is possible."""

import math
from collections.abc import Sequence

import pytest
import scipy.stats

from finishline.rules.ranking.records import ONE_OWNER, Contender, RecordDuel, measured_history
from finishline.rules.verification.duel import DuelRun, Pair, judge_duel, p_challenger_no_faster


def measured(
    name: str,
    date: str,
    seconds: float,
    *,
    duels: Sequence[RecordDuel] = (),
    on: str | None = "cpu",
    attested: bool = True,
) -> Contender:
    """A configuration with ten fresh runs close to its time; its pool has its name."""
    runs = [seconds * (1 + 0.001 * (number - 4.5)) for number in range(10)]
    return Contender(
        name,
        date,
        seconds,
        runs,
        True,
        True,
        pool=name,
        duels=duels,
        duels_on=on,
        attested=attested,
    )


def test_what_one_owners_workers_alone_measured_holds_and_takes_no_record() -> None:
    won = RecordDuel("d1", holder="b", date="5", p_value=0.001)
    alone = measured("a", "1", 50.0, attested=False)
    faster = measured("c", "3", 30.0, duels=[won], attested=False)
    history = measured_history([alone, measured("b", "2", 60.0), faster])

    assert [record.submission_id for record in history.records] == ["b"]
    assert [(one.submission_id, one.holder) for one in history.not_records] == [
        ("a", None),
        ("c", "b"),
    ]
    assert {one.reason for one in history.not_records} == {ONE_OWNER}


def test_a_record_between_configurations_that_may_duel_falls_by_a_duel_alone() -> None:
    history = measured_history([measured("a", "1", 50.0), measured("b", "2", 40.0)])

    assert [record.submission_id for record in history.records] == ["a"]
    assert history.not_records[0].reason == "its duel with the holder is not fought"


def test_a_duel_won_below_p_001_takes_the_record_on_its_own_date() -> None:
    won = RecordDuel("d1", holder="a", date="5", p_value=0.009)
    history = measured_history([measured("a", "1", 50.0), measured("b", "2", 40.0, duels=[won])])

    last = history.records[-1]
    assert (last.submission_id, last.date, last.beaten) == ("b", "5", "a")
    assert (last.p_value, last.duel, last.pool) == (0.009, "d1", "b")
    assert history.not_records == ()


def test_a_lost_duel_takes_nothing_and_a_later_one_may() -> None:
    lost = RecordDuel("d1", holder="a", date="5", p_value=0.01)
    won = RecordDuel("d2", holder="a", date="9", p_value=0.001)
    first = measured("a", "1", 50.0)

    history = measured_history([first, measured("b", "2", 40.0, duels=[lost])])
    assert len(history.records) == 1
    assert "p = 0.01, must be below 0.01" in history.not_records[0].reason
    history = measured_history([first, measured("b", "2", 40.0, duels=[lost, won])])
    assert (history.records[-1].duel, history.records[-1].date) == ("d2", "9")


def test_a_duel_with_one_that_lost_the_record_meanwhile_takes_nothing() -> None:
    early = RecordDuel("d1", holder="a", date="3", p_value=0.001)
    late = RecordDuel("d2", holder="a", date="4", p_value=0.001)
    rivals = [
        measured("a", "1", 50.0),
        measured("b", "2", 40.0, duels=[early]),
        measured("c", "2", 39.0, duels=[late]),
    ]

    assert [r.submission_id for r in measured_history(rivals).records] == ["a", "b"]


def test_where_no_duel_is_possible_welch_counts_the_configurations_since() -> None:
    """Two of another class: the second is the second draw since the record."""
    history = measured_history(
        [
            measured("a", "1", 50.0),
            measured("b", "2", 60.0, on="x"),
            measured("c", "3", 40.0, on="y"),
        ]
    )
    logs = [[math.log(run) for run in measured("", "", t).runs] for t in (40.0, 50.0)]
    alone = scipy.stats.ttest_ind(*logs, equal_var=False, alternative="less").pvalue

    assert history.records[-1].submission_id == "c"
    assert history.records[-1].p_value == pytest.approx(2 * alone, rel=1e-6)


def test_the_p_value_of_a_duel_is_that_of_the_paired_t_test_on_log_times() -> None:
    holder = [50.0 + 0.7 * (number * 7 % 10) for number in range(10)]
    challenger = [48.5 + 0.9 * (number * 3 % 10) for number in range(10)]
    pairs = [
        Pair(number, DuelRun(0, 1, "reached", mine, 8.0), DuelRun(1, 2, "reached", theirs, 8.0))
        for number, (mine, theirs) in enumerate(zip(challenger, holder, strict=True), start=1)
    ]
    logs = [[math.log(seconds) for seconds in side] for side in (challenger, holder)]
    oracle = scipy.stats.ttest_rel(*logs, alternative="less").pvalue

    assert p_challenger_no_faster(judge_duel(pairs)) == pytest.approx(oracle, rel=1e-6)
