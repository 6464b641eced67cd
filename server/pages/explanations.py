"""How a board is scored, in sentences."""

from finishline.rules.benchmarks.benchmark import Benchmark, ReplayPolicy, RunsRule
from finishline.rules.text import count_text
from finishline.rules.verification.replay_plan import OWN_SEEDS
from web.formats import quality

MEASURED = (
    "A verification trains the reference to the target and times its model one item at a time; "
    "that latency stands beside the stated one."
)
NOT_MEASURED = "Here no worker can measure them: claims stay claims."


def explain_scoring(benchmark: Benchmark) -> str:
    """How runs become a result here, in sentences."""
    runs = benchmark.runs
    goals = [
        f"{goal.metric} is {'at least' if goal.direction == 'higher' else 'at most'} "
        f"{quality(goal.value, goal.unit)}"
        for goal in (benchmark.target, *benchmark.target.also)
    ]
    lines = [
        f"The time to accuracy of a run counts on the {benchmark.clock.name} clock until "
        f"{' and '.join(goals)}."
    ]
    if runs.dropped:
        ends = "the fastest and the slowest" if runs.dropped == 1 else f"{runs.dropped} at each end"
        wanted = count_text(runs.wanted, "run")
        lines.append(
            f"A submission has at least {wanted}, each with a seed of its own; "
            f"{_first_that_count(runs)}{ends} are dropped and the rest are averaged. "
            f"A run that does not reach the target {_of_a_failed_run(runs)}."
        )
    if benchmark.replay is not None:
        lines.append(_explain_replay(benchmark.replay))
    return "\n\n".join(lines)


def _explain_replay(policy: ReplayPolicy) -> str:
    least, most = policy.min_runs, policy.max_runs
    sealed = count_text(most, "sealed run")
    return (
        f"A verification trains the reference with {count_text(OWN_SEEDS, 'seed')} of the claim's "
        "own and compares their curves with the claimed ones. Then it trains "
        f"{sealed if least == most else f'{least} to {sealed}'} whose seeds the server drew: "
        "every evaluation is compared with the band of calibrated runs, the claimed epochs with "
        "both. The time that ranks is that of the sealed runs. All tests together leave an honest "
        f"claim unverified at most {quality(100 * policy.alpha, 'percent')} of the time."
    )


def _first_that_count(runs: RunsRule) -> str:
    if runs.started is None:
        return ""
    return f"the first {runs.count} that reach the target count; of them "


def _of_a_failed_run(runs: RunsRule) -> str:
    return "counts as slowest" if runs.started is None else "is left out"


def explain_inference(benchmark: Benchmark) -> str:
    """What an inference entry is ranked by, in sentences."""
    target = benchmark.target
    sign = "at least" if target.direction == "higher" else "at most"
    is_measured = benchmark.replay is not None and benchmark.latency is not None
    return "\n\n".join(
        [
            "Latency is the time a trained model takes for one item at batch size 1; cost is the "
            "price of 10,000 items. An entry is ranked if its model has "
            f"{target.metric} of {sign} {quality(target.value, target.unit)}.",
            "All three are as the submitter states them: an inference entry has no log that they "
            f"could be derived from. {MEASURED if is_measured else NOT_MEASURED}",
        ]
    )


EXPLAIN = {"train": explain_scoring, "inference": explain_inference}
