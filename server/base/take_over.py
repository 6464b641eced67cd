"""Take over a database of an earlier tree: bring it to the tables of the first migration.

The first migration replaces 45. A database at one of the later of these gets the tables and columns
that it lacks. Then its rows are moved as those migrations did, each by its number. Columns that the
first migration does not have go last.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import JSON, Boolean, Column, Connection, MetaData, Table, false, inspect, text

from finishline.rules.errors import RuleError
from finishline.rules.text import parse_toml
from finishline.rules.verification.control_points import opening_of
from server.base.earlier_verdicts import measure_earlier_verdicts

OLDEST, FIRST = 25, 47
# The last commit that has every earlier migration.
ALL_MIGRATIONS = "cc1ca94"
ROWS_AT_ONCE = 500

EVIDENCE = """
UPDATE submissions SET evidence = CASE WHEN archive THEN 'published' ELSE 'claimed' END,
  check_word = CASE WHEN archive THEN NULL WHEN status = 'verifying' THEN 'queued'
    WHEN status = 'verified' THEN 'epochs_agree' WHEN status = 'inconclusive' THEN 'undecided'
    WHEN status = 'rejected' THEN 'contradicted' ELSE 'none' END
"""
# An attempt was sent to a hardware class, and is sent to a worker since.
UNSENT = "UPDATE attempts SET sent_to = NULL, sends = 0 WHERE state = 'queued'"
REPORTS = """
SELECT v.id, v.report, d.benchmark_id FROM verifications v
JOIN benchmark_definitions d ON d.sha256 = v.benchmark_sha256 WHERE v.id > :last
ORDER BY v.id LIMIT :most
"""
# 0 stands for the organisers: all their workers count as one owner's.
OWNERS = """
SELECT pool_id, count(DISTINCT owner) AS owners, min(owner) AS least FROM (
  SELECT r.pool_id, CASE WHEN u.role IN ('organiser', 'admin')
    OR (w.confirmed_at IS NOT NULL AND w.confirmed_by IS NULL) THEN 0 ELSE u.id END AS owner
  FROM pool_runs r
  JOIN verifications v ON v.id = r.verification_id
    OR (v.checks_id = r.verification_id AND v.outcome = 'verified')
  JOIN attempts a ON a.verification_id = v.id AND a.state = 'done'
  LEFT JOIN workers w ON w.name = a.worker
  LEFT JOIN tokens t ON t.id = a.claimed_by
  JOIN users u ON u.id = COALESCE(w.user_id, t.user_id)
  WHERE r.counted) AS found
GROUP BY pool_id
"""
ATTEMPTS = """
UPDATE pool_runs SET attempt_id = (SELECT a.id FROM attempts a
  WHERE a.verification_id = pool_runs.verification_id AND a.state = 'done'
  ORDER BY a.number DESC LIMIT 1)
"""
DRAWN = """
SELECT v.id, v.kind, v.seeds, v.hyperparameters AS own, v.benchmark_sha256,
  s.hyperparameters AS claimed
FROM verifications v LEFT JOIN submissions s ON s.id = v.submission_id
"""
RUNS = """
UPDATE verifications SET runs =
  (SELECT count(*) FROM job_trainings t WHERE t.verification_id = verifications.id)
