"""What a check found: faults, which make it fail, and orphans, which only take room."""

from dataclasses import dataclass, field

MOST_LINES = 1000


@dataclass
class Findings:
    """What was looked at, by name, and what was found; `faults` and `orphans` as lines.

    Only the first thousand lines of each are kept; the counts are of all.
    """

    looked_at: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0
    orphans: list[str] = field(default_factory=list)
    orphan_count: int = 0

    def fault(self, line: str) -> None:
        """Something that must not be."""
        self.fault_count += 1
        if len(self.faults) < MOST_LINES:
            self.faults.append(line)

    def orphan(self, line: str) -> None:
        """A file that no row names."""
        self.orphan_count += 1
        if len(self.orphans) < MOST_LINES:
            self.orphans.append(line)

    def count(self, name: str, number: int = 1) -> None:
        """So many more were looked at."""
        self.looked_at[name] = self.looked_at.get(name, 0) + number
