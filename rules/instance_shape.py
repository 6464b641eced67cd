"""Is a system what its claim says was rented? Its figures against the shape of the instances.

A cost that rests on the price of an instance is the cost of that machine: a claim that names it and
describes another contradicts itself. Source of the shape: the price book, entry by entry.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from rules.errors import ClaimError
from rules.price_book import Price, PriceEntry
from rules.system_description import NOTHING
from rules.system_price import PriceBook

# A system sees less than what is sold, as its kernel keeps some, and a GB is 7 % less than a GiB.
MEMORY_TOLERANCE = 0.1
LONGEST_NAME = 200
IN_WORDS = {
    "accelerator": "accelerator",
    "accelerator_count": "number of accelerators",
    "processor_count": "number of processors",
    "memory_gib": "memory (GiB)",
}
# Words of an accelerator's name that do not tell which one it is.
FILLERS = frozenset(
    [
        *("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "radeon", "intel"),
        *("google", "cloud", "aws", "accelerator", "accelerators", "gpu", "gpus", "graphics"),
        *("tensor", "core", "cores", "oam"),
    ]
)
_COUNT_IN_FRONT = re.compile(r"(?<![a-z0-9])\d{1,2}x\s*(?=[a-z])")
_BUILT = re.compile(r"\b(\d+\s*gi?b|hbm\w*|gddr\w*|sxm\d*|pcie\d*|nvl\d*)\b")


@dataclass(frozen=True)
class Figure:
    """A figure of a system as claimed, None if not stated, and what the instances have in all."""

    field: str
    claimed: str | None
    expected: str
    agrees: bool


@dataclass(frozen=True)
class InstanceCheck:
    """A claim's system held against `count` instances as `entry` of the price book has them.

    `entry` is None, and there are no `figures`, where the book has no shape of the instance.
    """

    provider: str
    instance: str
    count: int
    entry: PriceEntry | None
    figures: tuple[Figure, ...] = ()

    @property
    def compared(self) -> list[Figure]:
        """Figures that claim and price book both have."""
        return [figure for figure in self.figures if figure.claimed is not None]

    @property
    def differences(self) -> list[Figure]:
        """Figures in which the claim is not what was rented."""
        return [figure for figure in self.compared if not figure.agrees]

    @property
    def in_words(self) -> str:
        """What came of it: what differs, what agrees, or why nothing was compared."""
        if self.entry is None:
            return f"not checked: the price book has no shape of {self.provider} {self.instance}"
        book = f"price {self.entry.number}"
        if not self.compared:
            return f"not checked: the claim states nothing of what {book} says of {self.instance}"
        if self.differences:
            told = "; ".join(
                f"{IN_WORDS[each.field]} {each.claimed}, expected {each.expected}"
                for each in self.differences
            )
            return f"not what was rented by {book}: {told}"
        unstated = [IN_WORDS[each.field] for each in self.figures if each.claimed is None]
        more = f"; not stated: {', '.join(unstated)}" if unstated else ""
        return f"as {book} says: {', '.join(IN_WORDS[f.field] for f in self.compared)}{more}"

    def problems(self, *, file: str) -> list[ClaimError]:
        """An error for each difference, naming the field of the claim and both figures."""
        number = self.entry.number if self.entry is not None else None
        return [
            ClaimError(
                f"got {each.claimed}",
                file=file,
                field=f"system.{each.field}",
                expected=f"{each.expected}, as {self.count} x {self.instance} of {self.provider} "
                f"by price {number} of the price book",
                code="instance_contradicts_claim",
            )
            for each in self.differences
        ]


def check_instance(system: Mapping[str, Any], book: PriceBook, *, on: date) -> InstanceCheck | None:
    """A system, as a claim's JSON has it, against what it rented; None if it names no instance.

    The counts and the memory of a system are of all its instances together; memory may differ by
    MEMORY_TOLERANCE either way. What a claim does not state is not compared, but for its
    accelerators: without a count it has none.
    """
    cloud = system.get("cloud")
    if cloud is None:
        return None
    provider, instance, count = cloud["provider"], cloud["instance"], cloud["count"]
    entry = book.find_shape((provider, instance, cloud["region"]), on=on)
    figures = tuple(_figures(system, entry.price, count)) if entry is not None else ()
    return InstanceCheck(provider, instance, count, entry, figures)


def _figures(system: Mapping[str, Any], shape: Price, count: int) -> Iterator[Figure]:
    yield from _kind(system["accelerator"], shape)
    counts = {
        "accelerator_count": (system["accelerator_count"] or 0, shape.accelerator_count),
        "processor_count": (system["processor_count"], shape.processor_count),
    }
    for field, (claimed, of_one) in counts.items():
        if of_one is not None:
            whole, text = of_one * count, str(claimed) if claimed is not None else None
            yield Figure(field, text, str(whole), agrees=claimed == whole)
    if shape.memory_gib is not None:
        yield _memory(system["memory_gib"], shape.memory_gib * count)


def _kind(claimed: str | None, shape: Price) -> Iterator[Figure]:
    named = claimed[:LONGEST_NAME] if claimed and not _is_nothing(claimed) else None
    if shape.accelerator_count == 0 and named is not None:
        yield Figure("accelerator", named, "none", agrees=False)
    elif shape.accelerator is not None and _model_words(shape.accelerator):
        # "GPU" does not say which one, so it is as if nothing was stated.
        told = named if named is not None and _model_words(named) else None
        agrees = told is not None and is_same_kind(told, shape.accelerator)
        yield Figure("accelerator", told, shape.accelerator, agrees)


def _is_nothing(text: str) -> bool:
    return text.strip().casefold() in NOTHING


def _memory(claimed: float | None, whole: float) -> Figure:
    expected = f"{whole:.15g} within {MEMORY_TOLERANCE * 100:g} %"
    if claimed is None:
        return Figure("memory_gib", None, expected, agrees=False)
    agrees = abs(claimed - whole) <= MEMORY_TOLERANCE * whole
    return Figure("memory_gib", f"{claimed:.15g}", expected, agrees)


def is_same_kind(one: str, other: str) -> bool:
    """Whether two names may be of one accelerator: of "NVIDIA H100 80GB HBM3" and "H100" yes.

    Maker, memory and form do not count; of the words left, one name has all that the other has, or
    both have the same letters in a row. A name without any such word may be of any.
    """
    first, second = _model_words(one), _model_words(other)
    return (
        set(first) <= set(second) or set(second) <= set(first) or "".join(first) == "".join(second)
    )


def _model_words(name: str) -> list[str]:
    plain = _BUILT.sub(" ", _COUNT_IN_FRONT.sub(" ", name.lower().replace("_", " ")))
    return [word for word in re.findall(r"[a-z0-9]+", plain) if word not in FILLERS]
