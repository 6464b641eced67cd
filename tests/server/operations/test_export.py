"""Exports of one moment, and every run of a benchmark as a flat record."""

import csv
import io
import json
import os
import re
from copy import deepcopy
from pathlib import Path

import orjson
import pytest
from pyarrow import parquet
from sqlalchemy import select, text

from finishline.cli.bundles import check_export, keys_in
from finishline.rules.errors import RuleError
from server.base.models import Submission, Verification
from server.operations import export as exporting
from server.operations import runs
from server.operations.export import export, select_export
from server.people.audit import Administrator, Subject, record
from tests.support.admin import environment_of, run_finishline
from tests.support.both_databases import database_url, on_sqlite  # noqa: F401
from tests.support.services import services_of

CONTRACT = Path(__file__).parents[2] / "data" / "export_columns.json"
COLUMNS = {name: [*query.selected_columns.keys()] for name, query in select_export(public=False)}
SECRET_WORDS = ("token", "secret", "password", "email", "e_mail", "session", "claimed_by")
STRANGE = "=cmd|'/c calc'!A1,\r\n\"é\U0001f3c1\" '"


@pytest.fixture
def full(replay, make_report, digits_submission, make_log, submit, client, olivia, bob):
    """A server with a verified submission, one that is being replayed, one of strange words."""
    claimed = replay.claim().json()
    replay.post(claimed, [{"sequence": 0, "run": 0, "kind": "phase"}])
    assert replay.report(claimed, make_report(replay.seeds())).json()["outcome"] == "verified"

    odd = deepcopy(digits_submission)
    odd.claim |= {"notes": STRANGE.replace("\r\n", " "), "model": "=1+1"}
    odd.logs = {name: make_log(999 + k, name=name) for k, name in enumerate(odd.logs)}
    made = submit(odd, by=bob, key="bobs-key", batch_size=32)
    assert made.status_code == 201, made.text
    waiting = made.json()["id"]
    address = f"/api/v1/submissions/{waiting}/verifications"
    assert client.post(address, json={"reason": STRANGE}, headers=olivia.headers).status_code == 201
    with services_of(client).database.write() as session:
        subject = Subject("nothing", "")
        record(session, Administrator(), "test", subject, reason=STRANGE, before={})
    return client


