"""Names that were probably misspelt: which known one was meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice

# Below this share of letters in common lie pairs that both exist, such as min_runs and max_runs.
ALIKE = 0.8
# Comparing takes the product of both lengths, and a stranger's table may have any number of names.
LONGEST_NAME = 100
MOST_NAMES = 200


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that is nearly `name`, None where none is. The first of equally near ones.

    Upper case, hyphens and letters in another order make no difference.
    """
    if len(name) > LONGEST_NAME:
        return None
    others = [other for other in islice(known, MOST_NAMES) if len(other) <= LONGEST_NAME]
    near = {other: _likeness(_plain(name), _plain(other)) for other in others}
    best = max(near, key=lambda other: near[other], default=None)
    return best if best is not None and near[best] >= ALIKE else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question to put behind an unknown name, with a space before it; empty without a guess."""
    meant = near_miss(name, known)
    return "" if meant is None else f" (did you mean {meant!r}?)"


def _likeness(name: str, other: str) -> float:
    if sorted(name) == sorted(other):
        return 1.0
    compared = SequenceMatcher(None, name, other)
    return compared.ratio() if compared.real_quick_ratio() >= ALIKE else 0.0


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
