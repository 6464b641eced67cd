"""Plan a replay: how many runs, which seeds, which control points; and seal what was drawn."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import sha256_of
from finishline.rules.scoring.latency import FEWEST_ITEMS
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.messages import (
    ControlPoint,
    JobKind,
    LatencyOrder,
    ReplayJob,
    TargetSpec,
)
from finishline.rules.verification.verdict import SHARES

# How runs and seeds are drawn, sealed with them. From draw 1 they did not follow from the nonce,
# draw 2 had no seeds of the claim's own.
DRAW = 3
# Sealed beside the draw of fresh runs: how many.
FRESH_RUNS = "fresh_runs"
FIRST_DRAW_BY_NONCE = 2
OWN_SEEDS = 2
# A reference takes no other seeds.
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Plan:
    """Seeds of the runs of a verification, and the nonce that opens their seal.

    The first `own_runs` of the seeds are the claim's own; the others nobody knew before.
    """

    seeds: tuple[int, ...]
    nonce: str
    own_runs: int = 0

    @property
    def own_seeds(self) -> tuple[int, ...]:
        """The claim's own seeds among the seeds, which are trained first."""
        return self.seeds[: self.own_runs]


def plan(
    benchmark: Benchmark,
    claim: Claim,
    *,
    entropy: bytes,
    claimed_seeds: Sequence[int | None] = (),
    own_seeds: int = OWN_SEEDS,
) -> Plan:
    """How many runs a verification makes, and their seeds: a function of 32 random bytes.

    Those bytes are the nonce, so that anybody who knows the nonce can draw the same again.
    Up to `own_seeds` of `claimed_seeds`, the seeds in the claim's logs, come first.

    Between min_runs and max_runs, twice as many where the claimed settings are not calibrated:
    there the replays are the only evidence, or stand beside an interpolated reference. Raises
    RuleError if the claim cannot be replayed (see `why_not_replayable`).
    """
    reason = why_not_replayable(benchmark, claim)
    if reason is not None or benchmark.replay is None:
        raise RuleError(reason or "no replay", expected="a submission the reference can replay")
    policy = benchmark.replay
    span = policy.max_runs - policy.min_runs + 1
    runs = policy.min_runs + int.from_bytes(_digest_plan(entropy)[:8], "big") % span
    if not is_calibrated(benchmark, claim):
        runs *= 2
    return draw(entropy, runs=runs, own=_draw_own(entropy, claimed_seeds, count=own_seeds))


def draw(entropy: bytes, *, runs: int, own: Sequence[int] = ()) -> Plan:
    """Distinct seeds for so many runs behind the claim's `own`: a function of 32 random bytes."""
    drawn = (_draw_seed(entropy, index) for index in itertools.count())
    seeds = dict.fromkeys(own)  # an ordered set: of equal seeds the first stays
    while len(seeds) < len(own) + runs:
        seeds[next(drawn)] = None
    return Plan(seeds=tuple(seeds), nonce=entropy.hex(), own_runs=len(own))


def _draw_own(entropy: bytes, claimed: Sequence[int | None], *, count: int) -> list[int]:
    """So many of the claimed seeds: those whose hashes with the nonce are the smallest."""

    def place(seed: int) -> bytes:
        return hashlib.sha256(b"finishline own" + entropy + seed.to_bytes(4, "big")).digest()

    return sorted(trainable_seeds(claimed), key=place)[:count]


def trainable_seeds(claimed: Sequence[int | None]) -> set[int]:
    """Return those of the seeds in a claim's logs that a reference takes."""
    return {seed for seed in claimed if seed is not None and 0 <= seed <= LARGEST_SEED}


def _digest_plan(entropy: bytes) -> bytes:
    return hashlib.sha256(b"finishline plan" + entropy).digest()


def _draw_seed(entropy: bytes, index: int) -> int:
    digest = hashlib.sha256(b"finishline seed" + entropy + index.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:4], "big")


def why_not_replayable(benchmark: Benchmark, claim: Claim) -> str | None:
    """Why the reference model cannot replay a claim, in one sentence, or None if it can."""
    if claim.kind == "inference":
        return (
            "it is an inference result: ask for its latency to be measured (kind latency) instead"
        )
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to replay yet"
    if claim.dawnbench is not None:
        return "a DAWNBench entry tells no hyperparameters"
    unknown = sorted(set(claim.hyperparameters) - set(benchmark.hyperparameters))
    if unknown:
        return f"the reference model has no hyperparameter {unknown[0]!r}"
    if claim.division == "open" and claim.trained_with == "own":
        return "it was trained with code of its own. Send it as a package to have it measured"
    return None


def seal(
    benchmark: Benchmark,
    submission_id: str | None,
    sealed: Plan,
    *,
    beside: Mapping[str, Any] | None = None,
    draw: int = DRAW,
) -> str:
    """SHA-256 over everything that was drawn: public before the first run, checkable after it.

    `beside` is what else was settled by then, by name: a kind other than a replay, the settings of
    each run, the calibration to judge by. A plain replay has nothing beside its draw. `draw` says
    how it was drawn; a seal of draw 1 does not hold that number.
    """
    content: dict[str, Any] = dict(beside or {}) | {
        "benchmark_sha256": benchmark.sha256,
        "nonce": sealed.nonce,
        "runs": len(sealed.seeds),
        "seeds": list(sealed.seeds),
        "submission": submission_id,
    }
    if sealed.own_runs:
        content["own_runs"] = sealed.own_runs
    if draw > 1:
        content["draw"] = draw
    return sha256_of(content)


