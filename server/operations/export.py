"""Export a server's public data, or everything but secrets, for others to study.

Secrets, and ways to reach a person, are left out. Every other column is exported. A test lists
them, so that somebody decides about a new one.
"""

import csv
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from datetime import date, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Select,
    Table,
    Text,
    case,
    cast,
    func,
    or_,
    select,
    type_coerce,
    union,
)

from finishline.rules.text import count_text
from server.base.database import Services, moment_text
from server.base.errors import ContentError
from server.base.models import (
    Attempt,
    Base,
    JobTraining,
    Pool,
    PublishedResult,
    RunRow,
    Submission,
    TrainingPackage,
    Verification,
)
from server.base.paging import csv_cell
from server.base.standing import OPEN
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import definition_text, files_of_added
from server.operations.copies import Content, Manifest, Progress, add_copy, moment_of

EXPORT_FORMAT = "finishline-export-2"
TABLES, BENCHMARKS = "tables", "benchmarks"
# A few hundred rows of curves and reports are megabytes. A Parquet group has as many.
ROWS_AT_ONCE = 500


def export(
    services: Services, root: Path, *, public: bool = False, **how: Any
) -> tuple[Path, Manifest]:
    """Add an export as `add_copy` does, of one moment. With `public` only public data."""
    return add_copy("export", partial(_fill, public), services, root, **how)


def _fill(public: bool, services: Services, folder: Path, say: Progress) -> Content:
    (folder / TABLES).mkdir()
    (folder / BENCHMARKS).mkdir()
    tables = {}
    with services.database.read_snapshot(ORGANISER) as read:
        connection = read.connection()
        fields = moment_of(connection)
        for name, query in select_export(public=public):
            tables[name] = write_table(connection, query, folder / TABLES / name)
            say(f"{name}, {count_text(tables[name], 'row')}")
        logs = list_logs(connection, public=public)
    with services.database.read() as session:
        for benchmark_id, benchmark in services.benchmarks.items():
            content = definition_text(session, benchmark)
            (folder / BENCHMARKS / f"{benchmark_id}.toml").write_bytes(content)
    kind, left_out = ("public", LEFT_OUT | NOT_PUBLIC) if public else ("everything", LEFT_OUT)
    fields |= {"format": EXPORT_FORMAT, "content": kind, "tables": tables}
    return fields | {"left_out": dict(left_out)}, logs


def write_table(connection: Connection, query: Select[Any], path: Path) -> int:
    """Write a query's rows by portions as CSV, and as Parquet with pyarrow. Counts them."""
    count = 0
    columns = {
        name: getattr(column.type, "impl_instance", column.type).python_type
        for name, column in query.selected_columns.items()
    }
    found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    with ExitStack() as stack:
        file = path.with_suffix(".csv").open("w", encoding="utf-8", newline="")
        target = csv.writer(stack.enter_context(file))
        target.writerow(columns)
        add = None
        if can_write_parquet():
            add = stack.enter_context(parquet_file(path.with_suffix(".parquet"), columns))
        for rows in found.partitions():
            try:
                target.writerows([_cell(value) for value in row] for row in rows)
            except UnicodeError as error:
                raise ContentError(f"{path.name}: a text that is not Unicode: {error}") from error
            if add is not None:
                add([row._asdict() for row in rows])
            count += len(rows)
    return count


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return moment_text(value)
    return value.isoformat() if isinstance(value, date) else csv_cell(value)


ARROW = {str: "string", int: "int64", float: "float64", bool: "bool_", date: "date32"}
Rows = list[dict[str, Any]]


def can_write_parquet() -> bool:
    """Check whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


@contextmanager
def parquet_file(target: Any, columns: Mapping[str, Any]) -> Iterator[Callable[[Rows], None]]:
    """Open a Parquet file. Each call adds a group of rows. `columns` has Python's types."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema([(name, _arrow_type(kind)) for name, kind in columns.items()])
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        yield lambda rows: writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema=schema))


