"""Submissions side by side: their names, their differences, and which is significantly faster."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from finishline.rules.ranking import evidence_words
from finishline.rules.text import unseen_gap_text
from web.formats import (
    DASH,
    SECONDS,
    TimeFormat,
    day,
    milliseconds,
    money,
    number,
    percent,
    quality,
    ratio_text,
    small_money,
)
from web.names import byline, entry_title, hardware
from web.run_measurements import stated_settings

View = Mapping[str, Any]
LETTERS = "ABCDEF"
MOST_SETTINGS = 2  # that a name has.


@dataclass(frozen=True)
class Row:
    """A property with its text for each submission."""

    name: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether not all submissions have the same."""
        return len(set(self.texts)) > 1


def compare_link(ids: Sequence[str]) -> str:
    """The address of a comparison."""
    return "/compare?" + urlencode({"ids": ",".join(ids)}, safe=",")


def side_names(submissions: Sequence[View]) -> list[str]:
    """The title of each compared submission, with what tells equal titles apart."""
    return _told_apart_by([entry_title(one) for one in submissions], submissions)


def neighbour_names(rows: Sequence[View]) -> list[str]:
    """The title and submitter of each neighbour on a board, with what tells equal ones apart."""
    return _told_apart_by([f"{entry_title(row)} by {byline(row)}" for row in rows], rows)


def _told_apart_by(names: list[str], rows: Sequence[View]) -> list[str]:
    """Names with each fact added that tells more of them apart."""
    facts = (
        map(byline, rows),
        (str(row["model"]) for row in rows),
        map(hardware, rows),
        (str(row.get("division") or "") for row in rows),
        (str(row["system"]["name"]) for row in rows),
        _differing_settings(rows),
        (day(row["submitted_on"] or row["submitted_at"]) for row in rows),
    )
    for fact in facts:
        pairs = zip(names, fact, strict=True)
        joined = [", ".join(part for part in both if part) for both in pairs]
        if len(set(joined)) > len(set(names)):
            names = joined
    return names


def _differing_settings(submissions: Sequence[View]) -> list[str]:
    """The first settings in which the submissions differ, as in "batch_size 32"."""
    differing = [row for row in _settings(submissions) if row.differs][:MOST_SETTINGS]
    return [
        ", ".join(f"{row.name} {row.texts[place]}" for row in differing)
        for place in range(len(submissions))
    ]


def comparison_rows(
    submissions: Sequence[View],
    target: View,
    ranks: Mapping[str, int | None],
    time: TimeFormat = SECONDS,
) -> list[Row]:
    """Every property that a submission states. `ranks` are those in each one's division."""

    def rows_of(properties: Sequence[Property]) -> list[Row]:
        return [
            _row(name, (_value(s, at) for s in submissions), write)
            for name, at, write in properties
        ]

    rank = _row("Rank in its division", [ranks.get(s["id"]) for s in submissions])
    evidence: Property = ("Evidence", "", evidence_words)
    result = rows_of([*_result(submissions, target, time), evidence])
    rows = [rank, *result, *_settings(submissions), *rows_of(SYSTEM)]
    return [row for row in rows if any(text != DASH for text in row.texts)]


def pair_sentence(pair: View, comparison: View, names: Sequence[str] = LETTERS) -> str:
    """Say which of a compared pair is faster, how surely, and how many runs would tell.

    The submissions are called by letter, in their order, unless other names are given.
    """
    compared = comparison["submissions"]
    place = {one["submission_id"]: at for at, one in enumerate(compared)}
    both = [place[pair[side]] for side in ("first", "second")]
    one, other = (names[at] for at in both)
    runs = [len(compared[at]["run_seconds"]) for at in both]
    if pair["ratio"] is None:
        silent = one if not runs[0] else other
        return f"{one} and {other} cannot be compared: {silent} has no run that reached the target."
    slow, fast, ratio, low, high = _slower_first(pair, one, other)
    took = f"{slow} takes {ratio_text(ratio)} times as long as {fast} over all runs"
    if pair["p_adjusted"] is None:
        return (
            f"{took} as measured, but a single run has no spread to test against: this may be "
            "chance."
        )
    took += f" (geometric means, 95\u00a0% interval {ratio_text(low)} to {ratio_text(high)})"
    pairs = len(comparison["pairs"])
    p = "p < 0.0001" if pair["p_adjusted"] < 0.0001 else f"p = {pair['p_adjusted']:.2g}"
    p += f", by Holm over {pairs} pairs" if pairs > 1 else ""
    if pair["told_apart"]:
        return _told_apart(pair, one, other, f"({p}): {took}")
    needed = pair["runs_needed"]
    # As many runs as there are would tell this pair alone, and do not tell it among several.
    tell = (
        f" A gap of this size needs {needed:,} runs on each side to show."
        if needed and needed > min(runs)
        else ""
    )
    seen = "" if high is None else f", {unseen_gap_text((high / ratio - 1) * 100)}"
    return (
        f"These runs cannot tell {one} and {other} apart ({p}{seen}): {took}, which may be "
        f"chance.{tell}"
    )


