"""Were the claimed runs chosen: the best of more than were handed in?"""

from collections.abc import Sequence

from rules.benchmark import ReplayPolicy
from rules.prediction import all_below_probability
from rules.significance import Reference
from rules.verdict import SHARES, Reason

FEWEST_RUNS = 2


def judge_selection(
    claimed: Sequence[float | None],
    reference: Reference,
    quantum: float,
    policy: ReplayPolicy,
) -> list[Reason]:
    """A reason if even the slowest claimed run is faster than chance lets all of them be.

    `claimed` has the epochs to the target of every run that counts, None for one that did not reach
    it. Of the best n of more runs the slowest alone tells: given it, the others lie as they would
    without a choice. A single run tells nothing here, because its mean is tested already. The
    finding leaves the claim open: all runs that were started explain it.
    Source: likelihood ratio of the n smallest of m figures; Hahn & Meeker, "Statistical Intervals",
    4.8 (one-sided prediction bound for all of n further figures).
    """
    if len(claimed) < FEWEST_RUNS or reference.stdev == 0.0:
        return []
    if any(epochs is None for epochs in claimed):
        return []
    slowest = max(epochs for epochs in claimed if epochs is not None)
    rounding = quantum if quantum >= 1.0 else 0.0
    probability = all_below_probability(slowest + rounding, reference, count=len(claimed))
    if probability >= policy.alpha * SHARES.selection:
        return []
    return [
        Reason(
            "runs_selected",
            "leaves_open",
            f"all {len(claimed)} claimed runs reach the target within {slowest:.2f} epochs, where "
            f"reference and replays need {reference.mean:.2f}: hand in every run that was started",
            {
                "slowest_claimed_epochs": slowest,
                "reference_mean_epochs": reference.mean,
                "reference_stdev_epochs": reference.stdev,
                "probability": probability,
            },
        )
    ]
