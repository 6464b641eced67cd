"""The power fails after a submission was acknowledged: its files go to their places later."""

import errno
import hashlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

import server.app
from server.app import create_app
from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.base.settings import Settings


def start_and_stop(settings: Settings) -> None:
    """A server that nobody asks anything."""
    with TestClient(create_app(settings, dispatch=False)):
        pass


@pytest.fixture
def acknowledged(
    digits_submission: Any, submit: Callable[..., Any], settings: Any
) -> dict[str, bytes]:
    """The files of a stored submission by their hashes; the disk did not write that they moved."""
    assert submit(digits_submission).status_code == 201
    folder = settings.artifacts_dir
    kept = {path.name: path for path in folder.glob("??/*")}
    contents = {sha256: path.read_bytes() for sha256, path in kept.items()}
    for number, path in enumerate(kept.values()):
        path.rename(folder / "incoming" / f"{number:032x}")
    for shard in folder.glob("??"):
        shard.rmdir()
    return contents


def test_what_a_submission_names_is_in_its_place_once_a_server_starts(
    acknowledged: dict[str, bytes],
    settings: Any,
    stored_files: Callable[[], list[str]],
    alice: Any,
) -> None:
    incoming = settings.artifacts_dir / "incoming"
    log = next(content for content in acknowledged.values() if b":::MLLOG" in content)
    strangers = {"cut": log[:-1], "refused": b"a log that no row names"}
    for name, content in strangers.items():
        (incoming / name).write_bytes(content)
    with TestClient(create_app(settings, dispatch=False)) as client:
        submission_id = client.get("/api/v1/submissions").json()["submissions"][0]["id"]
        address = f"/api/v1/submissions/{submission_id}/runs/0/log"
        answer = client.get(address, headers=alice.headers)

    assert hashlib.sha256(answer.content).hexdigest() in acknowledged
    places = {f"{sha256[:2]}/{sha256}" for sha256 in acknowledged}
    assert set(stored_files()) == places | {f"incoming/{name}" for name in strangers}


def test_what_is_in_its_place_is_left_there(
    acknowledged: dict[str, bytes], settings: Any, stored_files: Callable[[], list[str]]
) -> None:
    """Another request may be sending the same at this moment."""
    start_and_stop(settings)
    before = stored_files()
    sha256 = next(iter(acknowledged))
    again = settings.artifacts_dir / "incoming" / "again"
    shutil.copyfile(settings.artifacts_dir / sha256[:2] / sha256, again)
    start_and_stop(settings)

    assert stored_files() == sorted([*before, "incoming/again"])


@pytest.mark.usefixtures("acknowledged")
def test_a_start_that_fails_leaves_no_connection_open(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Database] = []

    def open_database(*arguments: Any, **options: Any) -> Database:
        opened.append(Database(*arguments, **options))
        return opened[-1]

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(server.app, "Database", open_database)
    monkeypatch.setattr(ArtifactStore, "move_in", broken)

    with pytest.raises(OSError, match="a broken disk"):
        create_app(settings, dispatch=False)
    [database] = opened
    assert database.engine.pool.checkedin() == 0  # type: ignore[attr-defined]
