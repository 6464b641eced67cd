"""The settings of a reference, checked by name and range before anything is trained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

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


def within(default: float, minimum: float, maximum: float) -> Any:
    """State a hyperparameter's default and limits. With a whole default, others are whole too."""
    limit = Limit(minimum, maximum, whole=isinstance(default, int))
    return field(default=default, metadata={"limit": limit})


@dataclass(frozen=True)
class Hyperparameters:
    """The configuration of a reference: it has no value beyond the limits of its field."""

    reference: ClassVar[str]

    def __post_init__(self) -> None:
        self._checked({name: getattr(self, name) for name in self.limits()})

    @classmethod
    def configure(cls, hyperparameters: Mapping[str, float]) -> Self:
        """Make a configuration from plain numbers. Raises HyperparameterError naming the field."""
        return cls(**cls._checked(hyperparameters))

    @classmethod
    def limits(cls) -> dict[str, Limit]:
        """Return the limits by name, in order."""
        return {f.name: f.metadata["limit"] for f in fields(cls) if "limit" in f.metadata}

    @classmethod
    def _checked(cls, hyperparameters: Mapping[str, float]) -> dict[str, float]:
        limits = cls.limits()
        for name, value in hyperparameters.items():
            place = f"hyperparameters.{name}"
            if name not in limits:
                raise HyperparameterError(
                    f"the {cls.reference} reference has no such hyperparameter",
                    field=place,
                    expected="one of " + ", ".join(limits),
                )
            limit = limits[name]
            if not limit.admits(value):
                kind = "a whole number" if limit.whole else "a number"
                expected = f"{kind} from {limit.minimum:g} to {limit.maximum:g}"
                raise HyperparameterError(f"got {value!r}", field=place, expected=expected)
        return {
            name: int(value) if limits[name].whole else float(value)
            for name, value in hyperparameters.items()
        }
