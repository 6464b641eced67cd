"""Publication days of the rounds of MLPerf Training, with their sources.

A round without a sourced day is left out: its results are of the day that an import names, else of
the import.
"""

import re
from datetime import date

# 0.6, 0.7: the pages of the results, mlperf.org/training-results-0-6 and -0-7, are headed by the
# day. 5.0, 5.1: the announcements "MLPerf Training v5.0 ..." and "v5.1 ..." of MLCommons
# (GLOBE NEWSWIRE) are dated.
PUBLISHED_ON = {
    "0.6": date(2019, 7, 10),
    "0.7": date(2020, 7, 29),
    "5.0": date(2025, 6, 4),
    "5.1": date(2025, 11, 12),
}
_ROUND = re.compile(r"mlperf-v([0-9]+\.[0-9]+)-")


def published_on(benchmark_id: str) -> date | None:
    """The day on which the round of an MLPerf benchmark was published, None if it is not known."""
    found = _ROUND.match(benchmark_id)
    return PUBLISHED_ON.get(found[1]) if found else None