def _slower_first(pair: View, one: str, other: str) -> tuple[Any, ...]:
    """The slower of a pair, the faster, and their ratio, at least 1, with its ends."""
    ratio, low, high = pair["ratio"], pair["ratio_low"], pair["ratio_high"]
    if ratio >= 1.0 or not ratio:
        return one, other, ratio, low, high
    ends = (None, None) if low is None or not low else (1.0 / high, 1.0 / low)
    return other, one, 1.0 / ratio, *ends


def _told_apart(pair: View, one: str, other: str, how: str) -> str:
    faster = pair["ratio"] < 1.0
    share = pair["p_one_run_faster"] if faster else 1.0 - pair["p_one_run_faster"]
    winner, loser = (one, other) if faster else (other, one)
    return (
        f"{winner} is significantly faster than {loser} {how}. A run of {winner} beats a run of "
        f"{loser} in {percent(share * 100, 0)} of all pairs of runs."
    )


Property = tuple[str, str, Callable[[Any], str]]


def _settings(submissions: Sequence[View]) -> list[Row]:
    stated = [{each.name: each.text for each in stated_settings(s)} for s in submissions]
    if not all(stated):  # The reference of a board states none.
        return []
    names = dict.fromkeys(name for settings in stated for name in settings)
    return [_row(name, [settings.get(name) for settings in stated]) for name in names]


def _result(submissions: Sequence[View], target: View, time: TimeFormat) -> list[Property]:
    """The properties of results: their names, where a submission has them, and how they read."""

    def in_unit(value: float) -> str:
        return quality(value, target["unit"])

    latency: Property = ("Latency measured", "measured_latency_ms", milliseconds)
    if submissions[0]["kind"] == "inference":
        return [
            ("Latency of one item", "result.latency_ms", milliseconds),
            latency,
            ("Cost of 10,000 items", "result.cost_usd_per_10000", small_money),
            ("Quality", "result.quality", in_unit),
        ]
    results = [s["result"] for s in submissions]
    is_normalised = any(r["raw_tta_seconds"] != r["tta_seconds"] for r in results)
    raw: Property = ("Before normalising", "result.raw_tta_seconds", time)
    return [
        ("Time to accuracy", "result.tta_seconds", time),
        ("95 % interval", "result",
         lambda r: time.interval(r["tta_low_seconds"], r["tta_high_seconds"]) or DASH),
        *([raw] if is_normalised else []),
        ("Coefficient of variation", "result.cv_percent", percent),
        ("Runs that reached the target", "result", "{0[reached]} of {0[started]}".format),
        ("Epochs to target", "result.epochs_to_target", lambda epochs: number(epochs, 3)),
        ("Convergence", "result.rcp.submission_mean", number),
        ("Best quality", "result.best_quality", in_unit),
        ("Cost to accuracy", "result.cost_usd", money),
        ("Precision claimed", "precision", str),
        ("Precision measured", "precision_measured", str),
        ("Energy of a run, measured (J)", "measured.energy_joules", lambda j: number(j, 4)),
        latency,
    ]  # fmt: skip


def _batch_sizes(runs: Sequence[View]) -> str:
    sizes = sorted({run["batch_size"] for run in runs if run["batch_size"]})
    return ", ".join(number(size) for size in sizes) or DASH


SYSTEM: list[Property] = [
    ("System", "system.name", str),
    ("Hardware class", "system.hardware_class", str),
    ("Accelerator", "system.accelerator", str),
    ("Accelerators", "system.accelerator_count", number),
    ("Processor", "system.processor", str),
    ("Processors", "system.processor_count", number),
    ("Memory (GiB)", "system.memory_gib", number),
    ("Price of an hour", "system.price_usd_per_hour", money),
    ("Framework", "framework", str),
    ("Division", "division", str),
    ("Rules", "", "{0[benchmark_version]} {0[benchmark_sha256]:.12}".format),
    ("Batch size, by the logs", "runs", _batch_sizes),
    ("Date", "", lambda s: day(s["submitted_on"] or s["submitted_at"])),
    ("Code", "code_url", str),
]  # fmt: skip


def _value(submission: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        submission = (submission or {}).get(name)
    return submission


def _row(name: str, values: Iterable[Any], write: Callable[[Any], str] = number) -> Row:
    return Row(name, tuple(DASH if value is None else write(value) for value in values))
