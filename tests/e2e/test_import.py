"""Published archives imported with the real command into a real server on SQLite."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from finishline.rules.archive.files import KNOWN_SOURCES
from tests.support.admin import run_admin
from tests.support.processes import asking, free_port, stop, wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(120)]


BOARDS = (
    ("tta", "training_time", "tta_seconds"),
    ("cost", "training_cost", "cost_usd"),
    ("latency", "inference_latency", "latency_ms"),
    ("inference_cost", "inference_cost", "cost_usd_per_10000"),
)


def newest_commit(source):
    """The commit of a known archive, without which nothing of it is numbered."""
    return next(each.commits[0] for each in KNOWN_SOURCES if each.name == source)


@dataclass
class Server:
    """A server process with an empty database, and the environment of an organiser."""

    url: str
    environment: dict[str, str]

    def board(self, benchmark, **query):
        """The entries of a board."""
        address = f"{self.url}/api/v1/leaderboards/{benchmark}"
        answer = asking.get(address, params={"limit": "100"} | query, timeout=10.0)
        assert answer.status_code == 200, answer.text
        return answer.json()["entries"]

    def run_import(self, kind, path, *, source=None):
        """The exit code and the document of an import, at the newest commit of a known source."""
        commit = [] if source is None else ["--commit", newest_commit(source)]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "finishline.cli.main",
                "import",
                kind,
                str(path),
                *commit,
                "--json",
            ],
            capture_output=True,
            env=self.environment,
            timeout=60,
            check=False,
        )
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {
        "FINISHLINE_DATABASE_URL": f"sqlite:///{folder / 'finishline.db'}",
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_BROKER_URL": f"redis+socket://{folder / 'nobody.sock'}",
        "FINISHLINE_URL": url,
    }
    assert run_admin(environment, "migrate").code == 0
    made = run_admin(environment, "token", "--user", "olga", "--role", "organiser")
    environment["FINISHLINE_TOKEN"] = json.loads(made.out)["token"]
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for(lambda: asking.get(f"{url}/healthz"), seconds=60, what="the server to answer")
        yield Server(url, environment)
    finally:
        stop(process)
        log.close()


def test_dawnbench_entries_import_into_their_published_order(server, archives):
    expected = json.loads((archives / "dawnbench" / "expected.json").read_text())
    code, document = server.run_import(
        "dawnbench", archives / "dawnbench" / "entries", source="DAWNBench"
    )
    assert code == 0
    imported = [outcome["path"] for outcome in document["imported"]]
    assert sorted(imported) == sorted(entry["path"] for entry in expected["entries"])
    assert (len(imported), document["skipped"]) == (26, [])
    for metric, board, value in BOARDS:
        published = expected["leaderboards"][f"CIFAR10/{board}"]
        entries = server.board("cifar10", division="open", metric=metric)
        ranked = [entry for entry in entries if entry["rank"] is not None]
        assert [entry[value] for entry in ranked] == pytest.approx(
            [row["value"] for row in published], rel=1e-9
        )
        assert [
            (entry["submitter"], entry["model"], entry["submitted_on"]) for entry in ranked
        ] == [(row["author"], row["model"], row["timestamp"]) for row in published]


def test_mlperf_packages_import_with_their_normalised_scores_and_only_once(server, archives):
    expected = json.loads((archives / "mlperf" / "expected_v51.json").read_text())
    folder, source = archives / "mlperf" / "v5.1", "MLPerf Training v5.1"
    code, document = server.run_import("mlperf", folder, source=source)
    assert code == 0
    assert len(document["imported"]) == expected["n_groups"]
    assert document["runs_imported"] == expected["n_files"]
    for benchmark in sorted({group["benchmark"] for group in expected["groups"]}):
        groups = [group for group in expected["groups"] if group["benchmark"] == benchmark]
        groups.sort(key=lambda group: (group["score_recomputed_scaling_min"], group["org"]))
        entries = server.board(f"mlperf-v5.1-{benchmark}", division="closed")
        entries.sort(key=lambda entry: (entry["tta_seconds"], entry["submitter"]))
        assert {entry["evidence"] for entry in entries} == {"published"}
        assert all(entry["rank"] is not None for entry in entries)
        assert [entry["submitter"] for entry in entries] == [group["org"] for group in groups]
        assert [entry["tta_seconds"] / 60 for entry in entries] == pytest.approx(
            [group["score_recomputed_scaling_min"] for group in groups], rel=1e-6
        )
    code, again = server.run_import("mlperf", folder, source=source)
    assert code == 0
    assert (len(again["imported"]), len(again["already_there"])) == (0, expected["n_groups"])
    counted = asking.get(f"{server.url}/api/v1/benchmarks/mlperf-v5.1-retinanet").json()
    retinanet = [group for group in expected["groups"] if group["benchmark"] == "retinanet"]
    assert counted["submissions"] == len(retinanet)


def test_malformed_entries_are_refused_with_every_problem_and_the_others_go_on(server, archives):
    code, document = server.run_import("dawnbench", archives / "dawnbench" / "malformed")
    assert code == 1
    assert document["failed"] == []
    assert [outcome["path"][:3] for outcome in document["imported"]] == ["001"]  # Slow, not broken.
    refused = {outcome["path"][:3]: outcome["problems"] for outcome in document["refused"]}
    broken = ["002", "027", "029", "030", "035", "036", "039", "041", "089", "091"]
    assert sorted(refused) == broken
    # An inference entry in another metric than its benchmark's.
    assert [each["field"] for each in refused["089"]] == ["top1Accuracy"]
    assert [(each["line"], each["field"]) for each in refused["041"]] == [
        (2, "version"),
        (9, "costPerHour"),
    ]
    assert all(each["file"].startswith("030/") for each in refused["030"])


def test_sets_of_v0_5_import_with_their_published_times(server, archives):
    expected = json.loads((archives / "mlperf" / "expected_v05.json").read_text())
    code, document = server.run_import("mlperf", archives / "mlperf" / "v0.5")
    assert code == 0
    assert (document["refused"], document["failed"], document["skipped"]) == ([], [], [])
    assert len(document["imported"]) == len(expected)
    assert document["runs_imported"] == sum(len(runs) for runs in expected.values())
    ids = {each["path"]: each["submission_id"] for each in document["imported"]}
    for path, runs in expected.items():
        (submission_id,) = [found for place, found in ids.items() if place.endswith(path)]
        address = f"{server.url}/api/v1/submissions/{submission_id}"
        view = asking.get(address, timeout=10.0).json()
        # A log of this round may say that it failed, and need not say that it did not.
        seconds = {Path(r["file"]).name: r["t_stop"] for r in runs if r["success"] is not False}
        reached = {run["file"]: run["tta_seconds"] for run in view["runs"] if run["reached"]}
        assert reached == pytest.approx(seconds, rel=1e-6)
        board = server.board(view["benchmark"], division="closed")
        assert submission_id in [entry["submission_id"] for entry in board]


def test_an_open_set_imports_and_stands_on_the_open_board_alone(server, archives):
    code, document = server.run_import("mlperf", archives / "mlperf" / "synthetic_open")
    assert code == 0
    (imported,) = document["imported"]
    (entry,) = server.board("mlperf-v5.1-llama2_70b_lora", division="open")
    assert (entry["submission_id"], entry["submitter"]) == (imported["submission_id"], "EXAMPLE")
    closed = server.board("mlperf-v5.1-llama2_70b_lora", division="closed")
    assert imported["submission_id"] not in [other["submission_id"] for other in closed]
