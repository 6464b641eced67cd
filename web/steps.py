"""Steps to a score and to a row's rank: the rule in words, its input numbers, its result."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.ranking import evidence_words, place_words, ranked_seconds
from finishline.rules.scoring.scoring import scored_places
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent, mean
from finishline.rules.text import count_text
from web.formats import DASH, TimeFormat, number, seconds_exact
from web.names import byline, entry_title, separation_words

View = Mapping[str, Any]
NO_PRICE = "The submission states no price, so it has no cost."
ONLY = "The only one left: "
OF_ONE_RUN = "TTA of "
MOST_ADDENDS = 10
DIGITS, PERCENT_DIGITS = 6, 4


@dataclass(frozen=True)
class RunLine:
    """One run's own step: its seconds to the target and their use in the mean.

    `progress` is its epochs to the target, or its samples where the benchmark counts those.
    """

    file: str
    best_quality: float | None
    progress: float | None
    seconds: float | None
    use: str


@dataclass(frozen=True)
class ShownStep:
    """One step. `working` is the rule with the numbers in it, where it can be written out.

    The steps of single runs are shown as one, with a line for each in `runs`.
    """

    name: str
    rule: str | None
    numbers: Mapping[str, float | None]
    working: str | None
    value: str
    runs: tuple[RunLine, ...] = ()


def shown_steps(steps: Sequence[View], rule: View | None) -> list[ShownStep]:
    """The steps of a result; `rule` is the benchmark's rule of runs: count, dropped, started."""
    own = [step for step in steps if step["name"].startswith(OF_ONE_RUN)]
    shown = [_step(step, steps, rule) for step in steps if step not in own]
    return [_runs_step(own, rule, _samples(steps)), *shown] if own else shown


def _samples(steps: Sequence[View]) -> View:
    """The samples of each run by its file, where convergence is counted in samples."""
    found = (s["numbers"] for s in steps if s["name"] == "convergence")
    return next(found, {}) if convergence_unit({"steps": steps}) == "samples" else {}


def run_uses(times: Sequence[float | None], rule: View | None) -> list[str]:
    """Use of each run's time in the mean, in words."""
    if rule is None:
        return ["" for _ in times]
    dropped = rule["dropped"]
    started = rule["started"] if rule["started"] != rule["count"] else None
    places = scored_places(times, RunsRule(rule["count"], dropped, started))
    # A run that did not reach the target counts as slowest.
    seconds = [math.inf if time is None else time for time in times]
    ordered = sorted(places, key=seconds.__getitem__)
    if not places or len(places) <= 2 * dropped:
        return ["not counted" for _ in times]
    words = dict.fromkeys(ordered, "counts")
    words |= dict.fromkeys(ordered[:dropped], "dropped as fastest")
    words |= dict.fromkeys(ordered[len(ordered) - dropped :], "dropped as slowest")
    return [words.get(place, "not counted") for place in range(len(times))]


def _runs_step(own: Sequence[View], rule: View | None, samples: View) -> ShownStep:
    uses = run_uses([step["value"] for step in own], rule)
    return ShownStep(
        name="Time to accuracy of each run",
        rule=_sentence(own[0]["formula"]),
        numbers={},
        working=None,
        value=f"{sum(step['value'] is not None for step in own)} of {len(own)} reached the target",
        runs=tuple(
            RunLine(
                file=file,
                best_quality=step["numbers"].get("best quality"),
                progress=samples.get(file) if samples else step["numbers"].get("epoch"),
                seconds=step["value"],
                use=use,
            )
            for step, use in zip(own, uses, strict=True)
            for file in (step["name"].removeprefix(OF_ONE_RUN),)
        ),
    )


def convergence_unit(result: View) -> str:
    """Unit of a result's convergence, samples or epochs; empty if the steps do not name it."""
    units = (step["unit"] for step in result["steps"] if step["name"] == "convergence")
    return {"samples_count": "samples", "epoch_num": "epochs"}.get(str(next(units, "")), "")


def _step(step: View, steps: Sequence[View], rule: View | None) -> ShownStep:
    working = _working(step, steps, rule)
    runs = {name.removeprefix(OF_ONE_RUN) for name in (other["name"] for other in steps)}
    # A figure of every run that the working has or the first step has told is not told again.
    told = working == NO_PRICE or (working is not None and runs >= set(step["numbers"]))
    return ShownStep(
        name=step["name"][:1].upper() + step["name"][1:],
        rule=_sentence(step["formula"]),
        numbers={} if told else step["numbers"],
        working=working,
        value=_value(step),
    )


def _sentence(formula: str | None) -> str | None:
    """A rule's words as a sentence, whatever sign its multiplications have."""
    if not formula:
        return None
    words = formula.replace(" x ", " × ").replace("_count", "")
    # The name of a metric keeps its case.
    starts = words.split()[0].strip(",").isalpha()
    return (words[:1].upper() if starts else words[:1]) + words[1:] + "."


def _value(step: View) -> str:
    value, unit = step["value"], step["unit"] or ""
    if value is None:
        return DASH
    if unit == "s":
        return seconds_exact(value)
    digits = PERCENT_DIGITS if unit == "%" else DIGITS
    return f"{number(value, digits)} {unit.removesuffix('_count')}".strip()


