"""Quality targets of a run, in one metric or in several at once."""

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, Literal

from annotated_types import Ge

from finishline.rules.run import Evaluation
from finishline.rules.table import FieldError, Text
from finishline.rules.text import shown

Direction = Literal["higher", "lower"]
Unit = Literal["percent", "fraction", "nats/byte", "nats/token", "loss", "BLEU", "score"]
# Only the share of test items says how far apart two qualities can be.
UNITS: Mapping[str, float] = {"percent": 100.0, "fraction": 1.0}
# Greatest quality in each unit that has one.
GREATEST: Mapping[str, float] = {**UNITS, "BLEU": 100.0}
# Smallest and largest quality, apart from 0, in an unbounded unit. Real ones are far from these.
SMALLEST_QUALITY, LARGEST_QUALITY = 1e-12, 1e6


@lru_cache(maxsize=512)
def metric_words(name: str) -> str:
    """Name a metric for people: "top-1 accuracy" for top1Accuracy, "F1" for f1Score, "box AP"."""
    if name == "f1Score":
        return "F1"
    words = re.sub(r"(?<=[a-z0-9])[A-Z](?=[a-z])", lambda found: f" {found[0].lower()}", name)
    return re.sub(r"(?<=[a-z])(?=[0-9])", "-", words.replace("_", " "))


@dataclass(frozen=True)
class QualityTarget:
    """The quality a run must reach, in the unit of its source.

    `resolution` is the smallest step of the metric (one test item), None if unknown. `also` has
    further targets for the same evaluation, and `logged_as` this metric's name in logs. `offline`
    is whether quality is measured from the checkpoints of a finished run: such evaluations have no
    meaningful times. `steps` is whether an evaluation may tell only its step, `timed_by_result`
    whether the run ended when the first model that passed was saved, which an `eval_result` tells.
    `single_precision` is whether logs have qualities in single precision, where 21.8 is
    21.799999237060547. `floor` is the best quality that the data allows, if known: an honest run
    cannot pass it. With `budget_seconds` a run ends then, at any quality.
    """

    metric: Text
    value: float
    unit: Unit
    direction: Direction
    resolution: float | None = None
    logged_as: Text | None = None
    also: tuple["QualityTarget", ...] = ()
    offline: bool = False
    steps: bool = False
    timed_by_result: bool = False
    single_precision: bool = False
    floor: float | None = None
    budget_seconds: float | None = None

    @property
    def least(self) -> float:
        """Return the worst quality at the target, as logs have it."""
        if not self.single_precision:
            return self.value
        worse = min if self.direction == "higher" else max
        return worse(self.value, float(struct.unpack("f", struct.pack("f", self.value))[0]))

    def is_reached(self, quality: float) -> bool:
        return quality >= self.least if self.direction == "higher" else quality <= self.least

    def is_reached_at(self, evaluation: Evaluation) -> bool:
        """Whether an evaluation is at the target in every metric, and has them all."""
        if not self.is_reached(evaluation.quality):
            return False
        others = evaluation.others or {}
        return all(
            (quality := others.get(other.logged_as or other.metric)) is not None
            and other.is_reached(quality)
            for other in self.also
        )

    def reached_at(self, evaluations: Sequence[Evaluation]) -> list[bool]:
        if self.also:
            return [self.is_reached_at(each) for each in evaluations]
        least = self.least
        if self.direction == "higher":
            return [each.quality >= least for each in evaluations]
        return [each.quality <= least for each in evaluations]

    def is_beyond_floor(self, quality: float) -> bool:
        """Whether a quality is better than the data allows, so it cannot be measured.

        For example, the entropy of a source is the least expected loss on its text.
        """
        if self.floor is None:
            return False
        return quality > self.floor if self.direction == "higher" else quality < self.floor

    @property
    def called(self) -> str:
        return metric_words(self.metric)

    @property
    def greatest(self) -> float | None:
        """Return the greatest quality in the unit, if bounded."""
        return GREATEST.get(self.unit)

    @property
    def may_be_negative(self) -> bool:
        """Whether the metric can be negative: a score can, and a loss with a negative target."""
        return self.unit == "score" or self.value < 0

    def is_possible(self, quality: float) -> bool:
        if quality < 0 and not self.may_be_negative:
            return False
        if self.greatest is not None:
            return quality <= self.greatest
        return quality == 0 or SMALLEST_QUALITY <= abs(quality) <= LARGEST_QUALITY

    @property
    def possible_in_words(self) -> str:
        if self.greatest is not None:
            return f"a {self.unit} from 0 to {self.greatest:g}"
        sign = " with either sign" if self.may_be_negative else ""
        return f"0, or {SMALLEST_QUALITY:g} to {LARGEST_QUALITY:g}{sign}"

    def best(self, qualities: Iterable[float]) -> float:
        return max(qualities) if self.direction == "higher" else min(qualities)

    @property
    def logged_names(self) -> tuple[str, ...]:
        """Return the names of several metrics in logs, this one first. Empty for one metric."""
        if not self.also:
            return ()
        return tuple(part.logged_as or part.metric for part in (self, *self.also))

    @property
    def in_words(self) -> str:
        """Write the target as "mAP >= 0.34 fraction", joined by "and", or "mAP within 60 s"."""
        if self.budget_seconds is not None:
            return f"{self.called} within {self.budget_seconds:g} s"
        sign = ">=" if self.direction == "higher" else "<="
        words = f"{self.called} {sign} {self.value:g} {self.unit}"
        return " and ".join((words, *(other.in_words for other in self.also)))


@dataclass(frozen=True, kw_only=True)
class TargetTable(QualityTarget):
    """`[target]` of a definition: the target, and the rule for when it is reached."""

    resolution: None = None  # Derived from the data set.
    budget_seconds: None = None  # From [ranking].
    reach: Literal["first_crossing", "sustained", "fixed_stop"]
    evaluations: Annotated[int, Ge(2)] | None = None

    def __post_init__(self) -> None:
        if (self.reach == "sustained") != (self.evaluations is not None):
            expected = "a whole number with reach = 'sustained', and with no other"
            found = f"got {self.evaluations} with reach = {self.reach!r}"
            raise FieldError(found, expected=expected, field="evaluations")
        expected = "the metric's own name in logs"
        names = [(each.logged_as or "").lower() for each in (self, *self.also)]
        for place, name in enumerate(names if self.also else ()):
            inside = f"also[{place - 1}]." if place else ""
            if not name or name in names[:place]:
                found = "missing" if not name else f"got {shown(name)} again"
                raise FieldError(found, expected=expected, field=f"{inside}logged_as")


def target_of(table: QualityTarget, test_items: int | None) -> QualityTarget:
    """Return the target in a table, with the step of one test item in each of its metrics."""
    scale = UNITS.get(table.unit)
    values = {each.name: getattr(table, each.name) for each in fields(QualityTarget)}
    values["resolution"] = scale / test_items if scale and test_items else None
    values["also"] = tuple(target_of(each, test_items) for each in table.also)
    return QualityTarget(**values)
