"""Quality targets of a run, in one metric or in several at once."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from finishline.rules.fields import Fields
from finishline.rules.run import Evaluation

Direction = Literal["higher", "lower"]
FLAGS = ("offline", "steps", "timed_by_result", "single_precision")
# Only of a share of test items is it known how far apart two qualities can be.
UNITS: Mapping[str, float | None] = {
    "percent": 100.0,
    "fraction": 1.0,
    "nats/byte": None,
    "nats/token": None,
    "loss": None,
    "BLEU": None,
    "score": None,
}
# Greatest quality in each unit, None where there is none.
GREATEST: Mapping[str, float | None] = {**UNITS, "BLEU": 100.0}
# Smallest and largest quality, apart from 0, where the unit sets no bound. None is near these.
SMALLEST_QUALITY, LARGEST_QUALITY = 1e-12, 1e6


@dataclass(frozen=True)
class QualityTarget:
    """The quality a run must reach, in the unit of its source.

    `resolution` is the smallest step the metric can take (one test item), None where unknown.
    `also` has further targets for the same evaluation; then `logged_as` is this metric's name in
    logs. `offline` is whether quality is measured from the checkpoints of a run once it is over:
    the times of such evaluations say nothing. `steps` is whether an evaluation may tell its step
    alone, `timed_by_result` whether the run ended when the first model that passed was saved, which
    an `eval_result` tells. `single_precision` is whether logs have qualities in single precision,
    where 21.8 is 21.799999237060547. `floor` is the best quality that the data allows, where that
    is known: an honest run cannot pass it.
    """

    metric: str
    value: float
    unit: str
    direction: Direction
    resolution: float | None = None
    logged_as: str | None = None
    also: tuple["QualityTarget", ...] = ()
    offline: bool = False
    steps: bool = False
    timed_by_result: bool = False
    single_precision: bool = False
    floor: float | None = None

    @property
    def least(self) -> float:
        """The worst quality that is at the target, as logs have it."""
        if not self.single_precision:
            return self.value
        worse = min if self.direction == "higher" else max
        return worse(self.value, float(struct.unpack("f", struct.pack("f", self.value))[0]))

    def is_reached(self, quality: float) -> bool:
        """Whether a raw quality of this metric is at the target or beyond it."""
        return quality >= self.least if self.direction == "higher" else quality <= self.least

    def is_reached_at(self, evaluation: Evaluation) -> bool:
        """Whether an evaluation is at the target in every metric; one it lacks is not reached."""
        if not self.is_reached(evaluation.quality):
            return False
        others = evaluation.others or {}
        return all(
            (quality := others.get(other.logged_as or other.metric)) is not None
            and other.is_reached(quality)
            for other in self.also
        )

    def reached_at(self, evaluations: Sequence[Evaluation]) -> list[bool]:
        """For each evaluation, whether it is at the target."""
        if self.also:
            return [self.is_reached_at(each) for each in evaluations]
        least = self.least
        if self.direction == "higher":
            return [each.quality >= least for each in evaluations]
        return [each.quality <= least for each in evaluations]

    def is_beyond_floor(self, quality: float) -> bool:
        """Whether a quality is better than the data allows, so that it cannot have been measured.

        The entropy of a source, for one, is the least loss that can be expected on its text.
        """
        if self.floor is None:
            return False
        return quality > self.floor if self.direction == "higher" else quality < self.floor

    @property
    def greatest(self) -> float | None:
        """The greatest quality that the unit has, None where it sets no bound."""
        return GREATEST[self.unit]

    @property
    def may_be_negative(self) -> bool:
        """Whether the metric can be negative: a score can, and a loss whose target is."""
        return self.unit == "score" or self.value < 0

    def is_possible(self, quality: float) -> bool:
        """Whether the metric can have a quality at all."""
        if quality < 0 and not self.may_be_negative:
            return False
        if self.greatest is not None:
            return quality <= self.greatest
        return quality == 0 or SMALLEST_QUALITY <= abs(quality) <= LARGEST_QUALITY

    @property
    def possible_in_words(self) -> str:
        """The qualities that the metric can have."""
        if self.greatest is not None:
            return f"a {self.unit} from 0 to {self.greatest:g}"
        sign = " with either sign" if self.may_be_negative else ""
        return f"0, or {SMALLEST_QUALITY:g} to {LARGEST_QUALITY:g}{sign}"

    def best(self, qualities: Iterable[float]) -> float:
        """The best of at least one quality."""
        return max(qualities) if self.direction == "higher" else min(qualities)

    @property
    def logged_names(self) -> tuple[str, ...]:
        """Names of the metrics in logs, this one first; empty where there is one metric alone."""
        if not self.also:
            return ()
        return tuple(part.logged_as or part.metric for part in (self, *self.also))

    @property
    def in_words(self) -> str:
        """The target as "mAP >= 0.34 fraction", with "and" between several."""
        sign = ">=" if self.direction == "higher" else "<="
        words = f"{self.metric} {sign} {self.value:g} {self.unit}"
        return " and ".join((words, *(other.in_words for other in self.also)))


def read_target(table: Fields, *, test_items: int | None) -> QualityTarget:
    """The target in a definition's table; `reach` and `evaluations` in it are for other readers."""
    table.has("reach")
    table.has("evaluations")
    also = tuple(
        _read_metric(other, test_items=test_items, several=True) for other in table.tables("also")
    )
    flags = {name: table.boolean(name, default=False) for name in FLAGS}
    target = _read_metric(table, test_items=test_items, several=bool(also), also=also, **flags)
    names = target.logged_names
    if len({name.lower() for name in names}) < len(names):
        raise table.fail("also", f"metrics logged as {names}", expected="a name for each metric")
    return target


def _read_metric(
    table: Fields,
    *,
    test_items: int | None,
    several: bool,
    also: tuple[QualityTarget, ...] = (),
    **flags: bool,
) -> QualityTarget:
    unit = table.choice("unit", tuple(UNITS))
    scale = UNITS[unit]
    direction = table.choice("direction", ("higher", "lower"))
    target = QualityTarget(
        metric=table.text("metric"),
        value=table.number("value"),
        unit=unit,
        direction="higher" if direction == "higher" else "lower",
        resolution=scale / test_items if scale and test_items else None,
        logged_as=table.text("logged_as") if several else None,
        also=also,
        **flags,
        floor=table.optional_number("floor"),
    )
    table.refuse_unknown()
    return target
