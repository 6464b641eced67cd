"""Plan a replay: how many runs, which seeds, which control points."""

import hashlib
from functools import lru_cache

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.job import Draw, draw
from finishline.rules.verification.messages import ControlPoint
from finishline.rules.verification.verdict import SHARES


def draw_replay(benchmark: Benchmark, claim: Claim, *, entropy: bytes) -> Draw:
    """Draw the number of runs of a verification and their seeds, from 32 random bytes.

    Those bytes are the nonce, so that anybody who knows the nonce can draw the same again.

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
    return draw(entropy, runs=runs)


def _digest_plan(entropy: bytes) -> bytes:
    return hashlib.sha256(b"finishline plan" + entropy).digest()


def why_not_replayable(benchmark: Benchmark, claim: Claim) -> str | None:
    """Reason why the reference model cannot replay a claim, or None if it can."""
    if claim.kind == "inference":
        return "it is an inference result. Request its latency instead (kind latency)"
    if claim.package is not None:
        return "it is a training package. Request its measurement instead (kind entry)"
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to replay yet"
    if claim.dawnbench is not None:
        return "a DAWNBench entry has no hyperparameters"
    unknown = sorted(set(claim.hyperparameters) - set(benchmark.hyperparameters))
    if unknown:
        return f"the reference model has no hyperparameter {unknown[0]!r}"
    offered = benchmark.replay.precisions
    if offered and claim.precision is not None and claim.precision not in offered:
        return f"it states {claim.precision}, and the reference trains in {', '.join(offered)}"
    if claim.division == "open" and claim.trained_with == "own":
        return "it was trained with its own code. Send it as a package to have it measured"
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


def is_calibrated(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether reference runs exist for the claimed settings: defaults but for the batch size."""
    runs = benchmark.reference_runs_at(batch_size_of(benchmark, claim))
    return has_default_settings(benchmark, claim) and bool(runs)


def precision_of(benchmark: Benchmark, claim: Claim) -> PrecisionName | None:
    """The precision to train a claim in; None where the reference's own is the claim's.

    A package trains in its own, whatever it states.
    """
    if benchmark.replay is None or claim.package is not None:
        return None
    return benchmark.replay.told(claim.precision)


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


def is_uncalibrated(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether a claim has the reference's settings at a batch size without calibration."""
    return has_default_settings(benchmark, claim) and not is_calibrated(benchmark, claim)
