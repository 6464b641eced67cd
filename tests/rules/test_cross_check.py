"""The draw of the runs that are trained again, and when two trainings of one seed agree."""

from typing import Any

from finishline.rules.verification.cross_check import compare_runs, drawn_runs
from finishline.rules.verification.messages import ReplayEvaluation, ReplayRun

NONCES = [bytes([i]).hex() * 32 for i in range(200)]


def run_of(qualities: list[float], *, pace: float = 1.0, status: Any = "reached") -> ReplayRun:
    evaluations = [
        ReplayEvaluation(float(j), j * 100, j * pace, quality, {})
        for j, quality in enumerate(qualities, 1)
    ]
    return ReplayRun(0, 7, status, evaluations, {})


def test_the_draw_follows_from_nonce_and_report() -> None:
    drawn = [drawn_runs(nonce, {"a": 1}, among=range(5), organisers=False) for nonce in NONCES]
    assert drawn == [
        drawn_runs(nonce, {"a": 1}, among=range(5), organisers=False) for nonce in NONCES
    ]
    assert {len(each) for each in drawn} == {1}
    assert {each[0] for each in drawn} == {0, 1, 2, 3, 4}
    other = [drawn_runs(nonce, {"a": 2}, among=range(5), organisers=False) for nonce in NONCES]
    assert other != drawn


def test_of_an_organisers_worker_one_run_in_ten_is_drawn() -> None:
    drawn = [drawn_runs(nonce, {}, among=range(5), organisers=True) for nonce in NONCES]
    assert 60 < sum(map(len, drawn)) < 140  # of 1000


def test_only_runs_that_count_are_drawn() -> None:
    assert drawn_runs(NONCES[0], {}, among=[], organisers=False) == []
    assert drawn_runs(NONCES[0], {}, among=[3], organisers=False) == [3]


def test_pace_agrees_within_five_percent_and_a_quarter_second() -> None:
    first = run_of([10.0, 50.0, 90.0])  # 3 s; 5 % of the longer + 0.25 s
    assert compare_runs(first, run_of([10.0, 50.0, 90.0], pace=1.13), limit=None).agrees
    assert not compare_runs(first, run_of([10.0, 50.0, 90.0], pace=1.15), limit=None).agrees


def test_curves_agree_within_the_distance_of_equal_seeds() -> None:
    first, other = run_of([10.0, 50.0, 90.0]), run_of([10.0, 50.3, 90.0, 95.0])
    # rms of 0, 0.3, 0 is 0.173
    assert compare_runs(first, other, limit=0.18).agrees
    assert not compare_runs(first, other, limit=0.17).agrees
    assert compare_runs(first, run_of([10.0, 50.0]), limit=0.2) is None


def test_a_run_that_missed_the_target_ends_no_earlier_than_the_other() -> None:
    short = run_of([10.0, 50.0, 90.0], status="not_reached")
    other = run_of([10.0, 50.0, 90.0, 95.0])
    assert not compare_runs(short, other, limit=0.2).agrees
    assert not compare_runs(other, short, limit=0.2).agrees
    assert compare_runs(short, run_of([10.0, 50.0, 90.0]), limit=0.2).agrees
