"""The revisions a server asks for at its start are those that Alembic tells."""

from pathlib import Path

import pytest
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from server.base.database import Database
from server.base.revision import current_revision, newest_revision, require_current_schema
from server.base.schema import alembic_config


def by_alembic(database: Database) -> tuple[str | None, str | None]:
    """The newest revision, and that of a database."""
    newest = ScriptDirectory.from_config(alembic_config(database)).get_current_head()
    with database.engine.connect() as connection:
        return newest, MigrationContext.configure(connection).get_current_revision()


def migration(folder: Path, name: str, revision: str, after: str | None) -> None:
    """A file with nothing in it but its place."""
    folder.joinpath("versions").mkdir(exist_ok=True)
    text = f"revision: str = {revision!r}\ndown_revision: str | None = {after!r}\n"
    folder.joinpath("versions", name).write_text(text)


def test_a_migrated_database_is_at_the_newest_revision(database: Database) -> None:
    assert (newest_revision(), current_revision(database)) == by_alembic(database)
    assert require_current_schema(database) == newest_revision()


def test_an_empty_database_is_at_none_and_is_not_served() -> None:
    empty = Database("sqlite://")
    assert current_revision(empty) is by_alembic(empty)[1] is None
    with pytest.raises(RuntimeError, match=r"\(empty\).*server.admin migrate"):
        require_current_schema(empty)
    empty.close()


def test_a_file_that_is_not_there_is_named_and_not_made_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "mistyped.db"
    nowhere = Database(f"sqlite:///{path}")
    with pytest.raises(RuntimeError, match=r"no file.*FINISHLINE_DATABASE_URL.*mistyped\.db"):
        require_current_schema(nowhere)
    nowhere.close()
    assert not path.exists()


def test_a_database_that_does_not_answer_is_told_in_one_line_without_its_password() -> None:
    away = Database("postgresql+psycopg://ada:secret@127.0.0.1:1/results")
    with pytest.raises(RuntimeError, match=r"FINISHLINE_DATABASE_URL.*ada:\*\*\*.*refused") as told:
        require_current_schema(away)
    away.close()
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)


def test_the_newest_revision_is_the_one_nothing_comes_after_whatever_the_files_are_called(
    tmp_path: Path,
) -> None:
    migration(tmp_path, "a_last.py", "0003", "0002")
    migration(tmp_path, "b_first.py", "0001", None)
    migration(tmp_path, "c_middle.py", "0002", "0001")
    assert newest_revision(tmp_path) == "0003"

    migration(tmp_path, "d_beside.py", "0004", "0002")
    with pytest.raises(RuntimeError, match="one newest migration, it has: 0003, 0004"):
        newest_revision(tmp_path)


def test_no_migration_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="it has: none"):
        newest_revision(tmp_path)
