"""Databases full of boards: one board as it would be after scoring, the others copies of it."""

import shutil
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmarks
from server.base.board_versions import raise_board_version
from server.base.database import Database, utc_now
from server.base.models import RunRow, Submission, User
from server.base.settings import Settings
from server.benchmarks.queries import keep_definition

BENCHMARK = "digits"
RUNS = 5


def fill_boards(url: str, folder: Path, *, boards: int, each: int) -> list[str]:
    """Fill a migrated database with boards of so many submissions; returns their benchmarks.

    The folder gets the definitions, one more for each copy. A database that is filled is left.
    """
    names = [BENCHMARK, *(f"copy-{number}" for number in range(1, boards))]
    database = Database(url)
    with database.read() as session:
        is_filled = session.scalars(select(Submission.id).limit(1)).first() is not None
    if not is_filled:
        _write_benchmarks(folder, names)
        benchmarks = load_benchmarks(folder)
        _fill(database, benchmarks[BENCHMARK], folder, each)
        for number, name in enumerate(names[1:], start=1):
            _copy(database, benchmarks[name], folder, number)
        if not database.is_sqlite:
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
                c.exec_driver_sql("VACUUM ANALYZE")  # PostgreSQL does it by itself after a while.
    database.close()
    return names


def _write_benchmarks(folder: Path, names: list[str]) -> None:
    shutil.copytree(Settings().benchmarks_dir, folder)
    text = (folder / f"{BENCHMARK}.toml").read_text()
    for name in names[1:]:
        renamed = text.replace(f'id = "{BENCHMARK}"', f'id = "{name}"', 1)
        (folder / f"{name}.toml").write_text(renamed)


def _fill(database: Database, benchmark: Benchmark, folder: Path, count: int) -> None:
    random = Random(7)
    with database.write() as session:
        keep_definition(session, benchmark, folder)
        user = User(name="perf", created_at=utc_now())
        session.add(user)
        session.flush()
        rows = [_submission(number, benchmark, user.id, random) for number in range(count)]
        session.execute(insert(Submission), rows)
        session.execute(insert(RunRow), [run for row in rows for run in _runs(row, random)])
        raise_board_version(session, benchmark.benchmark_id)


def _copy(database: Database, benchmark: Benchmark, folder: Path, number: int) -> None:
    """The submissions of the first board again, with their runs, under another benchmark."""
    tables: Any = (Submission.__table__, RunRow.__table__)
    own = {"benchmark_id": benchmark.benchmark_id, "benchmark_sha256": benchmark.sha256}
    with database.write() as session:
        keep_definition(session, benchmark, folder)
        session.flush()
        for table, key, given in zip(tables, ("id", "submission_id"), (own, {}), strict=True):
            _copy_rows(session.connection(), table, key, number, given)
        raise_board_version(session, benchmark.benchmark_id)


def _copy_rows(
    connection: Connection, table: Table, key: str, number: int, own: dict[str, str]
) -> None:
    """The rows of the first board under keys that sort before its own; runs are numbered anew."""
    same = [column.name for column in table.c if column.name not in {key, "id", *own}]
    names = ", ".join([key, *own, *(f'"{name}"' for name in same)])
    values = ", ".join(
        [f"'c{number:03}-' || {key}", *(f"'{text}'" for text in own.values())]
        + [f'"{name}"' for name in same]
    )
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {table.name} "  # noqa: S608
        f"WHERE {key} >= 'perf-'"
    )


def _submission(number: int, benchmark: Benchmark, user_id: int, random: Random) -> dict[str, Any]:
    tta = random.lognormvariate(4.0, 0.8)
    gpus = random.choice((1, 2, 4, 8, 64))
    accelerator = random.choice(("H100-SXM5-80GB", "H200-SXM-141GB", "B200", "MI355X"))
    step = {
        "name": "time to accuracy of run_0.log",
        "formula": "seconds at the first evaluation with top1Accuracy >= 97.5",
        "numbers": {"evaluation": 8, "quality": 98.1636},
        "value": tta,
        "unit": "s",
    }
    figures = {"reached": RUNS, "started": RUNS, "cv_percent": 5.0 + random.random()}
    times = {"tta_seconds": tta, "raw_tta_seconds": tta, "tta_display": "0:01:00"}
    interval = {"tta_low_seconds": tta * 0.96, "tta_high_seconds": tta * 1.04}
    curve = {"epochs_to_target": 7.5, "best_quality": 98.1, "evaluation_interval_seconds": tta / 8}
    rest: dict[str, Any] = {"cost_usd": None, "clock": "mlperf", "rcp": None, "violations": []}
    hardware = {"processor": "a processor", "processor_count": 64, "memory_gib": 512.0}
    accelerators = {"accelerator": accelerator, "accelerator_count": gpus}
    return {
        "id": f"perf-{number:07}",
        "user_id": user_id,
        "benchmark_id": benchmark.benchmark_id,
        "benchmark_sha256": benchmark.sha256,
        "division": random.choice(("closed", "open")),
        "model": f"{random.choice(('resnet', 'vit', 'mlp'))}_{number}",
        "framework": random.choice(("torch 2.13.0", "jax 0.9", "tinygrad 0.12")),
        "system": hardware
        | accelerators
        | {"name": f"{gpus} x {accelerator}", "hardware_class": f"{gpus}-{accelerator.lower()}"}
        | {"price_usd_per_hour": 2.5 * gpus, "price_source": "a price list"},
        "hyperparameters": {"batch_size": 64},
        "claim_sha256": "0" * 64,
        "status": random.choice(("claimed", "verified", "verified", "rejected")),
        "eligible": True,
        "tta_seconds": tta,
        "cost_usd": tta / 3600 * 2.5 * gpus,
        "result": figures | times | interval | curve | rest | {"steps": [step] * (RUNS + 4)},
        "request_sha256": f"{number:064}",
        "submitted_at": utc_now(),
        "kind": "train",
    }


def _runs(row: dict[str, Any], random: Random) -> list[dict[str, Any]]:
    """The runs of a submission, with a curve of eight evaluations."""
    return [
        {
            "submission_id": row["id"],
            "index": index,
            "file": f"run_{index}.log",
            "log_sha256": "0" * 64,
            "log_bytes": 1000,
            "reached": True,
            "tta_seconds": row["tta_seconds"] * random.lognormvariate(0.0, 0.05),
            "curve": [[float(j), j * 1.0, 12.0 * j, 1152 * j] for j in range(1, 9)],
        }
        for index in range(RUNS)
    ]
