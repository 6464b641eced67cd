"""What `python -m server.admin` says where its database is not as it should be."""

import sys

import pytest

from server.admin import main
from server.database import Database
from server.settings import get_settings


def test_a_database_that_cannot_be_written_is_told_in_one_line(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not database.is_sqlite:
        pytest.skip("a file that is opened for reading alone is SQLite's")
    url = f"sqlite:///file:{database.url.database}?mode=ro&uri=true"
    monkeypatch.setenv("FINISHLINE_DATABASE_URL", url)
    monkeypatch.setattr(sys, "argv", ["admin", "token", "--user", "ada", "--role", "admin"])
    get_settings.cache_clear()

    code = main()

    get_settings.cache_clear()
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert "attempt to write a readonly database" in line
    assert str(database.url.database) in line
