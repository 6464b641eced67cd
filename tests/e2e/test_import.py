"""Published archives imported with the real command into a real server."""

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest

from finishline.rules.archive.files import known_sources
from tests.e2e.conftest import run_cli
from tests.support.boards import rows_of

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(120)]


BOARDS = (
    ("tta", "training_time", "tta_seconds"),
    ("cost", "training_cost", "cost_usd"),
    ("latency", "inference_latency", "latency_ms"),
    ("inference_cost", "inference_cost", "cost_usd_per_10000"),
)


def newest_commit(source):
    """The commit of a known archive, without which nothing of it is numbered."""
    return next(each.commits[0] for each in known_sources() if each.name == source)


def board_of(stack, benchmark, **query):
    """The entries of a board."""
    return rows_of(stack.get(f"/leaderboards/{benchmark}?{urlencode({'limit': '100'} | query)}"))


def run_import(stack, kind, path, *, source=None, codes=(0,)):
    """The document of an import, at the newest commit of a known source."""
    commit = [] if source is None else ["--commit", newest_commit(source)]
    return run_cli("import", kind, str(path), *commit, *stack.access("organiser"), codes=codes)


def test_dawnbench_entries_import_into_their_published_order(stack, archives):
    expected = json.loads((archives / "dawnbench" / "expected.json").read_text())
    folder = archives / "dawnbench" / "entries"
    document = run_import(stack, "dawnbench", folder, source="DAWNBench")
    imported = [outcome["path"] for outcome in document["imported"]]
    assert sorted(imported) == sorted(entry["path"] for entry in expected["entries"])
    assert (len(imported), document["skipped"]) == (26, [])
    for metric, board, value in BOARDS:
        published = expected["leaderboards"][f"CIFAR10/{board}"]
        entries = board_of(stack, "cifar10", division="open", metric=metric)
        ranked = [entry for entry in entries if entry["rank"] is not None]
        assert [entry[value] for entry in ranked] == pytest.approx(
            [row["value"] for row in published], rel=1e-9
        )
        assert [
            (entry["submitter"], entry["model"], entry["submitted_on"]) for entry in ranked
        ] == [(row["author"], row["model"], row["timestamp"]) for row in published]


def test_mlperf_packages_import_with_their_normalised_scores_and_only_once(stack, archives):
    expected = json.loads((archives / "mlperf" / "expected_v51.json").read_text())
    folder, source = archives / "mlperf" / "v5.1", "MLPerf Training v5.1"
    document = run_import(stack, "mlperf", folder, source=source)
    assert len(document["imported"]) == expected["n_groups"]
    assert document["runs_imported"] == expected["n_files"]
    for benchmark in sorted({group["benchmark"] for group in expected["groups"]}):
        groups = [group for group in expected["groups"] if group["benchmark"] == benchmark]
        groups.sort(key=lambda group: (group["score_recomputed_scaling_min"], group["org"]))
        entries = board_of(stack, f"mlperf-v5.1-{benchmark}", division="closed")
        entries.sort(key=lambda entry: (entry["tta_seconds"], entry["submitter"]))
        assert {entry["evidence"] for entry in entries} == {"published"}
        assert all(entry["rank"] is not None for entry in entries)
        assert [entry["submitter"] for entry in entries] == [group["org"] for group in groups]
        assert [entry["tta_seconds"] / 60 for entry in entries] == pytest.approx(
            [group["score_recomputed_scaling_min"] for group in groups], rel=1e-6
        )
    again = run_import(stack, "mlperf", folder, source=source)
    assert (len(again["imported"]), len(again["already_there"])) == (0, expected["n_groups"])
    counted = stack.get("/benchmarks/mlperf-v5.1-retinanet")
    retinanet = [group for group in expected["groups"] if group["benchmark"] == "retinanet"]
    assert counted["submissions"] == len(retinanet)


def test_malformed_entries_are_refused_with_every_problem_and_the_others_go_on(stack, archives):
    document = run_import(stack, "dawnbench", archives / "dawnbench" / "malformed", codes=(1,))
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


def test_sets_of_v0_5_import_with_their_published_times(stack, archives):
    expected = json.loads((archives / "mlperf" / "expected_v05.json").read_text())
    document = run_import(stack, "mlperf", archives / "mlperf" / "v0.5")
    assert (document["refused"], document["failed"], document["skipped"]) == ([], [], [])
    assert len(document["imported"]) == len(expected)
    assert document["runs_imported"] == sum(len(runs) for runs in expected.values())
    ids = {each["path"]: each["submission_id"] for each in document["imported"]}
    for path, runs in expected.items():
        (submission_id,) = [found for place, found in ids.items() if place.endswith(path)]
        view = stack.get(f"/submissions/{submission_id}")
        # A log of this round may say that it failed, and need not say that it did not.
        seconds = {Path(r["file"]).name: r["t_stop"] for r in runs if r["success"] is not False}
        reached = {run["file"]: run["tta_seconds"] for run in view["runs"] if run["reached"]}
        assert reached == pytest.approx(seconds, rel=1e-6)
        entries = board_of(stack, view["benchmark"], division="closed")
        assert submission_id in [entry["submission_id"] for entry in entries]


def test_an_open_set_imports_and_stands_on_the_open_board_alone(stack, archives):
    document = run_import(stack, "mlperf", archives / "mlperf" / "synthetic_open")
    (imported,) = document["imported"]
    (entry,) = board_of(stack, "mlperf-v5.1-llama2_70b_lora", division="open")
    assert (entry["submission_id"], entry["submitter"]) == (imported["submission_id"], "EXAMPLE")
    closed = board_of(stack, "mlperf-v5.1-llama2_70b_lora", division="closed")
    assert imported["submission_id"] not in [other["submission_id"] for other in closed]
