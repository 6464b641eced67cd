"""Benchmarks that came after a server's start: organisers' own, and those of imported archives."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import select

from finishline.rules.archive.definitions import shipped_texts
from server.base.models import AuditRecord, Board
from server.benchmarks.definitions import files_of_added
from server.benchmarks.in_force import PhaseWatch
from server.commands.check import check_server
from server.operations.backup import back_up, restore
from server.operations.export import export
from tests.conftest import OWN_BENCHMARKS
from tests.support.archive_folders import make_log
from tests.support.boards import rows_of
from tests.support.copies import serving, settings_of, unserved
from tests.support.own_benchmarks import DEFINITION, FILES, own_files
from tests.support.pages import ORIGIN, sign_in, words_of
from tests.support.services import services_of

BENCHMARKS = "/api/v1/benchmarks"
LATER = DEFINITION.replace('version = "1"', 'version = "2"')


@pytest.fixture
def add(olivia):
    def send(files=None, *, to=olivia.client):
        parts = [("files", each) for each in (own_files() if files is None else files).items()]
        return replace(olivia, client=to).post(BENCHMARKS, data={"reason": "a course"}, files=parts)

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
    told = ("benchmark.add", "mine", "a course")
    assert (written.action, written.subject_id, written.reason) == told


def stored_file(services, wanted):
    """The path of a file of the added benchmark."""
    with services.database.engine.connect() as connection:
        hashes = {name: sha256 for sha256, (_, name) in files_of_added(connection).items()}
    return services.artifacts.path_of(hashes[wanted])


def test_the_same_content_stores_a_lost_file_and_changes_nothing_else(client, add, row_counts):
    add()
    before = row_counts()
    stored_file(services_of(client), "points.csv").unlink()
    assert client.get(f"{BENCHMARKS}/mine/files/points.csv").status_code == 500

    assert add().status_code == 200

    assert row_counts() == before
    assert client.get(f"{BENCHMARKS}/mine/files/points.csv").content == FILES["points.csv"]


def test_a_later_version_replaces_it_and_an_earlier_one_comes_back(client, add):
    def version_of_board():
        with services_of(client).database.read() as session:
            return session.get_one(Board, "mine").version

    first = add().json()["sha256"]
    assert rows_of(client.get("/api/v1/leaderboards/mine").json()) == []
    before = version_of_board()
    add()
    assert version_of_board() == before

    assert add(own_files(LATER)).status_code == 201

    assert version_of_board() > before
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
    assert olivia.post(path, dates).status_code == 201

    assert add(own_files(LATER)).status_code == 409
    assert add().status_code == 200
    assert client.get(f"{BENCHMARKS}/mine").json()["sha256"] == first
    assert client.get("/readyz").json()["status"] != "error"

    body = {"reason": "over", "unfreeze": True}
    assert olivia.post(path, body).status_code == 201
    assert add(own_files(LATER)).status_code == 201


def test_another_server_offers_it_after_its_next_look(client, add, settings):
    with serving(settings) as second:
        sha256 = add().json()["sha256"]
        services_of(second).of(PhaseWatch).look_once()

        assert second.get(f"{BENCHMARKS}/mine").json()["sha256"] == sha256
        assert second.get(f"{BENCHMARKS}/mine/files/task.py").content == FILES["task.py"]

        add(own_files(LATER), to=second)
    services_of(client).of(PhaseWatch).look_once()
    assert client.get(f"{BENCHMARKS}/mine").json()["version"] == "2"
    with serving(settings) as started_later:
        assert started_later.get(f"{BENCHMARKS}/mine").json()["version"] == "2"


def test_every_problem_is_told_and_nothing_is_stored(add, row_counts, stored_files):
    before = row_counts()
    files = own_files()
    files["task.py"] += b"import torch\n"
    files["more.csv"] = b"3\n"

    answer = add(files)

    assert answer.status_code == 422
    told = {(each["file"], each["field"]) for each in answer.json()["problems"]}
    pinned = {(name, "trainings.files") for name in ("task.py", "more.csv")}
    assert told == {("task.py", None), *pinned}
    assert row_counts() == before
    assert stored_files() == []


def test_a_file_without_a_name_and_an_unknown_part_are_refused(olivia):
    for parts in ({"files": "text"}, {"other": "text"}):
        answer = olivia.post(BENCHMARKS, data=parts, files={"x": ("", b"")})
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

    stored_file(services, "task.py").write_bytes(b"other")
    findings = check_server(services, files=True, proofs=False)
    assert len(findings.faults) == 1
    assert "benchmark mine as task.py" in findings.faults[0]


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
    # The folder of `benchmark init` is taken whole. A changed text goes before its own.
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


def send(client, by, claim=CLAIM, **form):
    logs = {f"result_{number}.txt": make_log(seed=number).encode() for number in range(5)}
    document = json.dumps(claim | {"runs": list(logs)})
    files = [("submission", ("submission.json", document.encode()))]
    files += [("logs", (name, content)) for name, content in logs.items()]
    return replace(by, client=client).post("/api/v1/submissions", files=files, data=form)


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


def test_what_is_no_archives_result_or_nobodys_to_send_installs_nothing(client, olivia, alice):
    assert send(client, alice, archive="true").status_code == 403
    assert send(client, olivia).status_code == 422
    for changes in (
        {"benchmark": "mlperf-v5.1-nothing"}, {"benchmark": "../../../benchmarks/digits"},
        {"division": "ajar"},
    ):  # fmt: skip
        assert send(client, olivia, CLAIM | changes, archive="true").status_code == 422, changes
    assert offered(client) == OWN_BENCHMARKS


def test_a_file_of_the_servers_own_is_used_instead_of_the_shipped_one(olivia, settings, tmp_path):
    settings.benchmarks_dir = tmp_path / "own"
    settings.benchmarks_dir.mkdir()
    own = settings.benchmarks_dir / f"{ROUND}.toml"
    own.write_bytes(shipped_texts()[ROUND] + b"# Ours.\n")
    with serving(settings) as with_own:
        assert send(with_own, olivia, archive="true").status_code == 201
        assert offered(with_own) == [ROUND]
        assert with_own.get(f"/api/v1/benchmarks/{ROUND}.toml").content == own.read_bytes()


def test_an_export_has_the_installed_definitions(client, olivia, tmp_path):
    send(client, olivia, archive="true")
    path, _ = export(services_of(client), tmp_path)
    names = sorted(path.stem for path in (path / "benchmarks").iterdir())

    assert names == sorted([*OWN_BENCHMARKS, ROUND])
