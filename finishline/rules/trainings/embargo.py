"""Embargo of a package: its submitter keeps the source back for a while after the verdict."""

from datetime import UTC, date, datetime, time, timedelta

from finishline.rules.errors import RuleError

FIELD = "embargo_until"
# As long as seeds, curves and logs of a claim are hidden: a measured time that nobody can look
# into is taken on trust.
LONGEST_EMBARGO = timedelta(days=30)


def read_embargo(text: str, *, now: datetime) -> datetime:
    """Moment from which a source is public: the begin of a day like 2026-12-24, in UTC.

    Raises RuleError for another text, a day that has begun and one more than 30 days after `now`.
    """
    latest = (now + LONGEST_EMBARGO).date()
    expected = f"a day after today, at the latest {latest:%Y-%m-%d}, as YYYY-MM-DD"
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise RuleError(f"not a date: {text[:40]!r}", field=FIELD, expected=expected) from None
    if not now.date() < day <= latest:
        raise RuleError(f"{day:%Y-%m-%d} is not allowed", field=FIELD, expected=expected)
    return datetime.combine(day, time(), tzinfo=UTC)
