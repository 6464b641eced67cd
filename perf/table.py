"""One table of every bar: `make bench | tee bench.log; python -m perf.table < bench.log`.

Each figure that a program held against its bar, in the order in which they came.
"""

import re
import sys

from perf.harness import print_table

HELD = re.compile(r"([\w ]+): (.+): (\S+.*) \(((?:at (?:most|least) \S+(?:, )?)+)\)( MISSED)?")


def main() -> int:
    """Read what the programs printed, print the table; returns 1 if no figure is in it."""
    rows = [held.groups() for line in sys.stdin if (held := HELD.fullmatch(line.rstrip("\n")))]
    print_table(
        ("program", "figure", "measured", "bar", "met"),
        [(*cells, "no" if missed else "yes") for *cells, missed in rows],
    )
    return int(not rows)


if __name__ == "__main__":
    sys.exit(main())
