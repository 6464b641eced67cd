"""Benchmarks that came after a server's start: organisers' own, and those of imported archives."""

import json

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from finishline.rules.archive.definitions import shipped_texts
from server.app import create_app
from server.base.models import AuditRecord, Board
from server.benchmarks.definitions import files_of_added
from server.benchmarks.in_force import PhaseWatch
from server.commands.check import check_server
from server.operations.backup import back_up, restore
from server.operations.export import export
from tests.conftest import OWN_BENCHMARKS
from tests.support.boards import rows_of
from tests.support.copies import serving, settings_of, unserved
from tests.support.own_benchmarks import DEFINITION, FILES, own_files
from tests.support.pages import ORIGIN, sign_in, words_of
from tests.support.services import services_of

BENCHMARKS = "/api/v1/benchmarks"
LATER = DEFINITION.replace('version = "1"', 'version = "2"')


@pytest.fixture
def add(client, olivia):
    """Adds a benchmark as an organiser."""

    def send(files=None, *, to=None):
        parts = [("files", each) for each in (own_files() if files is None else files).items()]
        return (to or client).post(
            BENCHMARKS, files=parts, data={"reason": "a course"}, headers=olivia.headers
        )

    return send


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_an_added_benchmark_is_offered_with_its_files(client, add, database):
    answer = add()

    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"{BENCHMARKS}/mine"
    listed = {each["id"]: each for each in client.get(BENCHMARKS).json()["benchmarks"]}
    assert listed["mine"]["sha256"] == answer.json()["sha256"]
    assert client.get(f"{BENCHMARKS}/mine.toml").content == own_files()["benchmark.toml"]
    for name, content in FILES.items():
        got = client.get(f"{BENCHMARKS}/mine/files/{name}")
        assert got.content == content
        assert got.headers["X-Content-Type-Options"] == "nosniff"
    page = client.get("/benchmarks/mine").text
    assert "finishline benchmark fetch mine " in page
    assert "finishline init mine   " in page
    assert "finishline run mine/\n" in page
    with database.read() as session:
        written = session.scalars(select(AuditRecord)).all()[-1]
    assert (written.action, written.subject_id, written.reason) == (
        "benchmark.add",
        "mine",
        "a course",
    )


def test_the_same_content_changes_nothing(client, add, row_counts):
    add()
    before = row_counts()

    again = add()

    assert again.status_code == 200
    assert row_counts() == before


def test_a_lost_file_is_stored_again_by_adding_the_same(client, add):
    add()
    services = services_of(client)
    services.artifacts.path_of(files_of(services.database)["points.csv"]).unlink()
    assert client.get(f"{BENCHMARKS}/mine/files/points.csv").status_code == 500

    assert add().status_code == 200

    assert client.get(f"{BENCHMARKS}/mine/files/points.csv").content == FILES["points.csv"]


def test_a_later_version_replaces_it_and_an_earlier_one_comes_back(client, add):
    first = add().json()["sha256"]

    second = add(own_files(LATER))

    assert second.status_code == 201
    assert client.get(f"{BENCHMARKS}/mine").json()["version"] == "2"
    assert add().json()["sha256"] == first
    assert client.get(f"{BENCHMARKS}/mine").json()["version"] == "1"


def test_a_benchmark_of_the_folder_is_not_replaced(client, add):
    before = client.get(f"{BENCHMARKS}/digits").json()
    files = {
        name: text.replace(b'"mine"', b'"digits"') if name.endswith(".toml") else text
        for name, text in FILES.items()
    }

    answer = add(own_files(DEFINITION.replace('"mine"', '"digits"'), files))

    assert answer.status_code == 409
    assert "was not added" in answer.json()["detail"]
    assert client.get(f"{BENCHMARKS}/digits").json() == before


def test_frozen_rules_stay(client, add, olivia):
    first = add().json()["sha256"]
    dates = {"freezes_at": "2026-01-01T00:00:00Z", "reason": "the round"}
    path = f"{BENCHMARKS}/mine/phases"
    assert client.post(path, json=dates, headers=olivia.headers).status_code == 201

    assert add(own_files(LATER)).status_code == 409
    assert add().status_code == 200
    assert client.get(f"{BENCHMARKS}/mine").json()["sha256"] == first
    assert client.get("/readyz").json()["status"] != "error"

    body = {"reason": "over", "unfreeze": True}
    assert client.post(path, json=body, headers=olivia.headers).status_code == 201
    assert add(own_files(LATER)).status_code == 201


@pytest.fixture
def second_server(settings, client):
    """Another server process on the same database."""
    with serving(settings) as second:
        yield second