def tables_of(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").glob("*.csv"))}


def rows_of(folder, table):
    content = (folder / "tables" / f"{table}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(content, newline="")))


@on_sqlite
def test_a_reader_checks_an_export_without_the_server(full, tmp_path):
    folder, _ = export(services_of(full), tmp_path)
    keys = keys_in(full.get("/api/v1/keys").json())
    assert check_export(folder, keys).failed == []
    assert check_export(folder, [bytes(32)]).failed == ["signer"]

    log = next(path for path in (folder / "logs").rglob("*") if path.is_file())
    log.write_bytes(log.read_bytes() + b"x")
    (folder / "tables" / "runs.csv").unlink()
    (folder / "more").symlink_to("/")
    found = check_export(folder, keys)
    assert found.failed == ["files", "nothing else"]
    assert "tables/runs.csv" in str(found.checks)


def test_nothing_secret_is_in_an_export(full, tmp_path, alice, olivia):
    with services_of(full).database.read() as session:
        columns = "SELECT token_sha256 FROM tokens UNION SELECT token_sha256 FROM attempts"
        hashes = [each for each in session.scalars(text(columns)) if each is not None]
        sealed = session.query(Verification).filter_by(state="queued").one()
        seeds, nonce = sealed.seeds, sealed.nonce
    assert len(hashes) == 5
    folder, _ = export(services_of(full), tmp_path)
    secrets = [*hashes, alice.secret, olivia.secret, nonce, "bobs-key", *map(str, seeds)]
    secrets.append(services_of(full).settings.signing_key_path.read_text().splitlines()[1])
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".csv", ".json"):
            content = path.read_text(encoding="utf-8")
            assert not [secret for secret in secrets if secret in content], path.name


@on_sqlite
def test_the_draw_of_an_open_verification_stays_sealed(full, tmp_path):
    folder, _ = export(services_of(full), tmp_path)
    ended, sealed = sorted(rows_of(folder, "verifications"), key=lambda row: row["state"])
    assert (ended["state"], sealed["state"]) == ("done", "queued")
    assert (ended["nonce"] != "", sealed["nonce"]) == (True, "")
    trainings = rows_of(folder, "job_trainings")
    assert {row["verification_id"] for row in trainings} == {ended["id"], sealed["id"]}
    for row in trainings:
        is_sealed = row["verification_id"] == sealed["id"]
        assert (row["seed"] == "", row["settings"] == "") == (is_sealed, is_sealed)


def test_an_export_is_of_one_moment(full, tmp_path, digits_submission, submit, monkeypatch):
    submitted = []

    def write_then_go_on(*arguments, **named):
        """Between two tables somebody submits: the runs must not be there without it."""
        submitted.append(submit(digits_submission).status_code)
        return write_table(*arguments, **named)

    write_table = exporting.write_table
    monkeypatch.setattr(exporting, "write_table", write_then_go_on)
    _, manifest = export(services_of(full), tmp_path)

    assert submitted == [201] * len(manifest.tables)
    assert (manifest.tables["submissions"], manifest.tables["runs"]) == (2, 6)


@on_sqlite
def test_an_export_that_fails_leaves_nothing(full, tmp_path, settings):
    lost = next(path for path in settings.artifacts_dir.glob("??/*") if path.is_file())
    lost.rename(tmp_path / "lost")
    with pytest.raises(RuleError, match=lost.name):
        export(services_of(full), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]

    _, kept = export(services_of(full), tmp_path / "kept", keep_missing=True)
    assert kept.missing_logs == [lost.name]
    lost.write_bytes(b"something else")
    with pytest.raises(RuleError, match=f"{lost.name}: its content has hash"):
        export(services_of(full), tmp_path / "out", keep_missing=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]


def test_parquet_has_the_same_rows_where_it_can_be_written(full, tmp_path, monkeypatch):
    folder, manifest = export(services_of(full), tmp_path)

    def read(table):
        return parquet.read_table(folder / "tables" / f"{table}.parquet")

    for table, rows in manifest.tables.items():
        found = read(table)
        assert (found.num_rows, found.column_names) == (
            rows,
            list(rows_of(folder, table)[0]) if rows else found.column_names,
        )
    run, first = read("runs").to_pylist()[0], rows_of(folder, "runs")[0]
    assert repr(run["tta_seconds"]) == first["tta_seconds"]
    assert (run["reached"], run["curve"]) == (True, first["curve"])
    record = read("audit_log").to_pylist()[-1]
    assert record["reason"] == STRANGE
    cell = f"'{STRANGE}".replace('"', '""')  # No spreadsheet runs it.
    assert f',"{cell}",'.encode() in (folder / "tables" / "audit_log.csv").read_bytes()
    assert rows_of(folder, "audit_log")[-1]["at"] == record["at"].isoformat()

    monkeypatch.setattr(exporting, "can_write_parquet", lambda: False)
    bare, _ = export(services_of(full), tmp_path / "bare")
    assert list(bare.rglob("*.parquet")) == []
    assert tables_of(bare) == tables_of(folder)


def test_a_public_export_has_nothing_that_hangs_on_a_hidden_submission(full, tmp_path):
    with services_of(full).database.write() as session:
        hidden = session.scalars(select(Submission).where(Submission.model == "=1+1")).one()
        hidden.embargoed, hidden_id = True, hidden.id
    folder, manifest = export(services_of(full), tmp_path, public=True)

    assert manifest.left_out["audit_log"].startswith("organisers alone")
    counts = manifest.tables
    assert (counts["submissions"], counts["runs"], counts["attempts"]) == (1, 3, 1)
    assert "audit_log" not in counts
    assert manifest.logs == 4
    for name, content in tables_of(folder).items():
        assert hidden_id.encode() not in content, name


@on_sqlite
def test_the_command_says_what_came_of_it_and_its_files_are_private(full, settings, tmp_path):
    for command in ("export", "backup"):
        made = run_finishline(environment_of(settings), command, str(tmp_path / command))
        assert made.code == 0, made.err
        said = json.loads(made.out)
        assert (said["logs"], said["missing_logs"]) == (8, 0)
        inside = list(Path(said["path"]).rglob("*"))
        assert {each.stat().st_mode & 0o077 for each in [Path(said["path"]), *inside]} == {0}


def test_exported_columns_are_those_that_somebody_decided_about():
    """A new one stands in LEFT_OUT of server/operations/export.py, or goes into this file."""
    if os.environ.get("FINISHLINE_RENEW"):
        CONTRACT.write_text(json.dumps(COLUMNS, indent=1) + "\n")
    assert json.loads(CONTRACT.read_text()) == COLUMNS
    for table, columns in COLUMNS.items():
        for name in columns:
            assert not any(word in name for word in SECRET_WORDS), f"{table}.{name} is a secret"


HOSTILE = '</script>"\\\n%0d%0aLink: <x>; rel="next"\U0001f3c1'


def runs_json(client, **query):
    answer = client.get("/api/v1/benchmarks/digits/runs.json", params=query)
    assert answer.status_code == 200, answer.text
    return answer


def test_pages_hold_every_run_once(client, digits_submission, submit, monkeypatch):
    monkeypatch.setattr(runs, "RUNS_AT_ONCE", 2)
    assert runs_json(client).json() == {"benchmark": "digits", "next_cursor": None, "runs": []}
    made = [submit(digits_submission).json()["id"] for _ in range(3)]
    expected = [(each, index) for each in made for index in range(3)]

    whole = runs_json(client)
    assert "Link" not in whole.headers
    assert [(run["submission_id"], run["run"]) for run in whole.json()["runs"]] == expected

    answer, seen = runs_json(client, limit=4), []
    while True:
        page = answer.json()
        assert len(page["runs"]) <= 4
        seen += [(run["submission_id"], run["run"]) for run in page["runs"]]
        if len(seen) < 12:
            submit(digits_submission)
        if page["next_cursor"] is None:
            break
        [address] = re.findall(r'^<(.*)>; rel="next"$', answer.headers["Link"])
        assert f"cursor={page['next_cursor']}" in address
        assert "limit=4" in address
        answer = client.get(address)
    assert seen[: len(expected)] == expected
    assert len(set(seen)) == len(seen) >= 12
    assert client.get("/api/v1/benchmarks/cifar10/runs.json").json()["runs"] == []


@on_sqlite
def test_a_record_says_all_about_its_run(client, digits_submission, submit):
    digits_submission.claim |= {"model": HOSTILE, "framework": HOSTILE, "notes": HOSTILE}
    digits_submission.claim["system"]["name"] = HOSTILE
    submitted = submit(digits_submission)
    assert submitted.status_code == 201, submitted.text
    made = submitted.json()
    answer = runs_json(client)

    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    run = orjson.loads(answer.content)["runs"][1]
    source = made["runs"][1]
    same = (
        "benchmark", "benchmark_version", "benchmark_sha256", "division", "submitter",
        "display_name", "submitted_at", "submitted_on", "archive", "status", "system",
    )  # fmt: skip
    of_run = {name: source[name] for name in ("seed", "batch_size", "reached", "log_sha256")}
    # The last of eight epochs is the first that reaches 97.5.
    last = {
        "measure": "top1Accuracy",
        "value": 98.1,
        "seconds": source["tta_seconds"],
        "epoch": 8.0,
    }
    assert run == {name: made[name] for name in same} | of_run | {
        "submission_id": made["id"], "run": 1, "withdrawn": False, "evaluations": [last],
        "model": HOSTILE, "framework": HOSTILE,
        "parameter_setting": [{"name": "batch_size", "value": 64.0}],
    }  # fmt: skip
    assert run["seed"] == 101
    assert run["system"]["name"] == HOSTILE


@on_sqlite
def test_what_is_no_place_or_size_is_refused(client):
    for query in ({"limit": 0}, {"limit": 1001}, {"cursor": "1.abc"}, {"cursor": "\u0663"}):
        answer = client.get("/api/v1/benchmarks/digits/runs.json", params=query)
        assert answer.status_code == 422, query
    assert runs_json(client, cursor="9" * 18).json()["runs"] == []