def types_of(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Map a model's fields to their types."""
    return {name: field.annotation for name, field in fields.items()}


def _arrow_type(annotation: Any) -> Any:
    """Convert a field's annotation. Every field may be absent."""
    import pyarrow

    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        (inner,) = (item for item in get_args(annotation) if item is not type(None))
        return _arrow_type(inner)
    if origin in (list, tuple):
        return pyarrow.list_(_arrow_type(get_args(annotation)[0]))
    if origin is dict:
        return pyarrow.map_(*map(_arrow_type, get_args(annotation)))
    if origin is Literal:
        return _arrow_type(type(get_args(annotation)[0]))
    if annotation is datetime:
        return pyarrow.timestamp("us", tz="UTC")
    if is_dataclass(annotation) or issubclass(annotation, BaseModel):
        is_model = issubclass(annotation, BaseModel)
        fields = types_of(annotation.model_fields) if is_model else get_type_hints(annotation)
        return pyarrow.struct([(name, _arrow_type(kind)) for name, kind in fields.items()])
    return getattr(pyarrow, ARROW[annotation])()


# Tables and columns that stay on the server, by reason.
STAYING = {
    "reaches a person": ("users.email",),
    "reaches a person, and has a secret of one server": ("receivers",),
    "a secret of its owner and of one server": (
        "users.issuer", "users.subject", "users.session_number", "tokens", "invitations",
        "attempts.token_sha256",
    ),
    "names a token, and tokens are left out": ("attempts.claimed_by",),
    "the state of one server, without measurements": (
        "users.quota", "attempts.sent_to", "attempts.lease_expires_at", "workers.polls",
        "workers.held", "workers.held_at", "workers.held_by", "workers.held_because", "pauses",
        "outbox",
    ),
    "belongs to the accounts of one server": ("attempts.accelerators",),
    "an account between a submitter and one server": ("verifications.gpu_seconds_reserved",),
    "a word between a submitter and one server": ("submissions.idempotency_key",),
    "saves the servers of one database reading boards whole": ("board_changes",),
    "the table of submissions has its columns": ("published_results",),
}  # fmt: skip
LEFT_OUT = {name: reason for reason, names in STAYING.items() for name in names}
NOT_PUBLIC = {
    "audit_log": "organisers alone read it; everybody may read its head, which the manifest has",
}


def list_logs(connection: Connection, *, public: bool = False) -> list[str]:
    """List the hashes of all files named by rows, once each, in order."""
    claims, runs = select(Submission.claim_sha256), select(RunRow.log_sha256)
    if public:
        shown = Submission.embargoed.is_(False)
        claims = claims.where(shown)
        runs = runs.where(RunRow.submission_id.in_(select(Submission.id).where(shown)))
    named = connection.scalars(union(claims, runs)).all()
    return sorted({*named, *files_of_added(connection)})


def select_export(*, public: bool) -> Iterator[tuple[str, Select[Any]]]:
    """Yield each exported table with its query. An open verification's draw stays sealed."""
    roots = _public_roots() if public else {}
    sources = {**_sealed(), "submissions": _published()}
    for table in Base.metadata.sorted_tables:
        if table.name in LEFT_OUT or (public and table.name in NOT_PUBLIC):
            continue
        own = sources.get(table.name, {})
        every = dict.fromkeys((*table.columns.keys(), *own))
        names = [name for name in every if f"{table.name}.{name}" not in LEFT_OUT]
        query = select(*(_source(table, name, own).label(name) for name in names))
        query = query.where(*visible(table, roots)).order_by(*table.primary_key.columns)
        yield table.name, query


def _source(table: Table, name: str, own: Mapping[str, ColumnElement[Any]]) -> ColumnElement[Any]:
    source = own[name] if name in own else table.columns[name]
    if isinstance(table.columns.get(name, source).type, JSON):
        # The text as it is kept: reading and writing it could change a number's last digit.
        return type_coerce(cast(source, Text), Text)
    return source


def _public_roots() -> dict[str, ColumnElement[bool]]:
    """Hide embargoed submissions, and the pools that no other has."""
    shown = Submission.embargoed.is_(False)
    named = select(Submission.pool_id).where(shown, Submission.pool_id.is_not(None))
    return {"submissions": shown, "pools": Pool.id.in_(named)}


def visible(table: Table, roots: Mapping[str, ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    """Make the conditions of rows without a hidden parent, by the foreign keys."""
    conditions = [roots[table.name]] if table.name in roots else []
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        parent = key.column.table
        above = [] if parent is table else visible(parent, roots)
        if above:
            known = select(key.column).where(*above)
            conditions.append(or_(key.parent.is_(None), key.parent.in_(known)))
    return conditions


def _sealed() -> dict[str, dict[str, ColumnElement[Any]]]:
    """Hide draws of open verifications, and sources with outputs that may tell them."""
    packages = TrainingPackage.__table__.columns
    secret = select(packages["submission_id"]).where(packages["published_at"].is_(None))
    verifications, training = Verification.__table__.columns, JobTraining.__table__.columns
    ended = verifications["state"].not_in(OPEN)
    of_ended = training["verification_id"].in_(select(verifications["id"]).where(ended))
    sides = (verifications["submission_id"], verifications["against_id"])
    tells = or_(*(side.in_(secret) for side in sides))
    telling = select(verifications["id"]).where(tells)
    attempts = Attempt.__table__.columns
    return {
        "verifications": {
            "nonce": case((ended, verifications["nonce"])),
            "report": case((tells, "null"), else_=cast(verifications["report"], Text)),
        },
        "attempts": {
            "log_tail": case((attempts["verification_id"].not_in(telling), attempts["log_tail"]))
        },
        "job_trainings": {
            "seed": case((of_ended, training["seed"])),
            "data_nonce": case((of_ended, training["data_nonce"])),
            "settings": case((of_ended, cast(training["settings"], Text))),
        },
        "trainings": {
            name: case(
                (packages["published_at"].is_not(None), cast(packages[name], Text)), else_="{}"
            )
            for name in ("files", "manifest")
        },
    }


def _published() -> dict[str, ColumnElement[Any]]:
    def of_submission(column: ColumnElement[Any]) -> ColumnElement[Any]:
        which = PublishedResult.submission_id == Submission.id
        return select(column).where(which).scalar_subquery()

    source = func.coalesce(of_submission(cast(PublishedResult.source, Text)), "null")
    return {
        "archive": Submission.evidence == "published",
        "organisation": of_submission(PublishedResult.organisation.expression),
        "submitted_on": of_submission(PublishedResult.published_on.expression),
        "source": type_coerce(source, JSON),
    }
