"""`[trainings]` of a benchmark: how packages are trained, by which limits, and who is judged by it.

`[trainings.files]` pins the files of the benchmark's own folder by SHA-256, the task among them, so
that the hash of the definition covers them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from finishline.rules.fields import Fields

MANIFEST = "training.toml"
MANIFEST = "training.toml"
TASK_FILE = "task.py"
REFERENCE = "reference/"  # Folder of the reference, a package.
LARGEST_PACKAGE_BYTES = 256 << 10
MOST_RUNS = 20
Trust = Literal["ranked", "demonstration"]
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class TrainingPolicy:
    """How entries of a benchmark are measured.

    Each has `runs` sealed runs. `prepare_seconds` are of the processor. With `halves` the second
    half of the test items judges, else both halves are the whole. A board whose answers are public
    is a "demonstration". With a `control_quality` one run more is a control, which has to be as
    good. `files` has the SHA-256 of the benchmark's own files by name.
    """

    runs: int
    run_limit_seconds: float
    prepare_seconds: float
    lease_seconds: float
    max_attempts: int
    halves: bool
    trust: Trust
    max_evaluations: int = 20
    memory_mib: int = 3072
    threads: int = 1
    max_bytes: int = LARGEST_PACKAGE_BYTES
    control_quality: float | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_reference(self) -> bool:
        """Whether the benchmark's own folder has a reference package."""
        return f"{REFERENCE}{MANIFEST}" in self.files

    @property
    def start_seconds(self) -> float:
        """Longest time of a run off the clock: its preparation by the clock."""
        return 3 * self.prepare_seconds


def read_training_policy(table: Fields | None) -> TrainingPolicy | None:
    """Read `[trainings]`; None without one. Raises the table's error naming the field."""
    if table is None:
        return None
    policy = TrainingPolicy(
        runs=table.integer("runs", minimum=3, maximum=MOST_RUNS),
        run_limit_seconds=table.number("run_limit_seconds", minimum=1.0),
        prepare_seconds=table.number("prepare_seconds", minimum=1.0, maximum=3600.0),
        lease_seconds=table.number("lease_seconds", minimum=1.0),
        max_attempts=table.integer("max_attempts", minimum=1, maximum=10),
        halves=table.boolean("halves", default=False),
        trust=cast(Trust, table.choice("trust", ("ranked", "demonstration"))),
        max_evaluations=table.optional_integer("max_evaluations", minimum=1, maximum=1000) or 20,
        memory_mib=table.optional_integer("memory_mib", minimum=64, maximum=1 << 21) or 3072,
        threads=table.optional_integer("threads", minimum=1, maximum=1024) or 1,
        max_bytes=table.optional_integer("max_bytes", minimum=1, maximum=LARGEST_PACKAGE_BYTES)
        or LARGEST_PACKAGE_BYTES,
        control_quality=table.optional_number("control_quality"),
        files=_files(table.table("files")),
    )
    table.refuse_unknown()
    return policy


def _files(table: Fields) -> dict[str, str]:
    found = {name: table.text(name) for name, _ in table.items()}
    for name, digest in found.items():
        if not _NAME.fullmatch(name):
            raise table.fail(
                name, "not a file's name", expected="A-Z, a-z, 0-9, _, . and - below /"
            )
        if not _SHA256.fullmatch(digest):
            raise table.fail(name, f"got {digest[:80]!r}", expected="64 hex digits, its SHA-256")
    if TASK_FILE not in found:
        raise table.fail(TASK_FILE, "missing", expected="the SHA-256 of the benchmark's task")
    return found
