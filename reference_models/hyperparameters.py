"""The settings of a reference, checked by name and range before anything is trained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from reference_models import HyperparameterError


@dataclass(frozen=True)
class Limit:
    """The values a hyperparameter may have. The benchmark's file states the same."""

    minimum: float
    maximum: float
    whole: bool = False

    def admits(self, value: object) -> bool:
        """Say whether a value is within the limits, and a whole number if required."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        within = math.isfinite(value) and self.minimum <= value <= self.maximum
        return within and (not self.whole or value == int(value))


def checked(
    hyperparameters: Mapping[str, float], limits: Mapping[str, Limit], *, reference: str
) -> dict[str, float]:
    """Return settings with whole numbers as int. Raises HyperparameterError naming the field."""
    for name, value in hyperparameters.items():
        field = f"hyperparameters.{name}"
        if name not in limits:
            raise HyperparameterError(
                f"the {reference} reference has no such hyperparameter",
                field=field,
                expected="one of " + ", ".join(limits),
            )
        limit = limits[name]
        if not limit.admits(value):
            kind = "a whole number" if limit.whole else "a number"
            expected = f"{kind} from {limit.minimum:g} to {limit.maximum:g}"
            raise HyperparameterError(f"got {value!r}", field=field, expected=expected)
    return {
        name: int(value) if limits[name].whole else float(value)
        for name, value in hyperparameters.items()
    }
