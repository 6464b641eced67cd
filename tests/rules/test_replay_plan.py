import dataclasses
import hashlib
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification import job
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.job import Draw, Request, draw_of, seal
from finishline.rules.verification.replay import plan_replay
from finishline.rules.verification.replay_plan import (
    band_for,
    batch_size_of,
    draw_replay,
    is_calibrated,
    why_not_replayable,
)

ENTROPY = bytes(range(32))


def claim_of(**changes: Any) -> Claim:
    settings: dict[str, Any] = {
        "benchmark_id": "digits",
        "division": "closed",
        "model": "reference",
        "framework": "torch",
        "system": System("laptop", "cpu-x86_64", "any"),
        "run_files": ("run_0.log", "run_1.log", "run_2.log"),
    }
    return Claim(**(settings | changes))


def test_a_plan_is_a_function_of_its_entropy(digits: Benchmark) -> None:
    same = draw_replay(digits, claim_of(), entropy=ENTROPY)

    assert draw_replay(digits, claim_of(), entropy=ENTROPY) == same
    assert draw_replay(digits, claim_of(), entropy=bytes(32)).seeds != same.seeds
    assert draw_replay(digits, claim_of(), entropy=bytes(32)).nonce != same.nonce


def test_every_number_of_runs_the_policy_allows_is_drawn_about_as_often(
    digits: Benchmark,
) -> None:
    assert digits.replay is not None
    counts = Counter(
        len(draw_replay(digits, claim_of(), entropy=i.to_bytes(32, "big")).seeds)
        for i in range(600)
    )

    allowed = range(digits.replay.min_runs, digits.replay.max_runs + 1)
    assert set(counts) == set(allowed)
    assert min(counts.values()) > 0.8 * 600 / len(allowed)


def test_without_calibration_twice_as_many_runs_are_made(digits: Benchmark) -> None:
    unusual = claim_of(hyperparameters={"batch_size": 48.0})

    calibrated = draw_replay(digits, claim_of(), entropy=ENTROPY)

    assert len(draw_replay(digits, unusual, entropy=ENTROPY).seeds) == 2 * len(calibrated.seeds)


@given(st.binary(min_size=32, max_size=32))
def test_seeds_are_distinct_and_fit_32_bits(digits: Benchmark, entropy: bytes) -> None:
    seeds = draw_replay(digits, claim_of(), entropy=entropy).seeds

    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_seed_that_was_drawn_already_is_drawn_again(
    digits: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_draw_seed", lambda _, index: [5, 5, 5, 6, 7, 8, 9][index])

    seeds = draw_replay(digits, claim_of(), entropy=ENTROPY).seeds

    assert seeds == (5, 6, 7, 8)[: len(seeds)]
    assert len(seeds) >= 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "inference"}, "inference result"),
        ({"dawnbench": {"author": "someone"}}, "tells no hyperparameters"),
        (
            {"hyperparameters": {"width": 2.0, "dropout": 0.1}},
            "no hyperparameter 'dropout'",
        ),
        ({"division": "open"}, "Send it as a package to have it measured"),
    ],
)
def test_what_the_reference_cannot_train_is_not_planned(
    digits: Benchmark, changes: dict[str, Any], reason: str
) -> None:
    claim = claim_of(**changes)

    assert reason in (why_not_replayable(digits, claim) or "")
    with pytest.raises(RuleError, match=reason):
        draw_replay(digits, claim, entropy=ENTROPY)


def test_a_benchmark_without_a_reference_is_not_replayed(cifar10: Benchmark) -> None:
    cifar10 = dataclasses.replace(cifar10, replay=None)
    claim = claim_of(benchmark_id="cifar10", division="open")

    assert "cifar10 has no reference model" in (why_not_replayable(cifar10, claim) or "")
    with pytest.raises(RuleError):
        draw_replay(cifar10, claim, entropy=ENTROPY)
    with pytest.raises(RuleError):
        plan_replay(Request(cifar10, ENTROPY, claims=[claim]))
    assert band_for(cifar10, claim, runs=3) == []


def test_the_seal_can_be_checked_by_anyone_who_is_told_what_was_drawn(digits: Benchmark) -> None:
    """The published recipe: SHA-256 over the sorted, compact JSON of all that was drawn."""
    sealed = Draw(seeds=(11, 22, 33), nonce="ab" * 32)
    content = (
        f'{{"benchmark_sha256":"{digits.sha256}","draw":3,"nonce":"{sealed.nonce}","runs":3,'
        '"seeds":[11,22,33],"submission":"sub-1"}'
    )
    assert json.loads(content)["runs"] == 3

    assert seal(digits, "sub-1", sealed) == hashlib.sha256(content.encode()).hexdigest()


def test_a_seal_from_before_draws_were_numbered_opens_as_the_first(digits: Benchmark) -> None:
    sealed = Draw(seeds=(11, 22, 33), nonce="ab" * 32)
    content = (
        f'{{"benchmark_sha256":"{digits.sha256}","nonce":"{sealed.nonce}","runs":3,'
        '"seeds":[11,22,33],"submission":"sub-1"}'
    )
    earlier = hashlib.sha256(content.encode()).hexdigest()

    assert draw_of(digits, "sub-1", sealed, sealed_as=earlier) == 1
    assert draw_of(digits, "sub-1", sealed, sealed_as=seal(digits, "sub-1", sealed)) == 3
    assert draw_of(digits, "sub-2", sealed, sealed_as=earlier) is None


