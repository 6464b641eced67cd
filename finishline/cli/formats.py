"""Figures as people read them; a dash where there is none."""

from datetime import UTC, datetime

ABSENT = "–"
MOST_DIGITS = 6
LARGEST_PLAIN = 1e15  # Written out, what lies beyond would fill a terminal with digits.
SMALLEST_COST = 1e-6  # US dollars; of less, six places show nothing.
UNIT_SIGNS = {"percent": " %", "fraction": "", "loss": "", "score": "", "nats/byte": " nats/byte"}


def quality_text(quality: float | None, unit: str, *, target: float | None = None) -> str:
    """A quality in the unit of its benchmark: 97.50 %, 0.7500.

    Beside its target it has as many digits as it takes to be told from it: 97.496 % of 97.5 %.
    """
    if quality is None:
        return ABSENT
    digits = 2 if unit == "percent" else 4
    while target is not None and digits < MOST_DIGITS and quality != target:
        if round(quality, digits) != round(target, digits):
            break
        digits += 1
    return f"{_fixed(quality, digits)}{UNIT_SIGNS.get(unit, ' ' + unit)}"


def seconds_text(seconds: float | None) -> str:
    """Seconds with as many digits as tell something: 0.853 s, 12.40 s, 341.0 s."""
    if seconds is None:
        return ABSENT
    digits = 3 if seconds < 10 else 2 if seconds < 100 else 1
    return f"{_fixed(seconds, digits)} s"


def number_text(value: float | None, *, digits: int = 1, unit: str = "") -> str:
    """A number with a fixed count of digits, and its unit."""
    return ABSENT if value is None else f"{_fixed(value, digits)}{unit}"


def cost_text(cost_usd: float | None) -> str:
    """US dollars; small amounts keep enough digits to differ."""
    if cost_usd is None:
        return ABSENT
    if 0 < cost_usd < SMALLEST_COST:
        return f"${cost_usd:.2g}"
    return f"${_fixed(cost_usd, 2)}" if cost_usd >= 1 else f"${cost_usd:.6f}"


def _fixed(value: float, digits: int) -> str:
    """A number with so many digits after the point; one beyond all that is measured in short."""
    return f"{value:.{digits}f}" if abs(value) <= LARGEST_PLAIN else f"{value:.3g}"


def minute_text(moment: str | None) -> str:
    """A moment of the API to the minute, in UTC."""
    if moment is None:
        return ABSENT
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M}"