def _working(step: View, steps: Sequence[View], rule: View | None) -> str | None:
    """The rule with its numbers, only where it comes to the value that is stored."""
    numbers, value = step["numbers"], step["value"]
    if value is None:
        return NO_PRICE if numbers.get("price (USD/h)", 0.0) is None else None
    left = {
        "TTA": lambda: _product(numbers, steps) or _mean(numbers, value, rule),
        "raw TTA": lambda: _mean(numbers, value, rule),
        "convergence": lambda: _mean(numbers, value, rule),
        "normalisation": lambda: _factor(numbers, value),
        "coefficient of variation": lambda: _variation(numbers, value),
        "cost to accuracy": lambda: _cost(numbers, value),
    }.get(step["name"], lambda: None)()
    if left is None or left.startswith(ONLY):
        return left
    return f"{left} = {_value(step)}"


def _mean(numbers: View, value: float, rule: View | None) -> str | None:
    """The addends left after dropping, as a sum over their count."""
    dropped = rule["dropped"] if rule is not None else 0
    times = list(numbers.values())
    uses = run_uses(times, rule) if rule is not None else ["counts" for _ in times]
    by_time = [t for t, use in zip(times, uses, strict=True) if use == "counts"]
    for kept in (by_time, sorted(_known(times))[dropped : len(times) - dropped]):
        addends = _known(kept)
        if addends and len(addends) == len(kept) and math.isclose(mean(addends), value):
            return addends_over_count(addends)
    return None


def addends_over_count(addends: Sequence[float]) -> str:
    """A mean written out; of many addends only their sum is written."""
    words = [number(addend, DIGITS) for addend in addends]
    if len(words) == 1:
        return ONLY + words[0]
    total = " + ".join(words) if len(words) <= MOST_ADDENDS else number(sum(addends), DIGITS + 2)
    return f"({total}) / {len(words)}" if len(words) <= MOST_ADDENDS else f"{total} / {len(words)}"


def _product(numbers: View, steps: Sequence[View]) -> str | None:
    raw = numbers.get("raw TTA (s)")
    factor = next((s["value"] for s in steps if s["name"] == "normalisation"), None)
    if raw is None or factor is None:
        return None
    return f"{number(raw, DIGITS)} × {number(factor, DIGITS)}"


def _factor(numbers: View, value: float) -> str | None:
    reference, own = numbers.get("reference mean"), numbers.get("submission mean")
    if not reference or not own:
        return None
    left = f"{number(reference, DIGITS)} / {number(own, DIGITS)}"
    if math.isclose(reference / own, value):
        return left
    return f"{left} is {number(reference / own, 4)}, below 1; factor"


def _variation(numbers: View, value: float) -> str | None:
    times = _known(numbers.values())
    cv = coefficient_of_variation_percent(times)
    if cv is None or not math.isclose(cv, value):
        return None
    middle = mean(times)
    return f"{number(cv * middle / 100, 4)} / {number(middle, DIGITS)} × 100"


def _cost(numbers: View, value: float) -> str | None:
    seconds, price = numbers.get("TTA (s)"), numbers.get("price (USD/h)")
    if seconds is None or price is None or not math.isclose(seconds / 3600 * price, value):
        return None
    return f"{number(seconds, DIGITS)} / 3600 × {number(price, DIGITS)}"


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@dataclass(frozen=True)
class RankStep:
    """One step to the rank: its name, and a sentence or two."""

    name: str
    text: str


def rank_steps(place: View, time: TimeFormat) -> list[RankStep]:
    """The steps from a submission's time to its place on the board."""
    return [
        RankStep("Evidence", _evidence(place)),
        RankStep("Measured runs", _measured_runs(place)),
        RankStep("Interval", _interval(place, time)),
        RankStep("Eligibility", _eligibility(place)),
        RankStep("Neighbours", _neighbours(place, time)),
    ]


def _evidence(place: View) -> str:
    basis = {
        "measured": "The time of our own runs ranks.",
        "published": "Its own time ranks: it was reviewed elsewhere and scored again here.",
    }.get(place["evidence"], "The submitter's own time is not numbered.")
    return f"{evidence_words(place).capitalize()}. {basis}"


def _measured_runs(place: View) -> str:
    if not place.get("pool_id"):
        return "None: no measured run of this configuration was trained here."
    runs = place.get("pool_runs", 0)
    text = f"{count_text(runs, 'measured run')} counted."
    if runs < 3:
        text += " Fewer than three give no measured time."
    return text


def _interval(place: View, time: TimeFormat) -> str:
    low, high = place["measured_low_seconds"], place["measured_high_seconds"]
    if place["evidence"] != "measured":
        low, high = place["tta_low_seconds"], place["tta_high_seconds"]
    shown = time.interval(low, high)
    if not shown:
        return "No interval: too few runs to know how much they vary."
    return (
        f"{shown}: 95 %, of the mean of so many runs on this machine. Their scatter is taken from "
        "all measured runs of the benchmark on this hardware class, or from the calibrated "
        "reference: not from these runs alone."
    )


def _eligibility(place: View) -> str:
    if place["rank"] is not None:
        return f"Numbered in the {place['division']} division."
    return f"Not ranked: {place['unranked_reason'] or 'its claim was not measured'}."


def _neighbours(place: View, time: TimeFormat) -> str:
    beside = [
        f"{other['why']}: {place_words(other) or '–'}, {entry_title(other)} by {byline(other)}"
        f" ({time(ranked_seconds(other))})"
        for other in place["others"]
    ]
    words = separation_words(place)
    sentences = ["; ".join(beside).capitalize()] if beside else ["Nobody else is numbered"]
    if words:
        sentences.append(words.capitalize())
    return ". ".join(sentences) + "."
