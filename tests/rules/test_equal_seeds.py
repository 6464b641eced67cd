"""A claim's own seeds, trained by a worker: the curve, and who is believed."""

import dataclasses

import numpy as np
import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.run import Evaluation
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.cross_check import curve_distance
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import ReplayRun
from finishline.rules.verification.verdict import Verdict
from tests.support.verdicts import LAPTOP, codes, replay, report, weight_of


def evaluations(quality: tuple[float, ...] | list[float]) -> list[Evaluation]:
    return [Evaluation(float(j), 0.11 * j, q) for j, q in enumerate(quality, 1)]


def until_target(quality: tuple[float, ...] | list[float]) -> list[float]:
    return list(quality[: next(j for j, q in enumerate(quality, 1) if q >= 97.5)])


def judged(
    digits: Benchmark,
    *own: list[float],
    again: list[float] | None = None,
    missed: float = 0.0,
) -> Verdict:
    """Three shipped runs claimed, `own` the curves of the worker for their seeds."""
    known = [run.quality for run in digits.reference_runs_at(64)]
    curves = [evaluations(until_target(quality)) for quality in known[:3]]
    runs = [
        RunScore(f"run_{i}.log", i, True, c[-1].seconds, c[-1].epoch, 98.0, 0.11)
        for i, c in enumerate(curves)
    ]
    trained = [_run(i, i, quality) for i, quality in enumerate(own)]
    sealed = [_run(len(own) + i, 100 + i, until_target(known[10 + i])) for i in range(3)]
    second = [_run(0, 0, again)] if again is not None else []
    claim = Claim("digits", "closed", "m", "f", LAPTOP, (), {}, trained_with="reference")
    return judge(
        digits,
        claim,
        runs,
        report([*trained, *sealed]),
        curves=curves,
        own_runs=len(own),
        own_again=second,
    )


def _run(index: int, seed: int, quality: list[float]) -> ReplayRun:
    return dataclasses.replace(replay(index, quality), seed=seed)


def noisy(digits: Benchmark, place: int, *, rms: float) -> list[float]:
    """The shipped curve of a seed as another host gives it."""
    curve = until_target(digits.reference_runs_at(64)[place].quality)
    noise = np.random.default_rng(place).normal(0, 1, len(curve))
    noise *= rms / np.sqrt((noise**2).mean())
    return [q + float(n) for q, n in zip(curve, noise, strict=True)]


def test_the_distance_is_that_of_the_epochs_both_have() -> None:
    first = evaluations([10.0, 20.0, 30.0, 40.0])
    second = evaluations([13.0, 24.0, 30.0])

    assert curve_distance(first, second) == pytest.approx((25 / 3) ** 0.5)
    assert curve_distance(first, second[:2]) is None


@pytest.mark.parametrize("rms", [0.04, 0.19])
def test_an_own_seed_as_another_host_gives_it_is_reproduced(digits: Benchmark, rms: float) -> None:
    found = judged(digits, noisy(digits, 0, rms=rms), noisy(digits, 1, rms=rms))

    assert found.outcome == "verified", found.reasons
    assert codes(found).count("curve_reproduced") == 2


def test_any_two_shipped_seeds_are_further_apart_than_the_limit(digits: Benchmark) -> None:
    limit = digits.replay.equal_seed_distance if digits.replay is not None else None
    assert limit is not None
    for batch_size in (32, 64, 128):
        known = [until_target(run.quality) for run in digits.reference_runs_at(batch_size)]
        nearest = min(
            curve_distance(evaluations(one), evaluations(other)) or 0.0
            for i, one in enumerate(known)
            for other in known[:i]
        )
        assert nearest > limit


def test_one_workers_word_leaves_a_claim_open(digits: Benchmark) -> None:
    other = until_target(digits.reference_runs_at(64)[20].quality)

    found = judged(digits, other)

    assert found.outcome == "inconclusive"
    assert weight_of(found, "own_seed_not_confirmed") == "leaves_open"


def test_two_workers_against_a_claim_reject_it(digits: Benchmark) -> None:
    other = until_target(digits.reference_runs_at(64)[20].quality)

    found = judged(digits, other, again=other)

    assert found.outcome == "rejected"
    assert weight_of(found, "curve_not_reproduced") == "rejects"


def test_a_second_worker_that_reproduces_the_seed_keeps_the_claim(digits: Benchmark) -> None:
    other = until_target(digits.reference_runs_at(64)[20].quality)

    found = judged(digits, other, again=noisy(digits, 0, rms=0.1))

    assert found.outcome == "inconclusive"
    assert "not by the first" in next(
        r.message for r in found.reasons if r.code == "own_seed_not_confirmed"
    )


def test_without_a_known_distance_there_is_a_note_that_leaves_nothing_open(
    digits: Benchmark,
) -> None:
    assert digits.replay is not None
    unknown = dataclasses.replace(
        digits, replay=dataclasses.replace(digits.replay, equal_seed_distance=None)
    )
    other = until_target(digits.reference_runs_at(64)[20].quality)

    found = judged(unknown, other)

    assert found.outcome == "verified"
    assert weight_of(found, "own_seed_not_compared") == "note"


def test_own_runs_count_in_neither_target_band_time_nor_convergence(digits: Benchmark) -> None:
    """A replay of an own seed that misses everything changes none of the other findings."""
    flat = [5.0] * 8

    found = judged(digits, flat, flat)
    honest = judged(digits)

    others = {"own_seed_not_confirmed"}
    assert [r for r in found.reasons if r.code not in others] == list(honest.reasons)


def test_where_a_seed_was_trained_our_crossing_replaces_the_claimed_one(
    digits: Benchmark,
) -> None:
    slow = [*until_target(digits.reference_runs_at(64)[0].quality)[:-1], 97.0, 97.0, 97.0, 97.6]

    found = judged(digits, slow)
    agrees = next(r for r in found.reasons if r.code == "convergence_agrees")
    honest = next(r for r in judged(digits).reasons if r.code == "convergence_agrees")

    assert agrees.numbers["claimed_mean_epochs"] >= honest.numbers["claimed_mean_epochs"]
    assert agrees.numbers["reference_runs"] == honest.numbers["reference_runs"]
