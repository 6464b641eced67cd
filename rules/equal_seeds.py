"""Does a training of a claim's own seed follow the curve that was claimed for it?

The same code, settings and seed give nearly the same curve on two hosts, and curves of different
seeds lie further apart. How far equal seeds may be apart is measured, benchmark by benchmark.
"""

from collections.abc import Sequence
from dataclasses import replace

from rules.benchmark import Benchmark
from rules.crossing import find_crossing
from rules.judge_convergence import Curve, curve_of_replay, evaluations_of
from rules.messages import ReplayRun
from rules.scoring import RunScore
from rules.verdict import Reason

# Fewer common evaluations tell no two seeds apart.
FEWEST_COMMON = 3


def curve_distance(first: Curve, second: Curve) -> float | None:
    """Root mean square difference of two qualities over the epochs that both were evaluated at.

    In the metric's unit; None below three common evaluations.
    """
    other = {item.epoch: item.quality for item in second if item.epoch is not None}
    gaps = [item.quality - other[item.epoch] for item in first if item.epoch in other]
    if len(gaps) < FEWEST_COMMON:
        return None
    return float((sum(gap**2 for gap in gaps) / len(gaps)) ** 0.5)


def judge_own_seeds(
    benchmark: Benchmark,
    runs: Sequence[RunScore],
    curves: Sequence[Curve],
    trained: Sequence[ReplayRun],
    again: Sequence[ReplayRun] = (),
) -> list[Reason]:
    """A reason for each of the claim's own seeds that was trained.

    `trained` are by one worker, `again` those seeds that a worker of another owner trained too. A
    claim is rejected where two workers contradict it; one alone leaves it open. Without a known
    distance of equal seeds there is a note, which leaves nothing open.
    """
    claimed = {run.seed: (run.file, curve) for run, curve in zip(runs, curves, strict=False)}
    others = {run.seed: run for run in again}
    return [
        _judge_seed(benchmark, *claimed[run.seed], run, others.get(run.seed))
        for run in trained
        if run.seed in claimed
    ]


def _judge_seed(
    benchmark: Benchmark, file: str, curve: Curve, run: ReplayRun, other: ReplayRun | None
) -> Reason:
    limit = benchmark.replay.equal_seed_distance if benchmark.replay is not None else None
    found = curve_distance(curve, evaluations_of(run))
    told = f"seed {run.seed} of {file}"
    numbers = {"seed": float(run.seed)}
    if found is None or limit is None:
        why = "no distance of equal seeds is known" if limit is None else "too few evaluations"
        return Reason("own_seed_not_compared", "note", f"{told} was not compared: {why}", numbers)
    numbers |= {"distance": found, "limit": limit}
    apart = f"{found:.2g} {benchmark.target.metric} from the claimed curve (limit {limit:g})"
    if found <= limit:
        return Reason("curve_reproduced", "supports", f"{told} was reproduced: {apart}", numbers)
    second = None if other is None else curve_distance(curve, evaluations_of(other))
    if second is None:
        words = f"{told} was not reproduced: {apart}; no worker of another owner has confirmed that"
        return Reason("own_seed_not_confirmed", "leaves_open", words, numbers)
    numbers |= {"second_distance": second}
    if second <= limit:
        words = f"{told} was reproduced by a second worker and not by the first: {apart}"
        return Reason("own_seed_not_confirmed", "leaves_open", words, numbers)
    words = f"{told} was reproduced by neither of two workers: {apart}, and {second:.2g}"
    return Reason("curve_not_reproduced", "rejects", words, numbers)


def unreproduced(
    benchmark: Benchmark,
    runs: Sequence[RunScore],
    curves: Sequence[Curve],
    trained: Sequence[ReplayRun],
) -> list[int]:
    """The indices of trained own seeds that one worker alone says do not follow the claim."""
    reasons = judge_own_seeds(benchmark, runs, curves, trained)
    seeds = {r.numbers["seed"] for r in reasons if r.code == "own_seed_not_confirmed"}
    return [run.index for run in trained if float(run.seed) in seeds]


def with_our_crossings(
    benchmark: Benchmark,
    runs: Sequence[RunScore],
    curves: Sequence[Curve],
    trained: Sequence[ReplayRun],
) -> tuple[list[RunScore], list[Curve]]:
    """Claimed runs and curves, those of a trained seed replaced by what our worker saw."""
    ours = {run.seed: curve_of_replay(run) for run in trained}
    scores, seen = list(runs), list(curves)
    for index, run in enumerate(runs):
        curve = ours.get(run.seed) if run.seed is not None else None
        if not curve:
            continue
        crossing = find_crossing(curve, benchmark.target, benchmark.reach)
        if crossing is not None:
            scores[index] = replace(run, reached=True, epochs_to_target=crossing.epoch)
            if seen:
                seen[index] = curve
    return scores, seen