@pytest.mark.parametrize("start", range(6))
def test_whoever_is_told_the_nonce_draws_the_same_runs_and_seeds(
    digits: Benchmark, start: int
) -> None:
    """Drawn again here without the rules: SHA-256 with a counter, four bytes each."""
    drawn = draw_replay(digits, claim_of(), entropy=bytes(range(start, start + 32)))
    entropy = bytes.fromhex(drawn.nonce)
    assert digits.replay is not None
    first = int.from_bytes(hashlib.sha256(b"finishline plan" + entropy).digest()[:8], "big")
    span = digits.replay.max_runs - digits.replay.min_runs + 1
    runs = digits.replay.min_runs + first % span
    seeds = [
        int.from_bytes(
            hashlib.sha256(b"finishline seed" + entropy + i.to_bytes(4, "big")).digest()[:4], "big"
        )
        for i in range(runs)
    ]

    assert list(drawn.seeds) == seeds


def test_the_seal_changes_with_any_part_of_it(digits: Benchmark) -> None:
    sealed = Draw(seeds=(11, 22, 33), nonce="ab" * 32)
    other = dataclasses.replace(digits, sha256="0" * 64)

    seals = [
        seal(digits, "sub-1", sealed),
        seal(other, "sub-1", sealed),
        seal(digits, "sub-2", sealed),
        seal(digits, "sub-1", Draw((11, 22), sealed.nonce)),
        seal(digits, "sub-1", Draw((11, 33, 22), sealed.nonce)),
        seal(digits, "sub-1", Draw((11, 22, 34), sealed.nonce)),
        seal(digits, "sub-1", Draw((11, 22, 33), "ac" * 32)),
    ]

    assert len(set(seals)) == len(seals)


def test_what_else_was_settled_is_sealed_under_its_name(digits: Benchmark) -> None:
    sealed = Draw(seeds=(11, 22), nonce="ab" * 32)
    content = (
        f'{{"benchmark_sha256":"{digits.sha256}","draw":3,"hyperparameters":[{{"batch_size":32.0}},'
        f'{{"batch_size":64.0}}],"kind":"calibration","nonce":"{sealed.nonce}","runs":2,'
        '"seeds":[11,22],"submission":null}'
    )
    settings = [{"batch_size": 32.0}, {"batch_size": 64.0}]
    beside = {"kind": "calibration", "hyperparameters": settings}

    assert seal(digits, None, sealed, beside=beside) == hashlib.sha256(content.encode()).hexdigest()


def test_nothing_beside_the_draw_can_stand_in_for_a_part_of_it(digits: Benchmark) -> None:
    sealed = Draw(seeds=(11, 22), nonce="ab" * 32)

    assert seal(digits, "s", sealed, beside={"seeds": [1]}) == seal(digits, "s", sealed)


@pytest.mark.parametrize(
    ("hyperparameters", "calibrated"),
    [
        ({}, True),
        ({"batch_size": 64.0}, True),
        ({"batch_size": 32.0}, True),
        ({"batch_size": 128.0, "momentum": 0.9}, True),
        ({"batch_size": 48.0}, False),
        ({"momentum": 0.8}, False),
        ({"batch_size": 64.0, "epochs": 19.0}, False),
        ({"batch_size": 64.0, "dropout": 0.1}, False),  # The reference has no such setting.
    ],
)
def test_calibrated_are_the_defaults_at_batch_sizes_with_reference_runs(
    digits: Benchmark, hyperparameters: dict[str, float], calibrated: bool
) -> None:
    claim = claim_of(hyperparameters=hyperparameters)

    assert is_calibrated(digits, claim) is calibrated
    assert bool(band_for(digits, claim, runs=3)) is calibrated
    assert batch_size_of(digits, claim) == hyperparameters.get("batch_size", 64.0)


def test_the_band_is_that_of_the_claimed_batch_size_at_its_share_of_alpha(
    digits: Benchmark,
) -> None:
    assert digits.replay is not None
    curves = [run.quality for run in digits.reference_runs if run.batch_size == 32]
    alpha = digits.replay.alpha * 0.18
    expected = control_points(curves, runs=4, alpha=alpha, resolution=100 / 599)

    assert band_for(digits, claim_of(hyperparameters={"batch_size": 32.0}), runs=4) == expected


def test_own_seeds_come_first_and_follow_from_the_nonce(digits: Benchmark) -> None:
    claimed = [7001, 7002, 7003, None, 2**32, -1]

    drawn = draw_replay(digits, claim_of(), entropy=ENTROPY, claimed_seeds=claimed)
    bare = draw_replay(digits, claim_of(), entropy=ENTROPY)

    assert len(set(drawn.own_seeds)) == 2
    assert set(drawn.own_seeds) <= {7001, 7002, 7003}
    assert drawn.seeds[2:] == bare.seeds
    assert drawn == draw_replay(digits, claim_of(), entropy=ENTROPY, claimed_seeds=claimed[::-1])
    once = draw_replay(digits, claim_of(), entropy=ENTROPY, claimed_seeds=claimed, own_seeds=1)
    assert once.own_seeds == drawn.own_seeds[:1]


def test_which_own_seeds_are_trained_depends_on_the_nonce(digits: Benchmark) -> None:
    claimed = list(range(7000, 7010))
    found = {
        draw_replay(digits, claim_of(), entropy=bytes([i]) * 32, claimed_seeds=claimed).own_seeds
        for i in range(30)
    }

    assert len({seed for pair in found for seed in pair}) == 10


def test_the_seal_holds_how_many_seeds_are_the_claims_own(digits: Benchmark) -> None:
    sealed = draw_replay(digits, claim_of(), entropy=ENTROPY, claimed_seeds=[1, 2])
    otherwise = dataclasses.replace(sealed, own_runs=1)

    assert seal(digits, "s", sealed) != seal(digits, "s", otherwise)
