"""Plan the measurement of a latency: one training of the reference, then its model is timed."""

from rules.benchmark import Benchmark
from rules.claim import Claim
from rules.errors import RuleError
from rules.replay_plan import Plan, draw


def plan_latency(benchmark: Benchmark, claim: Claim, *, entropy: bytes) -> Plan:
    """The seed of the one training whose model is measured: a function of 32 random bytes.

    Raises RuleError if it cannot be measured (see `why_not_measurable`).
    """
    reason = why_not_measurable(benchmark, claim)
    if reason is not None:
        raise RuleError(reason, expected="a submission whose model the reference can train")
    return draw(entropy, runs=1)


def why_not_measurable(benchmark: Benchmark, claim: Claim) -> str | None:
    """Why no latency can be measured for a claim, in one sentence, or None if it can.

    An inference result names no settings: the reference is trained with its own.
    """
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to measure yet"
    if benchmark.latency is None:
        return (
            f"the definition of {benchmark.benchmark_id} that it is scored under has no [latency]"
        )
    if claim.kind == "train" and claim.dawnbench is not None:
        return "a DAWNBench entry tells no hyperparameters to train its model with"
    unknown = sorted(set(claim.hyperparameters) - set(benchmark.hyperparameters))
    if unknown:
        return f"the reference model has no hyperparameter {unknown[0]!r}"
    return None
