"""Verdicts of databases before pools: those that today's rules would measure get a pool."""

import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import JSON, Connection, DateTime, MetaData, text

from finishline.rules.benchmarks.benchmark import Benchmark, read_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.measured_time import measured_seconds
from finishline.rules.submissions.settings import Configuration

FEWEST_RUNS = 3
QUIET_CPU_SHARE = 0.8
ORGANISERS = ("organiser", "admin")
UNTIMED = {"hardware_differs", "worker_drifted", "noisy_host"}
VERDICTS = """
SELECT s.id AS submission_id, s.user_id, s.benchmark_id, s.benchmark_sha256, s.division, s.system,
  s.hyperparameters, v.id AS verification_id, v.report, v.reasons, v.ended_at, d.content,
  (SELECT t.user_id FROM attempts a JOIN tokens t ON t.id = a.claimed_by
   WHERE a.verification_id = v.id AND a.state = 'done') AS worker_user,
  (SELECT u.role FROM attempts a JOIN tokens t ON t.id = a.claimed_by JOIN users u
   ON u.id = t.user_id WHERE a.verification_id = v.id AND a.state = 'done') AS worker_role
FROM submissions s
JOIN verifications v ON v.submission_id = s.id AND v.kind = 'replay' AND v.outcome = 'verified'
JOIN decisions e ON e.verification_id = v.id AND e.decision = 'publish'
JOIN benchmark_definitions d ON d.sha256 = s.benchmark_sha256
WHERE s.status = 'verified' AND s.kind = 'train' AND s.division = 'closed'
  AND NOT s.archive AND (s.dawnbench IS NULL OR CAST(s.dawnbench AS TEXT) = 'null')
  AND v.report IS NOT NULL AND CAST(v.report AS TEXT) <> 'null'
  AND v.benchmark_sha256 = s.benchmark_sha256 AND s.pool_id IS NULL
ORDER BY v.ended_at, v.id
"""
JSON_COLUMNS = ("system", "hyperparameters", "report", "reasons")


def measure_earlier_verdicts(connection: Connection, tables: MetaData) -> None:
    """Open the pools of verified closed rows with the reference's settings.

    Such a row stays ranked if its stored report has three runs at the target, of a quiet worker of
    the same class that was not its submitter's own. It is from before tickets. Every other verified
    row says that its epochs agree.
    """
    types = dict.fromkeys(JSON_COLUMNS, JSON()) | {"ended_at": DateTime(timezone=True)}
    pools: defaultdict[str, list[Any]] = defaultdict(list)
    configurations: dict[str, Configuration] = {}
    for row in connection.execute(text(VERDICTS).columns(**types)).mappings().all():
        configuration = _configuration(row)
        if configuration is not None and _is_timed(row, configuration):
            pools[configuration.sha256].append(row)
            configurations[configuration.sha256] = configuration
    for key, rows in pools.items():
        _open(connection, tables, configurations[key], rows)


def _configuration(row: Any) -> Configuration | None:
    """The configuration that was trained; None where its definition cannot be read any more."""
    try:
        content = row["content"].encode()
        benchmark = read_benchmark(content, file=f"{row['benchmark_id']}.toml")
    except RuleError:
        return None
    settings = row["hyperparameters"]
    if not _is_reference(benchmark, settings):
        return None
    return Configuration(
        benchmark_id=row["benchmark_id"],
        division=row["division"],
        hardware_class=row["system"].get("hardware_class", ""),
        settings=benchmark.defaults() | settings,
    )


def _is_reference(benchmark: Benchmark, settings: dict[str, float]) -> bool:
    """Whether these are the reference's settings at a calibrated batch size."""
    defaults = benchmark.defaults()
    if any(
        name != "batch_size" and value != defaults.get(name) for name, value in settings.items()
    ):
        return False
    return bool(benchmark.reference_runs_at((defaults | settings).get("batch_size", 0.0)))


def _is_timed(row: Any, configuration: Configuration) -> bool:
    report = row["report"]
    if report["system"]["hardware_class"] != configuration.hardware_class or report.get("drift"):
        return False
    if any(reason["code"] in UNTIMED for reason in row["reasons"]):
        return False
    if row["worker_user"] is None:
        return False
    if row["worker_user"] == row["user_id"] and row["worker_role"] not in ORGANISERS:
        return False
    shares = [
        run["cpu_seconds"] / run["parent_seconds"]
        for run in report["runs"]
        if run.get("cpu_seconds") is not None and run.get("parent_seconds")
    ]
    quiet = report["system"]["accelerator_count"] or min(shares, default=1.0) >= QUIET_CPU_SHARE
    reached = [run for run in report["runs"] if run["tta_seconds"] is not None]
    return bool(quiet) and len(reached) >= FEWEST_RUNS


def _open(
    connection: Connection, tables: MetaData, configuration: Configuration, rows: Sequence[Any]
) -> None:
    pools, pool_runs, submissions, verifications = (
        tables.tables[name] for name in ("pools", "pool_runs", "submissions", "verifications")
    )
    pool_id = secrets.token_hex(8)[:15]
    runs = [run for row in rows for run in _runs(row, pool_id)]
    seconds = measured_seconds([run["seconds"] for run in runs])
    if seconds is None:
        return
    first, latest = rows[0], rows[-1]
    connection.execute(
        pools.insert().values(
            id=pool_id,
            benchmark_id=configuration.benchmark_id,
            benchmark_sha256=latest["benchmark_sha256"],
            division=configuration.division,
            hardware_class=configuration.hardware_class,
            configuration_sha256=configuration.sha256,
            settings=dict(configuration.settings),
            opened_at=first["ended_at"],
            measured_seconds=seconds,
            runs=len(runs),
            state="measured",
            measured_at=first["ended_at"],
            owners=0,
            by_organisers=False,
        )
    )
    connection.execute(pool_runs.insert(), runs)
    for row in rows:
        connection.execute(
            submissions.update()
            .where(submissions.c.id == row["submission_id"])
            .values(pool_id=pool_id, evidence="measured", check_word=None, trained_with="reference")
        )
        connection.execute(
            verifications.update()
            .where(verifications.c.id == row["verification_id"])
            .values(pool_id=pool_id)
        )


def _runs(row: Any, pool_id: str) -> Iterator[dict[str, Any]]:
    for run in row["report"]["runs"]:
        failure = run.get("failure")
        if run["status"] == "cancelled" or (
            failure and failure["kind"] in ("infrastructure", "rules")
        ):
            continue
        reached = run["tta_seconds"] is not None and run["evaluations"]
        yield {
            "verification_id": row["verification_id"],
            "index": run["index"],
            "pool_id": pool_id,
            "seed": run["seed"],
            "seconds": run["tta_seconds"],
            "epochs": run["evaluations"][-1]["epoch"] if reached else None,
            "fresh": False,
            "counted": True,
        }
