"""Definitions of archives: the import of a published result installs the one that it needs."""

import json

import pytest
from fastapi.testclient import TestClient

from finishline.rules.archive.definitions import shipped_texts
from server.app import create_app
from server.benchmarks.in_force import PhaseWatch
from server.operations.export import export
from tests.conftest import OWN_BENCHMARKS
from tests.support.boards import rows_of
from tests.support.services import services_of

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
