"""Several tests at once: p-values that hold for the whole family."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value adjusted for all of them, in the order given.

    To reject where the adjusted value is at most alpha keeps the chance of any false rejection at
    alpha, however the tests depend on each other. Source: Holm (1979), "A simple sequentially
    rejective multiple test procedure".
    """
    places = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for step, place in enumerate(places):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[place]))
        adjusted[place] = highest
    return adjusted
