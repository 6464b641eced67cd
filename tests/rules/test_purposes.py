"""Every purpose of a job: the trainings that it plans, and the message made of them."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.calibration import plan_calibration
from finishline.rules.verification.cross_check import plan_cross_check
from finishline.rules.verification.duel import plan_duel
from finishline.rules.verification.job import Request, build_job, draw_of_trainings
from finishline.rules.verification.messages import ReplayJob, Training
from finishline.rules.verification.purposes import PURPOSES, purpose_named
from finishline.rules.verification.replay import plan_replay
from finishline.rules.verification.replay_plan import band_for

ENTROPY = bytes(range(32))


def claim_of(**settings: float) -> Claim:
    system = System("laptop", "cpu-x86_64", "any")
    claim = Claim("digits", "closed", "reference", "torch", system, ("run_0.log",))
    return replace(claim, hyperparameters=settings, trained_with="reference")


def request(digits: Benchmark, *claims: Claim, **wishes: Any) -> Request:
    return Request(digits, ENTROPY, claims=claims, claimed_seeds=[7, 8, 9], wishes=wishes)


def job_of(digits: Benchmark, claim: Claim | None, trainings: list[Training]) -> ReplayJob:
    band = [] if claim is None else band_for(digits, claim, runs=len(trainings))
    return build_job(
        digits,
        claim,
        trainings,
        attempt_id="a",
        verification_id="v",
        submission_id="s" if claim is not None else None,
        control_points=band,
    )


def test_a_purpose_is_known_by_its_name() -> None:
    assert {name: purpose.name for name, purpose in PURPOSES.items()} == {
        name: name for name in ("replay", "calibration", "duel", "latency", "cross_check")
    }
    assert purpose_named("duel") is PURPOSES["duel"]
    with pytest.raises(RuleError, match="no purpose 'race'; expected replay or calibration or"):
        purpose_named("race")


def test_a_replay_trains_two_own_seeds_and_then_sealed_ones(digits: Benchmark) -> None:
    planned = plan_replay(request(digits, claim_of(batch_size=32.0)))

    assert [training.own for training in planned[:3]] == [True, True, False]
    assert {training.seed for training in planned[:2]} < {7, 8, 9}
    assert not {training.seed for training in planned[2:]} & {7, 8, 9}
    first = planned[0]
    assert (first.package, first.settings) == ("digits", {"batch_size": 32.0})
    assert (first.stop_at, first.measure) == ("target", ("tta", "profile"))
    assert draw_of_trainings(planned, ENTROPY.hex()).own_runs == 2


def test_own_seeds_of_code_that_we_do_not_have_tell_nothing(digits: Benchmark) -> None:
    claim = replace(claim_of(), trained_with="own")

    assert not any(training.own for training in plan_replay(request(digits, claim)))


def test_fresh_runs_are_sealed_alone_and_as_many_as_wished(digits: Benchmark) -> None:
    planned = plan_replay(request(digits, claim_of(), fresh_runs=5))

    assert (len(planned), any(training.own for training in planned)) == (5, False)


def test_a_calibration_trains_one_batch_size_to_the_end(digits: Benchmark) -> None:
    planned = plan_calibration(request(digits, runs=3, taken=set(), batch_size=32))

    assert [training.settings for training in planned] == [{"batch_size": 32.0}] * 3
    assert {(training.stop_at, training.measure) for training in planned} == {("end", ("tta",))}
    # Drawn again here without the rules: SHA-256 with a counter, four bytes each.
    told = b"finishline calibration" + ENTROPY
    digests = [hashlib.sha256(told + i.to_bytes(4, "big")).digest() for i in range(3)]
    seeds = [training.seed for training in planned]
    assert seeds == [int.from_bytes(digest[:4], "big") for digest in digests]
    more = plan_calibration(request(digits, runs=3, taken={seeds[1]}, batch_size=32))
    assert [training.seed for training in more][:2] == [seeds[0], seeds[2]]


def test_a_duel_trains_both_in_turn_with_complete_settings(digits: Benchmark) -> None:
    planned = plan_duel(request(digits, claim_of(batch_size=32.0), claim_of(), pairs=2))

    mine, other = digits.defaults() | {"batch_size": 32.0}, digits.defaults()
    assert [training.settings for training in planned] == [mine, other, other, mine]
    assert len({training.seed for training in planned}) == 4


def test_a_cross_check_trains_one_finished_run_again(digits: Benchmark) -> None:
    (training,) = plan_cross_check(request(digits, claim_of(momentum=0.8), seed=42))

    assert (training.seed, training.own, training.settings) == (42, False, {"momentum": 0.8})


def test_a_message_is_complete(digits: Benchmark) -> None:
    assert digits.replay is not None
    claim = claim_of(batch_size=32.0)
    planned = plan_replay(request(digits, claim))

    job = job_of(digits, claim, planned)

    assert (job.attempt_id, job.verification_id, job.submission_id) == ("a", "v", "s")
    assert (job.benchmark_id, job.benchmark_sha256) == ("digits", digits.sha256)
    assert job.data_set_sha256 == digits.data_set.sha256
    assert job.trainings[0].settings == digits.defaults() | {"batch_size": 32.0}
    assert job.seeds == [training.seed for training in planned]
    assert (job.target.metric, job.target.value) == ("top1Accuracy", 97.5)
    assert (job.clock, job.division) == (digits.clock.name, "closed")
    assert job.control_points
    assert job.run_limit_seconds == digits.replay.run_limit_seconds
    assert (job.purpose, job.latency) == ("replay", None)


def test_without_a_claim_the_division_is_the_first_of_the_benchmark(digits: Benchmark) -> None:
    job = job_of(digits, None, plan_calibration(request(digits, runs=1, taken=(), batch_size=64)))

    assert (job.submission_id, job.division) == (None, digits.divisions[0])