"""
PUBLISHED = """
INSERT INTO published_results (submission_id, organisation, published_on, source)
SELECT id, organisation, submitted_on, {source} FROM submissions WHERE archive
"""
MEASURES = {
    "replay": ["tta", "profile"],
    "cross_check": ["tta", "profile"],
    "latency": ["tta", "latency", "profile"],
}


def take_over(connection: Connection, tables: MetaData, known: Iterable[str]) -> None:
    """Bring an earlier database to the first migration's tables; leave any other as it is.

    `known` are the revisions that Alembic has. Raises RuntimeError if the database is at none of
    these and too old or too new to be taken over.
    """
    if not inspect(connection).has_table("alembic_version"):
        return
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if found is None or found in known:
        return
    number = number_of(found)
    _add_missing(connection, tables)
    for revision, move in MOVES:
        if revision > number:
            move(connection, tables)
    _drop_surplus(connection, tables)
    connection.execute(text(f"UPDATE alembic_version SET version_num = '{FIRST:04}'"))  # noqa: S608


def number_of(found: str) -> int:
    """The number of a revision from which a database is taken over. Raises RuntimeError."""
    number = int(found) if found.isdigit() else FIRST
    if number >= FIRST:
        raise RuntimeError(
            f"The database is at revision {found}, which this Finishline does not know: a newer "
            "one made it. Use that one, or restore the backup from before its migration."
        )
    if number < OLDEST:
        raise RuntimeError(
            f"The database is at revision {found}; this Finishline takes over databases from "
            f"revision {OLDEST:04} on. Run 'python -m server.admin migrate' of its commit "
            f"{ALL_MIGRATIONS} first, the last one that has every earlier migration."
        )
    return number


def _add_missing(connection: Connection, tables: MetaData) -> None:
    """Add tables and columns. SQLite builds a table anew that gets a foreign key."""
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    tables.create_all(connection)
    operations = _operations(connection)
    for table in tables.sorted_tables:
        if table.name not in present:
            continue
        names = {column["name"] for column in inspector.get_columns(table.name)}
        missing = [column for column in table.columns if column.name not in names]
        if missing:
            _add_columns(operations, table, missing)


def _add_columns(operations: Operations, table: Table, missing: list[Column[Any]]) -> None:
    """Add columns and their foreign keys. Rows that are there get 0 where there is no default."""
    filled = [each.name for each in missing if not each.nullable and each.server_default is None]
    with operations.batch_alter_table(table.name) as batch:
        for each in missing:
            default: Any = each.server_default.arg if each.server_default is not None else None  # type: ignore[attr-defined]
            if each.name in filled:
                default = false() if isinstance(each.type, Boolean) else "0"
            column = Column(each.name, each.type, nullable=each.nullable, server_default=default)
            batch.add_column(column)
            for key in each.foreign_keys:
                other = key.column.table.name
                name = f"fk_{table.name}_{each.name}_{other}"
                batch.create_foreign_key(batch.f(name), other, [each.name], [key.column.name])
    with operations.batch_alter_table(table.name) as batch:
        for name in filled:
            batch.alter_column(name, server_default=None)


def _drop_surplus(connection: Connection, tables: MetaData) -> None:
    """Drop columns and indexes that the first migration does not have, and add its indexes."""
    inspector = inspect(connection)
    operations = _operations(connection)
    for table in tables.sorted_tables:
        found = {column["name"] for column in inspector.get_columns(table.name)}
        surplus = found - set(table.columns.keys())
        wanted = {str(index.name): index.columns.keys() for index in table.indexes}
        kept = set()
        for index in inspector.get_indexes(table.name):
            name, columns = str(index["name"]), index["column_names"]
            if surplus.intersection(columns) or wanted.get(name, columns) != columns:
                operations.drop_index(name, table.name)
            else:
                kept.add(name)
        for column in sorted(surplus):
            operations.drop_column(table.name, column)
        for made in table.indexes:
            if made.name not in kept:
                made.create(connection)


def _operations(connection: Connection) -> Operations:
    return Operations(MigrationContext.configure(connection))


def _move_evidence(connection: Connection, _tables: MetaData) -> None:
    connection.execute(text(EVIDENCE))


def _unsend(connection: Connection, _tables: MetaData) -> None:
    connection.execute(text(UNSENT))


def _add_openings(connection: Connection, tables: MetaData) -> None:
    """The replays that are stored are known curves as well."""
    query, last = text(REPORTS).columns(report=JSON()), ""
    while rows := connection.execute(query, {"last": last, "most": ROWS_AT_ONCE}).all():
        last = rows[-1].id
        found = (
            {
                "verification_id": row.id,
                "run": run["index"],
                "benchmark_id": row.benchmark_id,
                "seed": run["seed"],
                "opening": opening_of([item["quality"] for item in run["evaluations"]]),
            }
            for row in rows
            for run in (row.report or {"runs": []})["runs"]
        )
        _insert(connection, tables.tables["replay_openings"],
                (each for each in found if each["opening"] is not None))  # fmt: skip


def _forbid_tokens(connection: Connection, tables: MetaData) -> None:
    """A worker's token makes no other token."""
    tokens = tables.tables["tokens"]
    for row in connection.execute(tokens.select().where(tokens.c.role == "worker")).all():
        scopes = [scope for scope in row.scopes if scope != "tokens"]
        connection.execute(tokens.update().where(tokens.c.id == row.id).values(scopes=scopes))


def _count_owners(connection: Connection, tables: MetaData) -> None:
    """Measured pools count the owners of the workers behind them."""
    pools = tables.tables["pools"]
    for row in connection.execute(text(OWNERS)).all():
        attested = {"attested_at": pools.c.measured_at} if not row.least or row.owners > 1 else {}
        values = {"owners": row.owners, "by_organisers": row.least == 0, **attested}
        connection.execute(pools.update().where(pools.c.id == row.pool_id).values(**values))


def _name_attempts(connection: Connection, _tables: MetaData) -> None:
    connection.execute(text(ATTEMPTS))


def _add_trainings(connection: Connection, tables: MetaData) -> None:
    """Every run that was sealed becomes a row, in the place of two lists."""
    definitions = connection.execute(text("SELECT sha256, content FROM benchmark_definitions"))
    packages = {row.sha256: _reference_in(row.content) for row in definitions}
    query = text(DRAWN).columns(seeds=JSON(), own=JSON(), claimed=JSON())
    found = (
        {
            "verification_id": row.id,
            "index": index,
            "package": packages.get(row.benchmark_sha256, ""),
            "settings": row.own[index] if row.own else row.claimed or {},
            "seed": seed,
            "data_nonce": None,
            "stop_at": "end" if row.kind == "calibration" else "target",
            "measure": MEASURES.get(row.kind, ["tta"]),
        }
        for row in connection.execute(query).all()
        for index, seed in enumerate(row.seeds or [])
    )
    _insert(connection, tables.tables["job_trainings"], found)
    connection.execute(text(RUNS))


def _reference_in(content: str) -> str:
    try:
        definition = parse_toml(content.encode(), file="definition")
        return str(definition.get("replay", {}).get("reference", ""))
    except RuleError:
        return ""


def _publish(connection: Connection, _tables: MetaData) -> None:
    """Results of archives have a table of their own; the earliest know no source."""
    found = {column["name"] for column in inspect(connection).get_columns("submissions")}
    source = "source" if "source" in found else "NULL"
    connection.execute(text(PUBLISHED.format(source=source)))


def _insert(connection: Connection, table: Table, rows: Iterator[dict[str, Any]]) -> None:
    while some := list(islice(rows, ROWS_AT_ONCE)):
        connection.execute(table.insert(), some)


MOVES: tuple[tuple[int, Callable[[Connection, MetaData], None]], ...] = (
    (28, _move_evidence),
    (29, _unsend),
    (32, _add_openings),
    (33, _forbid_tokens),
    (38, measure_earlier_verdicts),
    (41, _count_owners),
    (43, _name_attempts),
    (45, _add_trainings),
    (46, _publish),
)
