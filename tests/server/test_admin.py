"""What `python -m server.admin` says where its database is not as it should be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.base.settings import Settings
from tests.server.conftest import SubmissionParts
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


@pytest.mark.parametrize("name", ["all", "all.tar"])
def test_an_export_is_its_owners_alone(
    name: str,
    submit: Callable[..., Any],
    digits_submission: SubmissionParts,
    settings: Settings,
    tmp_path: Path,
) -> None:
    """Logs under an embargo are in it."""
    assert submit(digits_submission).status_code == 201
    environment = {
        "FINISHLINE_DATABASE_URL": settings.database_url,
        "FINISHLINE_ARTIFACTS_DIR": str(settings.artifacts_dir),
    }
    path = tmp_path / "exports" / name
    assert run_admin(environment, "export", str(path)).code == 0
    made = [path.parent, path, *path.rglob("*")]
    assert {each for each in made if each.stat().st_mode & 0o077} == set()


def test_a_folder_of_logs_is_its_owners_alone_also_one_that_was_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    ArtifactStore(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
