"""Write the tables of the first migration from the models: `make migration` runs this."""

import subprocess
import sys
from pathlib import Path

from sqlalchemy import ForeignKeyConstraint, Index, PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import conv

from server.base.models import Base
from server.base.schema import FIRST_MIGRATION

MARK = "# `make migration` writes the rest from the models.\n"
ROOT = Path(__file__).parents[2]
DIALECTS = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}


def written_anew():
    """The file as the models want it: its head stays, the tables after the mark are new."""
    head = FIRST_MIGRATION.read_text().partition(MARK)[0]
    text = head + MARK + "".join(map(table_text, Base.metadata.sorted_tables))
    command = (sys.executable, "-m", "ruff", "format", "--stdin-filename", FIRST_MIGRATION, "-")
    return subprocess.run(
        command, cwd=ROOT, input=text, capture_output=True, text=True, check=True
    ).stdout


def table_text(table):
    """A call of `table`, with a line for each column, constraint and index."""
    kinds = UniqueConstraint | PrimaryKeyConstraint | ForeignKeyConstraint
    assert all(isinstance(each, kinds) for each in table.constraints), table
    unique = {each for each in table.constraints if isinstance(each, UniqueConstraint)}
    single = {each for each in unique | table.indexes if is_of_one_column(each)}
    parts = [column_text(column, single) for column in table.columns]
    parts += sorted(f"UniqueConstraint({names_text(each.columns)})" for each in unique - single)
    parts += sorted(index_text(each) for each in table.indexes - single)
    return f"table({text_of(table.name)}, " + "".join(f"{part},\n" for part in parts) + ")\n"


def is_of_one_column(each):
    """Whether `index` or `unique` of its column says all there is to it."""
    return len(each.columns) == 1 and isinstance(each.name, conv) and not each.dialect_kwargs


def column_text(column, single):
    """A call of `Column`; a foreign key has its type from the other table."""
    keys = [f"ForeignKey({text_of(key.target_fullname)})" for key in column.foreign_keys]
    parts = [text_of(column.name), *(keys or [type_text(column.type)])]
    if column.primary_key:
        parts.append("primary_key=True")
        parts += ["autoincrement=False"] if column.autoincrement is False else []
    elif not column.nullable:
        parts.append("nullable=False")
    if column.server_default is not None:
        parts.append(f"server_default={text_of(column.server_default.arg)}")
    own = [type(each) for each in single if column.name in each.columns]
    parts += ["unique=True"] * (UniqueConstraint in own) + ["index=True"] * (Index in own)
    return f"Column({', '.join(parts)})"


def type_text(kind):
    """A type as the database keeps it."""
    impl = getattr(kind, "impl", kind)  # Of ours, what it is made of.
    length, timezone = getattr(impl, "length", None), getattr(impl, "timezone", False)
    options = "timezone=True" if timezone else str(length or "")
    return f"sa.{type(impl).__name__}({options})"


def index_text(index):
    """A call of `Index`; without a name if it has the one that the convention gives."""
    name = "None" if isinstance(index.name, conv) else text_of(index.name)
    parts = [name, names_text(index.columns)]
    assert not index.unique
    for dialect, options in index.dialect_options.items():
        if (where := options.get("where")) is not None:
            told = where.compile(dialect=DIALECTS[dialect], compile_kwargs={"literal_binds": True})
            name = text_of(str(told).removeprefix(f"{index.table.name}."))
            parts.append(f"{dialect}_where=sa.text({name})")
    return f"Index({', '.join(parts)})"


def names_text(columns):
    """Names of columns as arguments, with many of them on a line."""
    names = [text_of(column.name) for column in columns]
    if len(names) <= 4:
        return ", ".join(names)
    return ", ".join(f"*[{', '.join(names[at : at + 6])}]" for at in range(0, len(names), 6))


def text_of(value):
    """A text as Python has it, in the quotes of ruff's."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    FIRST_MIGRATION.write_text(written_anew())
