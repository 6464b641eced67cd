"""Were two results scored by the same rules? A definition may change in the middle of a round."""

from rules.benchmark import Benchmark

# What decides whether a run reached its target, how long that took, and what is made of the runs.
SCORED_BY = {
    "target": "target",
    "reach": "target.reach",
    "clock": "clock",
    "runs": "runs",
    "data_set": "data_set",
    "hyperparameters": "hyperparameters",
    "convergence_unit": "convergence",
    "rcp": "rcp",
}


def rules_that_differ(earlier: Benchmark, current: Benchmark) -> tuple[str, ...]:
    """The parts of a definition's file that scoring reads and that differ between two of them.

    Empty where only words, replays or calibrated runs are other ones: figures may be compared.
    """
    return tuple(
        name
        for attribute, name in SCORED_BY.items()
        if getattr(earlier, attribute) != getattr(current, attribute)
    )
