"""What a check found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["ok", "degraded", "failing"]


class UnwellError(Exception):
    """A check found something wrong; its message may be shown to anybody."""


@dataclass(frozen=True)
class Said:
    """What a check says while what it looks at answers: a sentence, and measured figures.

    A figure has a name with its unit, a sentence on what it is, and a value.
    """

    detail: str
    state: State = "ok"
    figures: Mapping[str, tuple[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. Only one that is `needed` to take submissions can be failing."""

    name: str
    needed: bool
    state: State
    detail: str
    figures: Mapping[str, tuple[str, float]] = field(default_factory=dict)
