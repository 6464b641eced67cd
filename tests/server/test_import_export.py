"""An export that is not whole, or a server that is not empty: nothing is changed, and why is said.

What comes out of an import is tested with the exports.
"""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import inspect

from rules.errors import RuleError
from rules.plain import read_plain
from server.accounts.service import create_token
from server.artifacts import ArtifactStore, make_store
from server.audit.service import Administrator, Subject, record
from server.database import Database
from server.dependencies import Parts
from server.errors import ConflictError, ContentError
from server.exports.importing import import_export
from server.exports.manifest import Manifest, file_part, write_manifest
from server.exports.service import export_everything
from server.exports.snapshot import rows_present
from server.exports.verify import verified_export
from server.models import Submission
from server.revision import current_revision
from server.schema import migrate
from server.signing import load_signer
from tests.server.conftest import SubmissionParts, list_stored_files
from tests.support.copies import parts_of, settings_of


@pytest.fixture
def export(
    client: TestClient,
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
    tmp_path: Path,
) -> Path:
    """An export of a server with one submission and two audit records."""
    submit(digits_submission)
    with parts_of(client).database.write() as session:
        for word in ("one", "two"):
            record(session, Administrator(), word, Subject("x", "y"), reason=None, before=None,
                   after={"n": 1})  # fmt: skip
    export_everything(parts_of(client), tmp_path / "export")
    return tmp_path / "export"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def second(request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> Iterator[Parts]:
    """An empty server."""
    folder = tmp_path / "second"
    folder.mkdir()
    url = f"sqlite:///{folder / 'finishline.db'}"
    if request.param == "sqlite":
        shutil.copy(migrated_file, folder / "finishline.db")
    else:
        url = request.getfixturevalue("postgresql_url")
    settings = settings_of(folder, url)
    database = Database(url)
    yield Parts(settings, database, make_store(settings), {})
    database.close()


def replace_in(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def sign_again(export: Path) -> None:
    """What somebody does who changes an export and has a key: every hash fits again."""
    document = json.loads((export / "manifest.json").read_text())
    for name in document["files"]:
        document["files"][name] = vars(file_part(export / name))
    del document["signature"]
    manifest = read_plain(Manifest, document, path="")
    write_manifest(export, manifest, load_signer(export.parent / "signing-key.pem"))


def refuse_import(second: Parts, export: Path) -> str:
    """Why an import is refused, which has to leave the server empty."""
    with pytest.raises((ConflictError, ContentError, RuleError)) as error:
        import_export(second, export)
    with second.database.engine.connect() as connection:
        assert not any(rows_present(connection).values())
    assert list_stored_files(second.settings) == []
    return str(error.value)


def test_each_damage_is_named_and_nothing_is_changed(
    export: Path, second: Parts, tmp_path: Path
) -> None:
    log = min(path for path in (export / "logs").rglob("*") if path.is_file())
    content = log.read_bytes()
    lost = (b"", b"")
    damages: dict[str, tuple[str, bytes, bytes]] = {
        f"{log.name}: its content has hash": (str(log.relative_to(export)), content, b"x"),
        f"{log.name}: not there": (str(log.relative_to(export)), *lost),
        "tables/users.csv: it was changed": ("tables/users.csv", b"alice", b"alicf"),
        "tables/runs.csv: not there": ("tables/runs.csv", *lost),
        "logs.csv: it was changed": ("logs.csv", b"\r\n", b"\n"),
        "benchmarks/digits.toml: it was changed": ("benchmarks/digits.toml", b"=", b" ="),
        "it is not as it was signed": ("manifest.json", b'"rows": 1', b'"rows": 2'),
        "field format: got": ("manifest.json", b"finishline-export-1", b"finishline-export-2"),
        "manifest.json: not there": ("manifest.json", *lost),
    }
    for number, (words, (name, old, new)) in enumerate(damages.items()):
        copy = tmp_path / f"damaged-{number}"
        shutil.copytree(export, copy)
        if old:
            replace_in(copy / name, old, new)
        else:
            (copy / name).unlink()
        assert words in refuse_import(second, copy)


def test_what_was_changed_and_signed_again_is_named_by_file_and_line(
    export: Path, second: Parts, tmp_path: Path
) -> None:
    changes = {
        "tables/users.csv line 2, field created_at": ("users", b"+00:00", b""),
        "tables/runs.csv line 3, field index": ("runs", b",1,run_1.log", b",one,run_1.log"),
        "audit_log.csv: field record 1.sha256: it was changed": ("audit_log", b"one", b"eno"),
        "tables/runs.csv line 4: ": ("runs", b",2,run_2.log", b",1,run_2.log"),
        "tables/signing_keys.csv line 2, field id": ("signing_keys", b"\r\n", b"\r\nf"),
    }  # fmt: skip
    for number, (words, (table, old, new)) in enumerate(changes.items()):
        copy = tmp_path / f"changed-{number}"
        shutil.copytree(export, copy)
        replace_in(copy / "tables" / f"{table}.csv", old, new)
        sign_again(copy)
        assert words in refuse_import(second, copy)


def test_a_row_that_refers_to_nothing_is_named(export: Path, second: Parts) -> None:
    with (export / "tables" / "users.csv").open("rb") as file:
        [_names, alice] = file.read().splitlines(keepends=True)
    replace_in(export / "tables" / "users.csv", alice, alice.replace(b"1,", b"99,", 1))
    sign_again(export)
    assert "tables/submissions.csv line 2: " in refuse_import(second, export)


def test_a_store_that_fails_leaves_no_row_and_no_file(
    export: Path, second: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, settled = ArtifactStore.settle, []

    def fail_late(store: ArtifactStore, staged: Any) -> Any:
        settled.append(staged)
        if len(settled) == 3:
            raise OSError(28, "No space left on device")
        return settle(store, staged)

    monkeypatch.setattr("server.exports.logs.FILES_AT_ONCE", 1)
    monkeypatch.setattr(ArtifactStore, "settle", fail_late)
    with pytest.raises(OSError, match="No space left"):
        import_export(second, export)
    assert list_stored_files(second.settings) == []
    monkeypatch.undo()
    import_export(second, export)
    assert len(list_stored_files(second.settings)) == 4


def test_a_server_that_is_not_empty_or_of_another_schema_is_refused(
    export: Path, second: Parts
) -> None:
    import_export(second, export)
    with pytest.raises(ConflictError, match=r"has rows in audit_log, .*submissions, users"):
        import_export(second, export)
    migrate(second.database, "base")
    with pytest.raises(ConflictError, match=r"revision \(empty\).*server.admin migrate"):
        import_export(second, export)


def test_an_export_of_another_schema_is_refused_and_says_the_way(
    export: Path, second: Parts
) -> None:
    made_at = verified_export(export).manifest.schema_revision
    migrate(second.database, "-1")
    said = refuse_import(second, export)
    assert f"and the export was made at {made_at}" in said
    assert f"'python -m server.admin migrate {made_at}'" in said


def make_older(export: Path, database: Database) -> None:
    """As a server exported it whose schema was that of a database: without what came later."""
    document = json.loads((export / "manifest.json").read_text())
    document["schema_revision"] = current_revision(database)
    inspector = inspect(database.engine)
    document["tables"] = [part for part in document["tables"] if inspector.has_table(part["name"])]
    for part in document["tables"]:
        known = {column["name"] for column in inspector.get_columns(part["name"])}
        names = [column["name"] for column in part["columns"]]
        part["columns"] = [column for column in part["columns"] if column["name"] in known]
        with (export / part["file"]).open(newline="") as file:
            rows = [list(compress(row, (n in known for n in names))) for row in csv.reader(file)]
        with (export / part["file"]).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    (export / "manifest.json").write_text(json.dumps(document))
    sign_again(export)


def test_an_older_export_is_migrated_and_tells_whether_a_time_was_confirmed(
    replay: Any, make_report: Callable[..., Any], second: Parts, tmp_path: Path
) -> None:
    report = make_report(replay.seeds())
    elsewhere = replace(report.system, hardware_class="gpu-elsewhere")
    replay.report(replay.claim().json(), replace(report, system=elsewhere))
    export_everything(parts_of(replay.client), tmp_path / "export")
    migrate(second.database, "base")
    migrate(second.database, "0024")
    make_older(tmp_path / "export", second.database)
    import_export(second, tmp_path / "export")
    migrate(second.database)

    with second.database.read() as session:
        found = session.get_one(Submission, replay.submission_id)
        assert (found.status, found.time_confirmed) == ("verified", False)


def test_ids_go_on_after_the_last_one(export: Path, second: Parts) -> None:
    import_export(second, export)
    with second.database.write() as session:
        made = create_token(session, user_name="new", role="submitter", expires_in=None)
        assert (made.token.user_id, made.token.id) == (2, 1)
