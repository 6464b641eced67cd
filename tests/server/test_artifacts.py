"""The store of raw logs: what is kept outlasts a loss of power, what is discarded is gone."""

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from server.base.artifacts import HELD_BYTES, ArtifactStore
from server.base.database import Database
from server.operations.copies import copy_logs, size_in

Written = list[tuple[str, int]]


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """What is written to the disk and moved, in order: (what, number of the file)."""
    steps: Written = []
    sync, replace = os.fsync, Path.replace

    def note_sync(number: int) -> None:
        sync(number)
        steps.append(("synced", os.fstat(number).st_ino))

    def note_move(path: Path, target: Path) -> Path:
        steps.append(("moved", path.stat().st_ino))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_move)
    return steps


def number_of(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_is_on_the_disk_where_it_waits_before_it_moves(
    store: ArtifactStore, written: Written
) -> None:
    staged = [store.stage_bytes(content) for content in (b"one", b"two")]
    assert written == []
    to_keep = store.settle(staged)
    settled = list(written)
    store.keep(to_keep)

    finals = [store.path_of(each.sha256) for each in staged]
    assert [path.read_bytes() for path in finals] == [b"one", b"two"]
    for final in finals:
        on_disk = settled.index(("synced", number_of(final)))
        for folder in (store.incoming, store.folder):
            assert ("synced", number_of(folder)) in settled[on_disk:]
    assert {step for step, _ in written[len(settled) :]} == {"moved"}


def test_a_copied_file_is_on_the_disk_where_it_is_kept(
    store: ArtifactStore, tmp_path: Path, written: Written
) -> None:
    """Nobody looks through the waiting room of an export or a backup."""
    staged = store.stage_bytes(b"one")
    store.keep(store.settle([staged]))
    target = ArtifactStore(tmp_path / "export")
    copy_logs([staged.sha256], store.open, target, known=size_in(target))

    final = target.path_of(staged.sha256)
    moved = written.index(("moved", number_of(final)))
    for folder in (final.parent, target.folder):
        assert ("synced", number_of(folder)) in written[moved:]


@pytest.mark.parametrize("length", [HELD_BYTES, HELD_BYTES + 1])
def test_what_is_staged_is_read_as_it_came_however_it_comes(
    store: ArtifactStore, length: int
) -> None:
    content = os.urandom(length)

    class Dripping(io.BytesIO):
        """A stream that gives less than it is asked for, as one from a network may."""

        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 100_000))

    staged = store.stage(Dripping(content))
    assert (staged.size_bytes, staged.read()) == (length, content)
    store.keep(store.settle([staged]))

    assert store.path_of(hashlib.sha256(content).hexdigest()).read_bytes() == content
    assert list(store.incoming.iterdir()) == []


def test_what_is_settled_twice_is_kept_once(store: ArtifactStore) -> None:
    """A submission is stored anew where other rules turn out to hold."""
    staged = store.stage_bytes(b"same")
    store.settle([staged])
    store.keep(store.settle([staged]))

    assert store.path_of(staged.sha256).read_bytes() == b"same"


def test_content_that_two_requests_settled_is_kept_once(store: ArtifactStore) -> None:
    staged = [store.stage_bytes(b"same") for _ in range(2)]
    for settled in [store.settle([each]) for each in staged]:
        store.keep(settled)

    assert store.path_of(staged[0].sha256).read_bytes() == b"same"
    assert list(store.incoming.iterdir()) == []


def test_nothing_is_looked_for_while_others_wait(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = [store.stage_bytes(content) for content in (b"one", b"two")]
    settled = store.settle(staged)

    def look(path: Path, **_: Any) -> Any:
        raise AssertionError(f"looked for {path}")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", look)
        store.keep(settled)

    assert all(store.path_of(each.sha256).is_file() for each in staged)


def test_content_that_is_kept_is_not_written_again(store: ArtifactStore, written: Written) -> None:
    for _ in range(2):
        written.clear()
        staged = store.stage_bytes(b"same")
        store.keep(store.settle([staged]))

    assert store.path_of(staged.sha256).read_bytes() == b"same"
    assert written == []


def test_a_submission_is_on_the_disk_before_it_is_committed(
    digits_submission: Any,
    submit: Callable[..., Any],
    stored_files: Callable[[], list[str]],
    settings: Any,
    database: Database,
    written: Written,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked: list[int] = []
    write = database.write

    @contextmanager
    def watched() -> Iterator[Any]:
        locked.append(len(written))
        with write() as session:
            yield session
            locked.append(len(written))

    monkeypatch.setattr(database, "write", watched)
    assert submit(digits_submission).status_code == 201

    start, end = locked
    incoming = settings.artifacts_dir / "incoming"
    files = [number_of(settings.artifacts_dir / path) for path in stored_files()]
    assert len(files) == 4
    folders = {number_of(path) for path in (settings.artifacts_dir, incoming)}
    # While others wait for the database, files are moved, and the disk is not waited for.
    assert sorted(written[:start]) == sorted(("synced", each) for each in {*files, *folders})
    assert set(written[start:]) == {("moved", each) for each in files}
    assert end == len(written)


def test_sqlite_writes_every_commit_to_the_disk(database: Database) -> None:
    with database.write() as session:
        pragma = session.connection().exec_driver_sql("PRAGMA synchronous")

        assert pragma.scalar() == 2  # FULL, by the documentation of SQLite.


def test_a_file_nobody_wants_is_swept_after_a_while(store: ArtifactStore) -> None:
    old, young = store.stage_bytes(b"old" * HELD_BYTES), store.stage_bytes(b"young" * HELD_BYTES)
    long_ago = time.time() - 7200
    os.utime(old.path, (long_ago, long_ago))
    store.sweep(older_than_seconds=3600)

    assert list(store.incoming.iterdir()) == [young.path]


def test_a_file_that_goes_while_others_are_swept_stops_nothing(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = store.incoming / "gone"
    monkeypatch.setattr(Path, "iterdir", lambda _folder: iter([gone]))
    store.sweep(older_than_seconds=0)

    assert not gone.exists()
