"""What `python -m server.admin` says where its database is not as it should be."""

import pytest

from server.database import Database
from tests.support.admin import run_admin


def test_a_database_that_cannot_be_written_is_told_in_one_line(database: Database) -> None:
    if not database.is_sqlite:
        pytest.skip("a file that is opened for reading alone is SQLite's")
    url = f"sqlite:///file:{database.url.database}?mode=ro&uri=true"
    said = run_admin({"FINISHLINE_DATABASE_URL": url}, "token", "--user", "ada", "--role", "admin")

    (line,) = said.err.splitlines()
    assert said.code == 1
    assert "attempt to write a readonly database" in line
    assert str(database.url.database) in line
