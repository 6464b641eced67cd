"""The effects of factors as rows with a bar each: training without them, beside all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.text import count_text
from finishline.rules.verification.entry import names_of

LARGEST_CLIP = 4.0  # An interval of few pairs may be so wide that nothing else could be seen.


@dataclass(frozen=True)
class FactorBar:
    """Places on a bar in percent of its width: the ratio, its 95 % interval, and a ratio of 1."""

    ratio: float
    low: float
    high: float
    one: float


@dataclass(frozen=True)
class FactorRow:
    """A variant: the factors that are off, their words, its figures in words, and its bar."""

    name: str
    words: str
    text: str
    bar: FactorBar | None


def factor_rows(effects: Sequence[Mapping[str, Any]], words: Mapping[str, str]) -> list[FactorRow]:
    """Rows of an ablation's factors, in its order; `words` are those of the manifest."""
    count = len({name for each in effects for name in each["off"]})
    widest = _widest(effects)
    return [
        FactorRow(
            name=names_of(tuple(each["off"]), of=count),
            words=words.get(each["off"][0], "") if len(each["off"]) == 1 else "",
            text=_text(each),
            bar=_bar(each, widest),
        )
        for each in effects
    ]


def _widest(effects: Sequence[Mapping[str, Any]]) -> float:
    known = [each for each in effects if each["ratio"] is not None]
    most: float = max([1.0, *(each["ratio"] for each in known)])
    highs = [min(float(each["high"]), LARGEST_CLIP * most) for each in known]
    return 1.05 * max([most, *highs])


def _bar(effect: Mapping[str, Any], widest: float) -> FactorBar | None:
    if effect["ratio"] is None:
        return None
    ratio, low, high = (
        min(100.0, 100 * effect[name] / widest) for name in ("ratio", "low", "high")
    )
    return FactorBar(ratio, low, high, one=100 / widest)


def _text(effect: Mapping[str, Any]) -> str:
    missed = effect["started"] - effect["reached"]
    told = f"{missed} of {count_text(effect['started'], 'run')} missed the target" if missed else ""
    if effect["ratio"] is None:
        return told or "too few pairs"
    ratio, low, high = (f"{effect[name]:.3g}" for name in ("ratio", "low", "high"))
    return f"{ratio} × ({low} to {high})" + (f"; {told}" if told else "")
