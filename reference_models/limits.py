"""The limits of a reference's hyperparameters, checked by name before anything runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from reference_models import HyperparameterError


@dataclass(frozen=True)
class Limit:
    """The values one hyperparameter may take; `whole` numbers only where it is a count."""

    minimum: float
    maximum: float
    whole: bool = False

    def allows(self, value: float) -> bool:
        """Whether a value is a number of the right kind within the limits."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        within = math.isfinite(value) and self.minimum <= value <= self.maximum
        return within and (not self.whole or value == int(value))

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.minimum:g} to {self.maximum:g}"


def check(hyperparameters: Mapping[str, float], limits: Mapping[str, Limit]) -> None:
    """Raise HyperparameterError naming the first that is unknown or outside its limits."""
    for name, value in hyperparameters.items():
        field = f"hyperparameters.{name}"
        if name not in limits:
            raise HyperparameterError(
                "the reference has no such hyperparameter",
                field=field,
                expected="one of " + ", ".join(limits),
            )
        if not limits[name].allows(value):
            raise HyperparameterError(f"got {value!r}", field=field, expected=str(limits[name]))


def typed(
    hyperparameters: Mapping[str, float], limits: Mapping[str, Limit]
) -> dict[str, int | float]:
    """The checked values, whole numbers as int. Raises HyperparameterError as `check` does."""
    check(hyperparameters, limits)
    return {
        name: int(value) if limits[name].whole else float(value)
        for name, value in hyperparameters.items()
    }
