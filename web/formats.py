"""Numbers, times and addresses as people read them. Absent is a dash."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from finishline.rules.ranking import ranked_quality, ranked_seconds
from finishline.rules.text import LARGEST_PLAIN, SMALLEST_PLAIN, count_text, significant

DASH = "–"
GAP = "\u00a0"  # A number never parts from its unit at the end of a line.
SMALLEST_PRICE = 1e-6
SHORTEST_IN_MINUTES = 120.0
SOON_SECONDS = 3.0
_DURATIONS = ((3_600.0, "h"), (60.0, "min"))
_AGES = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def duration(seconds: float | None) -> str:
    """Seconds with three digits, from two of them on in minutes or hours: "0.853 s", "2 min"."""
    if seconds is None:
        return DASH
    scale, unit = next(((s, u) for s, u in _DURATIONS if seconds >= 2 * s), (1.0, "s"))
    return f"{significant(seconds, 3) if scale == 1 else number(seconds / scale, 3)}{GAP}{unit}"


def device_time(seconds: float) -> str:
    """Device seconds, and from an hour on hours: "359,997 device seconds (100 hours)"."""
    words = f"{seconds:.2g}" if 0 < seconds < 9.5 else f"{seconds:,.0f}"
    words += f" device second{'' if words == '1' else 's'}"
    if seconds < 3600:
        return words
    hours = f"{seconds / 3600:,.1f}".removesuffix(".0")
    return f"{words} ({hours} hour{'' if hours == '1' else 's'})"


@dataclass(frozen=True)
class TimeFormat:
    """The times of one board in one unit, with so many decimals or three significant digits.

    `title` names the figure that ranks. Where that is a quality, `quality_unit` is its unit.
    """

    unit: str = "s"
    decimals: int = 2
    title: str = "Time"
    quality_unit: str | None = None

    def __call__(self, seconds: float | None) -> str:
        return DASH if seconds is None else f"{self._figure(seconds)}{GAP}{self.unit}"

    @property
    def word(self) -> str:
        """The unit of an axis."""
        return "minutes" if self.unit == "min" else "seconds"

    @property
    def scale(self) -> float:
        """Seconds of a unit."""
        return 60.0 if self.unit == "min" else 1.0

    def interval(self, low: float | None, high: float | None) -> str:
        """An interval of seconds, or nothing if either end is absent."""
        return "" if low is None or high is None else f"{self._figure(low)} to {self(high)}"

    def figure(self, row: Mapping[str, Any]) -> float | None:
        """The figure that ranks a row: its seconds, or its quality where the board ranks by it."""
        return ranked_seconds(row) if self.quality_unit is None else ranked_quality(row)

    def ranked(self, row: Mapping[str, Any]) -> str:
        """The figure that ranks a row, in words."""
        return self.shown(self.figure(row))

    def gap(self, difference: float) -> str:
        """The size of a difference of qualities, in percentage points where they are in percent."""
        points = " points" if self.quality_unit == "percent" else ""
        return f"{significant(abs(difference), 2)}{points}"

    def shown(self, figure: float | None) -> str:
        """A figure that ranks, in words: a time, or a quality with four digits."""
        if figure is None or self.quality_unit is None:
            return self(figure)
        return _with_unit(significant(figure, 4), self.quality_unit)

    def ends(self, row: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """The ends of the interval of the figure that ranks a row."""
        if self.quality_unit is not None:
            return row["quality_low"], row["quality_high"]
        is_ours = row["evidence"] == "measured" and row["measured_seconds"] is not None
        name = "measured" if is_ours else "tta"
        return row[f"{name}_low_seconds"], row[f"{name}_high_seconds"]

    def ranked_interval(self, row: Mapping[str, Any]) -> str:
        """The interval of the figure that ranks a row, or nothing if either end is absent."""
        low, high = self.ends(row)
        if self.quality_unit is None:
            return self.interval(low, high)
        return "" if low is None or high is None else f"{significant(low, 4)} to {self.shown(high)}"

    def _figure(self, seconds: float) -> str:
        value = seconds / self.scale
        if not SMALLEST_PLAIN <= value < LARGEST_PLAIN:
            return significant(value, 3)
        below_one = 2 - math.floor(math.log10(value)) if value < 1 else 0
        return f"{value:,.{max(self.decimals, below_one)}f}"


SECONDS = TimeFormat()


def time_format(times: Iterable[float | None], unit: str | None = None) -> TimeFormat:
    """The unit that is given or fits the slowest, with a third decimal where two would be alike."""
    known = sorted(seconds for seconds in times if seconds is not None)
    longest = known[-1] if known else 0.0
    chosen = TimeFormat(unit or ("s" if longest < SHORTEST_IN_MINUTES else "min"))
    close = ((a, b) for a, b in pairwise(known) if a != b and b - a < 0.01 * chosen.scale)
    is_alike = any(chosen(a) == chosen(b) for a, b in close)
    return replace(chosen, decimals=3) if is_alike else chosen


def seconds_exact(seconds: float | None) -> str:
    """Seconds with milliseconds, grouped by thousands."""
    if seconds is None:
        return DASH
    is_plain = abs(seconds) <= LARGEST_PLAIN
    return f"{seconds:,.3f}{GAP}s" if is_plain else f"{significant(seconds, 3)}{GAP}s"


def money(usd: float | None) -> str:
    """US dollars: cents from a cent upwards, two significant digits below."""
    if usd is None:
        return DASH
    is_in_cents = 0.01 <= usd <= LARGEST_PLAIN or usd == 0
    return f"${usd:,.2f}" if is_in_cents else f"${significant(usd, 2)}"


def small_money(usd: float | None) -> str:
    """US dollars of an amount that is compared below a cent: three significant digits."""
    if usd is None:
        return DASH
    return money(usd) if usd >= 1 or usd == 0 else f"${significant(usd, 3)}"


def price(usd: float | None) -> str:
    """A price as it was published: cents, the digits below a cent, or two significant digits."""
    if usd is None:
        return DASH
    if not SMALLEST_PRICE <= usd <= LARGEST_PLAIN and usd != 0:
        return f"${significant(usd, 2)}"
    cents = f"{usd:,.2f}"
    return f"${cents}" if float(cents.replace(",", "")) == usd else f"${usd:,.6f}".rstrip("0")


def milliseconds(value: float | None) -> str:
    """Milliseconds with three significant digits."""
    return DASH if value is None else f"{significant(value, 3)}{GAP}ms"


def percent(value: float | None, digits: int = 1) -> str:
    """A figure that is already in percent."""
    if value is None:
        return DASH
    is_plain = abs(value) <= LARGEST_PLAIN
    return f"{value:.{digits}f}{GAP}%" if is_plain else f"{significant(value, 3)}{GAP}%"


_JOULES = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"))


def energy(joules: float | None) -> str:
    """Joules with three significant digits, in the unit that leaves the fewest zeros."""
    if joules is None:
        return DASH
    scale, unit = next(((s, u) for s, u in _JOULES if joules >= s), (1.0, "J"))
    return f"{significant(joules / scale, 3)}{GAP}{unit}"


def round_step(wanted: float) -> float:
    """The next one, two or five of a power of ten."""
    power = 10.0 ** math.floor(math.log10(wanted))
    factor = next(f for f in (1, 2, 5, 10) if f * power >= wanted * (1 - 1e-9))
    return float(f"{factor * power:.10g}")


def unbroken(text: str) -> str:
    """A sentence in which no number parts from its percent sign at the end of a line."""
    return text.replace(" %", f"{GAP}%")


def ratio_text(ratio: float) -> str:
    """A ratio of two times, with a digit more near 1: "0.034", "0.60", "1.04", "29.4"."""
    return significant(ratio, 3 if ratio > _NEAR_ONE else 2) if ratio < 1e6 else "more than 1e6"


_NEAR_ONE = 0.9
# Units that say no more than the metric's own name does.
UNNAMED_UNITS = ("fraction", "loss", "score")


def quality(value: float | None, unit: str | None = None) -> str:
    """A quality in the unit of its metric, never rescaled."""
    if value is None:
        return DASH
    return _with_unit(number(round(value, 3) if unit == "percent" else value), unit)


def _with_unit(figure: str, unit: str | None) -> str:
    if unit in (None, *UNNAMED_UNITS):
        return figure
    return f"{figure}{GAP}{'%' if unit == 'percent' else unit}"


def number(value: object, digits: int = 5) -> str:
    """Any value of a table: whole numbers plain, others with so many significant digits."""
    if value is None:
        return DASH
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "never"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    if not 1e-6 <= abs(value) <= LARGEST_PLAIN:
        return f"{value:.{digits}g}"
    plain = significant(value, digits)
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return plain if abs(value) >= 10_000 else plain.replace(",", "")


def moment(timestamp: str | datetime) -> datetime:
    """A timestamp of a view as an aware UTC datetime."""
    read = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def day(timestamp: str | datetime | None) -> str:
    """The UTC date of a timestamp."""
    return DASH if timestamp is None else moment(timestamp).strftime("%Y-%m-%d")


def calendar(timestamp: str | datetime) -> str:
    """The UTC date of a timestamp in words: "3 Nov 2026"."""
    return f"{moment(timestamp):%-d %b %Y}"


def minute(timestamp: str | datetime | None) -> str:
    """The UTC date and time of day of a timestamp."""
    return DASH if timestamp is None else f"{moment(timestamp):%-d %b %Y, %H:%M} UTC"


def age(timestamp: str | datetime | None, now: datetime | None = None) -> str:
    """Time since a timestamp, in its largest unit: "3 minutes ago"."""
    if timestamp is None:
        return DASH
    seconds = ((now or datetime.now(UTC)) - moment(timestamp)).total_seconds()
    for length, name in _AGES:
        count = int(seconds // length)
        if count >= 1:
            return f"{count}{GAP}{name}{'' if count == 1 else 's'} ago"
    return "just now"


def until(timestamp: str | datetime, now: datetime | None = None) -> str:
    """Time to an expected moment, in its largest unit: "in about 3 minutes"."""
    seconds = (moment(timestamp) - (now or datetime.now(UTC))).total_seconds()
    for length, name in _AGES:
        if seconds >= max(length, SOON_SECONDS):
            return f"in about {count_text(round(seconds / length), name)}"
    return "at any moment"


def web_address(text: object) -> str | None:
    """The text if it is an http or https address that may become a link, else None."""
    if not isinstance(text, str):
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    return text if parts.scheme in ("http", "https") and parts.netloc else None


def web_host(address: str) -> str:
    """The host of a web address, to be shown in place of the whole."""
    return urlsplit(address).hostname or address


def visible(text: str) -> str:
    """A program's output or source, with escapes for characters that steer a terminal or a line."""
    lines = text.replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in lines)
