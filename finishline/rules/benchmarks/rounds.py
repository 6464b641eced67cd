"""When the rounds of MLPerf were published."""

import re
from collections.abc import Sequence
from datetime import date

# 0.6, 0.7: the pages of the results, mlperf.org/training-results-0-6 and -0-7, are headed by the
# day. 5.0 to 6.0: the announcements "MLPerf Training v5.0 ..." and so on of MLCommons
# (GLOBE NEWSWIRE) are dated.
PUBLISHED_ON = {
    "0.6": date(2019, 7, 10),
    "0.7": date(2020, 7, 29),
    "5.0": date(2025, 6, 4),
    "5.1": date(2025, 11, 12),
    "6.0": date(2026, 6, 16),
}
_ROUND = re.compile(r"mlperf-v([0-9]+\.[0-9]+)-")


def published_on(benchmark_id: str) -> date | None:
    """The day on which the round of an MLPerf benchmark was published, None if it is not known."""
    found = _ROUND.match(benchmark_id)
    return PUBLISHED_ON.get(found[1]) if found else None


def round_of_day(rounds: Sequence[str], day: date | None) -> str:
    """The first of some rounds, oldest first, that was published on a day or later.

    The newest where the day is not known, or a round's own day.
    """
    if day is not None:
        past = [i for i, each in enumerate(rounds) if PUBLISHED_ON.get(each, day) < day]
        later = rounds[past[-1] + 1 :] if past else rounds
        if later and later[0] in PUBLISHED_ON:
            return later[0]
    return rounds[-1]