def draw_of(
    benchmark: Benchmark,
    submission_id: str | None,
    sealed: Plan,
    *,
    sealed_as: str,
    beside: Mapping[str, Any] | None = None,
) -> int | None:
    """Which draw a seal opens as, None if it does not open."""
    for draw in range(DRAW, 0, -1):
        if seal(benchmark, submission_id, sealed, beside=beside, draw=draw) == sealed_as:
            return draw
    return None


def band_for(benchmark: Benchmark, claim: Claim, *, runs: int) -> list[ControlPoint]:
    """The control points of a claim's replay; empty where its settings are not calibrated."""
    policy, resolution = benchmark.replay, benchmark.target.resolution
    if policy is None or not is_calibrated(benchmark, claim):
        return []
    known = benchmark.reference_runs_at(batch_size_of(benchmark, claim))
    curves = tuple(run.quality for run in known)
    alpha = policy.alpha * SHARES.replay_band
    return list(_band(curves, runs=runs, alpha=alpha, resolution=resolution or 0.0))


@lru_cache(maxsize=64)
def _band(
    curves: tuple[tuple[float, ...], ...], *, runs: int, alpha: float, resolution: float
) -> tuple[ControlPoint, ...]:
    return tuple(control_points(curves, runs=runs, alpha=alpha, resolution=resolution))


def build_job(
    benchmark: Benchmark,
    claim: Claim | None,
    sealed: Plan,
    *,
    attempt_id: str,
    verification_id: str,
    submission_id: str | None,
    kind: JobKind = "replay",
    hyperparameters_by_run: Sequence[Mapping[str, float]] = (),
) -> ReplayJob:
    """The message a worker gets. Raises RuleError if the benchmark has no replay policy.

    Without a claim the reference's own settings are trained, in the benchmark's first division.
    Only a replay has a band to stay in, and only a calibration trains past the target.
    """
    if benchmark.replay is None:
        raise RuleError("no replay policy", file=benchmark.benchmark_id, expected="[replay]")
    target = benchmark.target
    claimed = dict(claim.hyperparameters) if claim is not None else {}
    return ReplayJob(
        attempt_id=attempt_id,
        verification_id=verification_id,
        submission_id=submission_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        data_set_sha256=benchmark.data_set.sha256,
        reference=benchmark.replay.reference,
        hyperparameters=benchmark.defaults() | claimed,
        seeds=list(sealed.seeds),
        target=TargetSpec(
            metric=target.metric,
            value=target.value,
            direction=target.direction,
            evaluations_in_a_row=benchmark.reach.evaluations,
            fixed_stop=benchmark.reach.name == "fixed_stop",
        ),
        clock=benchmark.clock.name,
        division=claim.division if claim is not None else benchmark.divisions[0],
        control_points=(
            band_for(benchmark, claim, runs=len(sealed.seeds) - sealed.own_runs)
            if claim and kind == "replay"
            else []
        ),
        run_limit_seconds=run_limit_seconds(benchmark, kind),
        kind=kind,
        hyperparameters_by_run=[
            benchmark.defaults() | claimed | dict(settings) for settings in hyperparameters_by_run
        ],
        stop_at="end" if kind == "calibration" else "target",
        latency=_latency_order(benchmark) if kind == "latency" else None,
    )


def run_limit_seconds(benchmark: Benchmark, kind: str) -> float:
    """What one run may take; 0 for a benchmark without replays.

    A latency is measured in the time its protocol adds to that of the training.
    """
    training = benchmark.replay.run_limit_seconds if benchmark.replay is not None else 0.0
    measuring = benchmark.latency.limit_seconds if benchmark.latency is not None else 0.0
    return training + measuring if kind == "latency" else training


def _latency_order(benchmark: Benchmark) -> LatencyOrder:
    protocol = benchmark.latency
    if protocol is None:
        raise RuleError("no latency protocol", file=benchmark.benchmark_id, expected="[latency]")
    return LatencyOrder(
        items=protocol.items,
        warmup_items=protocol.warmup_items,
        output_tolerance=protocol.output_tolerance,
        fewest_items=FEWEST_ITEMS,
        enough_seconds=protocol.enough_seconds,
        most_seconds=protocol.most_seconds,
    )


def is_calibrated(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether reference runs exist for the claimed settings: defaults but for the batch size."""
    runs = benchmark.reference_runs_at(batch_size_of(benchmark, claim))
    return has_default_settings(benchmark, claim) and bool(runs)


def has_default_settings(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether a claim has the reference's settings in everything but the batch size."""
    defaults = benchmark.defaults()
    return all(
        name == "batch_size" or value == defaults.get(name)
        for name, value in claim.hyperparameters.items()
    )


def batch_size_of(benchmark: Benchmark, claim: Claim) -> float:
    """The batch size a claim was trained with: its own, or the reference default."""
    settings = benchmark.defaults() | dict(claim.hyperparameters)
    return settings.get("batch_size", 0.0)
