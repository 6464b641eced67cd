"""Which rows and columns of the database go into an export or a backup, as SQL."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Dialect,
    Select,
    String,
    Table,
    Text,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    type_coerce,
)

from server.exports.cells import Kind, kind_of
from server.exports.decisions import DECISIONS, Included, LeftOut
from server.exports.publication import hidden_submissions
from server.models import Attempt, Base, Pool, Submission, Verification
from server.verifications.queries import OPEN

# What is true only here and may not be carried on elsewhere, by table and column.
Overrides = Mapping[str, Mapping[str, ColumnElement[Any]]]


@dataclass(frozen=True)
class Field:
    """A column of an export: its name, the kind of its values, and where they come from."""

    name: str
    kind: Kind
    source: ColumnElement[Any]


@dataclass(frozen=True)
class Selected:
    """A table with the columns that are written, and the rows."""

    name: str
    fields: tuple[Field, ...]
    rows: Select[Any]
    left_out: Mapping[str, str]


def select_export(dialect: Dialect, *, public: bool) -> Iterator[Selected]:
    """What is decided to leave the server; with `public` what everybody may know.

    A verification that has not ended is sealed: its draw is not in an export. Its attempts under
    way are as cancelled ones, so that no other server sends them to a worker.
    """
    overrides = _sealed(dialect)
    for table in Base.metadata.sorted_tables:
        decision = DECISIONS[table.name]
        if isinstance(decision, LeftOut) or (public and decision.not_public):
            continue
        yield _selected(table, decision, overrides.get(table.name, {}), public=public)


def select_backup(*, without: tuple[str, ...]) -> Iterator[Selected]:
    """Every column of every table but those named."""
    for table in Base.metadata.sorted_tables:
        if table.name not in without:
            everything = Included(tuple(column.name for column in table.columns))
            yield _selected(table, everything, {}, public=False)


def tables_left_out(*, public: bool) -> dict[str, str]:
    """The tables that an export has not, each with the reason."""
    found = {}
    for name, decision in DECISIONS.items():
        if isinstance(decision, LeftOut):
            found[name] = decision.because
        elif public and decision.not_public:
            found[name] = decision.not_public
    return found


def _selected(
    table: Table, decision: Included, own: Mapping[str, ColumnElement[Any]], *, public: bool
) -> Selected:
    fields = tuple(_field(table.columns[name], own.get(name)) for name in decision.columns)
    query = select(*(each.source.label(each.name) for each in fields))
    query = query.order_by(*table.primary_key.columns)
    if public:
        query = query.where(*visible(table, _public_roots()))
    return Selected(table.name, fields, query, decision.left_out)


def _public_roots() -> dict[str, ColumnElement[bool]]:
    """Hide embargoed submissions, and the pools that no other submission has."""
    shown = ~hidden_submissions()
    named = select(Submission.pool_id).where(shown, Submission.pool_id.is_not(None))
    return {"submissions": shown, "pools": Pool.id.in_(named)}


def _field(column: Column[Any], own: ColumnElement[Any] | None) -> Field:
    kind = kind_of(column.type)
    source: ColumnElement[Any] = column if own is None else own
    if kind == "json":
        # The text as it is kept: reading and writing it could change a number's last digit, and
        # would make one of JSON's null and an absent value.
        source = type_coerce(cast(source, Text), Text)
    return Field(column.name, kind, source)


def visible(table: Table, roots: Mapping[str, ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    """The conditions of a table's rows that hang on no hidden row, by the foreign keys."""
    conditions = [roots[table.name]] if table.name in roots else []
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        parent = key.column.table
        above = [] if parent is table else visible(parent, roots)
        if above:
            known = select(key.column).where(*above)
            conditions.append(or_(key.parent.is_(None), key.parent.in_(known)))
    return conditions


def _sealed(dialect: Dialect) -> Overrides:
    verifications = Verification.__table__.columns
    is_open = verifications["state"].in_(OPEN)
    state = Attempt.__table__.columns["state"]

    def unless_open(name: str, other: ColumnElement[Any]) -> ColumnElement[Any]:
        column = verifications[name]
        kept = cast(column, Text) if isinstance(column.type, JSON) else column
        return case((is_open, other), else_=kept)

    return {
        "verifications": {
            "nonce": unless_open("nonce", literal("", String)),
            "seeds": unless_open("seeds", _zeros(dialect, verifications["seeds"])),
            "hyperparameters": unless_open("hyperparameters", literal(None, Text)),
        },
        "attempts": {"state": case((state.in_(OPEN), literal("cancelled", String)), else_=state)},
    }


def _zeros(dialect: Dialect, seeds: ColumnElement[Any]) -> ColumnElement[Any]:
    """A JSON list of as many zeros as there are seeds: how many runs are planned is no secret."""
    sqlite = dialect.name == "sqlite"
    count = func.json_array_length(type_coerce(seeds, Text) if sqlite else seeds)
    if sqlite:
        zeros = func.replace(func.hex(func.zeroblob(count)), "00", ",0")
    else:
        zeros = func.repeat(",0", count)
    return literal("[", Text) + func.substr(zeros, 2) + literal("]", Text)