def test_another_server_offers_it_after_its_next_look(client, second_server, add, settings):
    sha256 = add().json()["sha256"]
    services = services_of(second_server)
    services.of(PhaseWatch).look_once()

    assert second_server.get(f"{BENCHMARKS}/mine").json()["sha256"] == sha256
    assert second_server.get(f"{BENCHMARKS}/mine/files/task.py").content == FILES["task.py"]

    add(own_files(LATER), to=second_server)
    services_of(client).of(PhaseWatch).look_once()
    assert client.get(f"{BENCHMARKS}/mine").json()["version"] == "2"
    with serving(settings) as started_later:
        assert started_later.get(f"{BENCHMARKS}/mine").json()["version"] == "2"


def test_every_problem_is_told_and_nothing_is_stored(client, add, row_counts, stored_files):
    before = row_counts()
    files = own_files()
    files["task.py"] += b"import torch\n"
    files["more.csv"] = b"3\n"

    answer = add(files)

    assert answer.status_code == 422
    told = {(each["file"], each["field"]) for each in answer.json()["problems"]}
    assert told == {
        ("task.py", None),
        ("task.py", "trainings.files"),
        ("more.csv", "trainings.files"),
    }
    assert row_counts() == before
    assert stored_files() == []


def test_a_file_without_a_name_and_an_unknown_part_are_refused(client, olivia):
    for parts in ({"files": "text"}, {"other": "text"}):
        answer = client.post(BENCHMARKS, files={"x": ("", b"")}, data=parts, headers=olivia.headers)
        assert answer.status_code == 422
        assert answer.json()["problems"][0]["field"] in ("files", "other", "x")


def test_a_check_a_backup_and_a_restore_have_its_files(client, add, tmp_path):
    add()
    services = services_of(client)
    findings = check_server(services, files=True, proofs=False)
    assert (findings.faults, findings.looked_at["files"]) == ([], len(FILES))

    _, manifest = back_up(services, tmp_path / "backups")
    assert manifest.logs == len(FILES)
    (tmp_path / "other").mkdir()
    other = settings_of(tmp_path / "other", f"sqlite:///{tmp_path}/other/finishline.db")
    with unserved(other) as empty:
        restore(empty, tmp_path / "backups")
    with serving(other) as restored:
        for name, content in FILES.items():
            assert restored.get(f"{BENCHMARKS}/mine/files/{name}").content == content

    services.artifacts.path_of(files_of(services.database)["task.py"]).write_bytes(b"other")
    findings = check_server(services, files=True, proofs=False)
    assert len(findings.faults) == 1
    assert "benchmark mine as task.py" in findings.faults[0]


def files_of(database):
    """The hashes of the stored files by name."""
    with database.engine.connect() as connection:
        return {name: sha256 for sha256, (_, name) in files_of_added(connection).items()}


def test_a_later_version_raises_the_version_of_its_board(client, add):
    add()
    assert rows_of(client.get("/api/v1/leaderboards/mine").json()) == []
    database = services_of(client).database

    def version():
        with database.read() as session:
            return session.get_one(Board, "mine").version

    before = version()
    add()
    assert version() == before
    add(own_files(LATER))

    assert version() > before


def test_a_benchmark_is_added_and_changed_in_the_browser(client, olivia):
    sign_in(client, olivia)
    address = "/console/benchmarks"

    def send(definition, files, **fields):
        parts = [("folder", (f"mine/{name}", content)) for name, content in files.items()]
        data = {"definition": definition, "reason": "a course", **fields}
        return client.post(address, data=data, files=parts, headers=ORIGIN)

    files = own_files()
    text = files.pop("benchmark.toml").decode()
    wrong = send(text.replace('clock = "mlperf"', 'clock = "sun"'), files)
    assert "clock" in words_of(wrong.text)
    assert wrong.status_code == 422
    without = words_of(send(text, {"points.csv": files["points.csv"]}).text)
    assert "task.py : missing" in without
    assert "task.py , trainings.files" not in without
    # The folder of `benchmark init` is taken as it lies there; a changed text goes before its own.
    beside = {"README.md": b"for people", ".DS_Store": b"", "benchmark.toml": text.encode()}
    renamed = send(text.replace('title = "Mine"', 'title = "Ours"'), files | beside).text
    assert "Ours, version 1, is offered." in renamed
    assert "Mine, version 1, is offered." in send("", files | beside).text
    edit = client.get(address, params={"benchmark": "mine"}).text
    assert "0 entries keep the version" in words_of(edit)
    assert "id = &#34;mine&#34;" in edit
    # Files that are left out stay as they are.
    later = text.replace('version = "1"', 'version = "2"')
    parts = {"benchmark": "mine"}
    some = {"points.csv": files["points.csv"]}
    assert "Mine, version 2, is offered." in send(later, some, **parts).text


