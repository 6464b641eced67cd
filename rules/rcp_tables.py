"""RCP tables as `mlperf-logging` ships them: JSON files, read as data and never run as code."""

import re
from pathlib import Path
from typing import Any

from rules.convergence import ReferencePoint
from rules.errors import RuleError
from rules.fields import Fields
from rules.logs.json_text import parse_json, refuse_repeated_keys

TABLE_LIMIT_BYTES = 4 * 1024 * 1024
TABLE_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,60}")
# Which of the two a table has is an accident of its history; it has exactly one.
FIGURES = ("Epochs to converge", "samples to converge")


def load_rcp_table(folder: Path, benchmark_id: str) -> tuple[ReferencePoint, ...]:
    """The reference points of a benchmark in a folder of `rcps_NAME.json` files, by batch size.

    `benchmark_id` is the name in logs ("retinanet") or ours ("mlperf-v5.1-retinanet"); the folder
    is one of the package's, `mlperf_logging/rcp_checker/training_5.1.0`. Raises RuleError if it has
    no such table or the table is none.
    """
    name = benchmark_id.rpartition("-")[2]
    path = folder / f"rcps_{name}.json"
    if not TABLE_NAME.fullmatch(name) or not path.is_file():
        names = sorted(file.stem.removeprefix("rcps_") for file in folder.glob("rcps_*.json"))
        raise RuleError(
            f"no RCP table of {benchmark_id[:80]!r}",
            file=str(folder),
            expected=" or ".join(names) or "a folder with rcps_*.json files",
        )
    with path.open("rb") as table:
        content = table.read(TABLE_LIMIT_BYTES + 1)
    return parse_rcp_table(content, file=path.name)


def parse_rcp_table(content: bytes, *, file: str) -> tuple[ReferencePoint, ...]:
    """The reference points in the JSON of one table, by batch size.

    Raises RuleError naming file and field.
    """
    if len(content) > TABLE_LIMIT_BYTES:
        raise RuleError(
            f"more than {TABLE_LIMIT_BYTES:,} bytes", file=file, expected="an RCP table"
        )
    table: Any = parse_json(content, file=file)
    refuse_repeated_keys(content, file=file)
    records = Fields(table, file=file)
    points = [_point(records.table(name)) for name, _ in records.items()]
    sizes = [point.batch_size for point in points]
    if not points or len(set(sizes)) != len(sizes):
        raise RuleError(f"batch sizes {sizes}", file=file, expected="one record per batch size")
    return tuple(sorted(points, key=lambda point: point.batch_size))


def _point(record: Fields) -> ReferencePoint:
    batch_size = record.integer("BS", minimum=1)
    names = [name for name in FIGURES if record.has(name)]
    if len(names) != 1:
        raise record.fail(
            FIGURES[0], f"{len(names)} lists of figures", expected=" or ".join(FIGURES)
        )
    epochs = record.numbers(names[0])
    if min(epochs) <= 0:
        raise record.fail(names[0], f"got {min(epochs):g}", expected="figures above 0")
    return ReferencePoint(batch_size=batch_size, epochs=epochs)
