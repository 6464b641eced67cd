"""About every table and every column something is decided, and nothing secret leaves."""

import pytest
from sqlalchemy import Table

from server.models import Base
from server.operations.selection import DECISIONS, Included, LeftOut
from server.operations.table_files import kind_of

TABLES = {table.name: table for table in Base.metadata.sorted_tables}
SECRET_WORDS = ("token", "secret", "password", "email", "e_mail", "session", "claimed_by")


def test_every_table_has_a_decision_and_no_other_has() -> None:
    assert sorted(DECISIONS) == sorted(TABLES), (
        "decide in server/operations/selection.py whether a table belongs in an export"
    )


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_column_has_a_decision(table: Table) -> None:
    decision = DECISIONS.get(table.name)
    if not isinstance(decision, Included):
        assert isinstance(decision, LeftOut)
        assert len(decision.because) > 20
        return
    decided = [*decision.columns, *decision.left_out]
    assert sorted(set(decided) - decision.joined) == sorted(table.columns.keys()), (
        f"decide in server/operations/selection.py about each column of {table.name}"
    )
    for name in set(decision.columns) - decision.joined:
        kind_of(table.columns[name].type)
        assert not any(word in name for word in SECRET_WORDS), f"{table.name}.{name} is a secret"