ROUND = "mlperf-v5.1-retinanet"
CLAIM = {
    "benchmark": ROUND,
    "division": "closed",
    "model": "retinanet",
    "framework": "torch",
    "system": {"name": "s", "hardware_class": "mlperf", "processor": "not stated"},
}
START = 1_763_000_000_000
EVENTS = [
    ("submission_benchmark", "retinanet", {}),
    ("global_batch_size", 256, {}),
    ("run_start", None, {}),
    ("eval_accuracy", 0.35, {"epoch_num": 4}),
    ("run_stop", None, {"status": "success"}),
]


def log(seed):
    """A run that reached the target."""
    lines = [("seed", seed, {}), *EVENTS]
    return "".join(
        f":::MLLOG {json.dumps({'time_ms': ms, 'key': key, 'value': value, 'metadata': more})}\n"
        for ms, (key, value, more) in enumerate(lines, START)
    ).encode()


def send(client, by, claim=CLAIM, **form):
    logs = {f"result_{number}.txt": log(number) for number in range(5)}
    document = json.dumps(claim | {"runs": list(logs)})
    files = [("submission", ("submission.json", document.encode()))]
    files += [("logs", (name, content)) for name, content in logs.items()]
    return client.post("/api/v1/submissions", files=files, data=form, headers=by.headers)


def offered(client):
    return [each["id"] for each in client.get("/api/v1/benchmarks").json()["benchmarks"]]


def test_an_import_installs_the_definition_that_its_result_needs(client, olivia):
    assert offered(client) == OWN_BENCHMARKS
    sent = send(client, olivia, archive="true")

    assert sent.status_code == 201, sent.text
    assert offered(client) == sorted([*OWN_BENCHMARKS, ROUND])
    text = client.get(f"/api/v1/benchmarks/{ROUND}.toml").content
    assert text == shipped_texts()[ROUND]
    (entry,) = rows_of(client.get(f"/api/v1/leaderboards/{ROUND}").json())
    assert entry["submission_id"] == sent.json()["id"]
    assert "MLPerf v5.1" in client.get("/").text


@pytest.mark.parametrize(
    ("form", "changes", "status"),
    [
        ({}, {}, 422),
        ({"archive": "true"}, {"benchmark": "mlperf-v5.1-nothing"}, 422),
        ({"archive": "true"}, {"benchmark": "../../../benchmarks/digits"}, 422),
        ({"archive": "true"}, {"division": "ajar"}, 422),
    ],
)
def test_what_is_no_archives_result_or_nobodys_to_send_installs_nothing(
    client, olivia, alice, form, changes, status
):
    assert send(client, alice, archive="true").status_code == 403
    assert send(client, olivia, CLAIM | changes, **form).status_code == status
    assert offered(client) == OWN_BENCHMARKS


def test_every_server_of_a_database_offers_what_was_installed(client, olivia, settings):
    with TestClient(create_app(settings, dispatch=False)) as other:
        assert send(client, olivia, archive="true").status_code == 201
        assert offered(other) == OWN_BENCHMARKS
        services_of(other).of(PhaseWatch).look_once()
        assert offered(other) == sorted([*OWN_BENCHMARKS, ROUND])
    with TestClient(create_app(settings, dispatch=False)) as started_again:
        assert offered(started_again) == sorted([*OWN_BENCHMARKS, ROUND])
        assert started_again.get(f"/benchmarks/{ROUND}").status_code == 200


def test_a_file_of_the_servers_own_is_used_instead_of_the_shipped_one(
    client, olivia, settings, tmp_path
):
    settings.benchmarks_dir = tmp_path / "own"
    settings.benchmarks_dir.mkdir()
    own = settings.benchmarks_dir / f"{ROUND}.toml"
    own.write_bytes(shipped_texts()[ROUND] + b"# Ours.\n")
    with TestClient(create_app(settings, dispatch=False)) as with_own:
        assert send(with_own, olivia, archive="true").status_code == 201
        assert offered(with_own) == [ROUND]
        assert with_own.get(f"/api/v1/benchmarks/{ROUND}.toml").content == own.read_bytes()


def test_an_export_has_the_installed_definitions(client, olivia, tmp_path):
    send(client, olivia, archive="true")
    path, _ = export(services_of(client), tmp_path)
    names = sorted(path.stem for path in (path / "benchmarks").iterdir())

    assert names == sorted([*OWN_BENCHMARKS, ROUND])
