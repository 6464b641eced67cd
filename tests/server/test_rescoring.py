"""`finishline admin rescore`: results again from their raw logs, and only what changed."""

import hashlib
import json
import shutil

import pytest
from sqlalchemy import select

from server.base.models import Board, PublishedResult, RunRow, Submission
from tests.support.admin import environment_of, run_finishline
from tests.support.boards import rows_of
from tests.support.copies import serving

RIGHT_TTA = 0.944  # Epochs of 0.11, 0.114 and 0.118 s and evaluations of 4 ms: 8 x 0.118 s.


@pytest.fixture
def rescore(settings):
    def run(*arguments):
        said = run_finishline(environment_of(settings), "rescore", *arguments)
        return said.code, json.loads(said.out or said.err)

    return run


@pytest.fixture
def digits_file(settings, benchmarks_dir, tmp_path):
    """The definition of digits in another folder, which the server takes from its next start on."""
    settings.benchmarks_dir = tmp_path / "benchmarks"
    shutil.copytree(benchmarks_dir, settings.benchmarks_dir)
    return settings.benchmarks_dir / "digits.toml"


@pytest.fixture
def submission_id(digits_submission, submit):
    return submit(digits_submission).json()["id"]


def damage(database, submission_id, **figures):
    with database.write() as session:
        submission = session.get_one(Submission, submission_id)
        for name, value in figures.items():
            setattr(submission, name, value)


def version(database):
    """The version of the board, as it is stored: a server may take a moment to see it."""
    with database.read() as session:
        return session.scalars(select(Board.version)).one()


def test_nothing_changes_where_nothing_changed(submission_id, client, database, rescore):
    before, board = client.get(f"/api/v1/submissions/{submission_id}").json(), version(database)
    code, summary = rescore()

    assert code == 0
    assert summary == {"definition": "stored", "dry_run": False} | {
        "submissions": 1, "unchanged": 1, "changed": [], "failed": []
    }  # fmt: skip
    assert client.get(f"/api/v1/submissions/{submission_id}").json() == before
    assert version(database) == board


def test_a_damaged_figure_is_restored_and_reported(submission_id, client, database, rescore):
    before, board = client.get(f"/api/v1/submissions/{submission_id}").json(), version(database)
    damage(database, submission_id, tta_seconds=0.5)
    _, dry = rescore("--dry-run")
    assert [c["field"] for c in dry["changed"][0]["changes"]] == ["tta_seconds"]
    with database.read() as session:
        assert session.get_one(Submission, submission_id).tta_seconds == 0.5
    assert version(database) == board
    with database.write() as session:
        harm = {"seed": 7, "curve": [[1.0, 2.0, 90.0, None]] * 5}
        session.query(RunRow).filter_by(submission_id=submission_id, index=1).update(harm)
    assert rescore("--benchmark", "cifar10")[1]["submissions"] == 0
    code, summary = rescore("--benchmark", "digits")

    assert code == 0
    (changed,) = summary["changed"]
    assert changed["id"] == submission_id
    assert changed["changes"] == [
        {"field": "tta_seconds", "before": 0.5, "after": pytest.approx(RIGHT_TTA)},
        {"field": "runs[1].seed", "before": 7, "after": 101},
        {"field": "runs[1].curve", "before": "5 items", "after": "8 items"},
    ]
    assert client.get(f"/api/v1/submissions/{submission_id}").json() == before
    assert version(database) == board + 1


@pytest.mark.parametrize("harm", ["log gone", "log changed", "result is not JSON"])
def test_a_broken_submission_does_not_stop_the_rest(
    harm, digits_submission, submit, settings, database, rescore, make_log
):
    broken = submit(digits_submission).json()
    digits_submission.logs = {
        name: make_log(200 + i, name=name) for i, name in enumerate(digits_submission.logs)
    }
    good = submit(digits_submission).json()
    damage(database, good["id"], tta_seconds=0.5)
    sha256 = broken["runs"][0]["log_sha256"]
    log = settings.artifacts_dir / sha256[:2] / sha256
    if harm == "log gone":
        log.unlink()
    elif harm == "log changed":
        log.write_bytes(log.read_bytes().replace(b"0.981", b"0.991"))
        log.write_bytes(log.read_bytes() + b"\n")
    else:
        with database.engine.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE submissions SET result = '{{' WHERE id = '{broken['id']}'"  # noqa: S608
            )
    code, summary = rescore()

    assert code == 1
    assert [failed["id"] for failed in summary["failed"]] == [broken["id"]]
    assert [changed["id"] for changed in summary["changed"]] == [good["id"]]
    reason = {
        "log gone": f"run_0.log cannot be read from the artifact store (No such file or directory);"
        f" expected a file of SHA-256 {sha256}.",
        "log changed": "run_0.log in the artifact store differs from the upload (SHA-256).",
        "result is not JSON": "JSONDecodeError: ",
    }[harm]
    assert summary["failed"][0]["error"].startswith(reason)
    with database.read() as session:
        kept = session.get_one(Submission, good["id"]).tta_seconds
    assert kept == pytest.approx(good["result"]["tta_seconds"])


def test_the_current_definition_is_used(submission_id, settings, rescore, digits_file):
    text = digits_file.read_text()
    assert text.count("value = 97.5") == 1
    digits_file.write_text(text.replace("value = 97.5", "value = 99.5"))
    with serving(settings):
        _, stored = rescore()
    code, current = rescore("--definition", "current")

    assert (code, stored["unchanged"], current["definition"]) == (0, 1, "current")
    changes = {c["field"]: c["after"] for c in current["changed"][0]["changes"]}
    # Nothing reaches 99.5 %, but each log says success: that rule is broken, and nothing is ranked.
    assert (changes["tta_seconds"], changes["eligible"]) == (None, False)
    assert changes["result.reached"] == 0
    with serving(settings) as client:
        view = client.get(f"/api/v1/submissions/{submission_id}").json()
    assert view["benchmark_sha256"] == changes["benchmark_sha256"]
    assert view["result"]["violations"][0]["code"] == "success_without_target"
    _, again = rescore("--definition", "current")
    assert again["unchanged"] == 1


def test_a_board_marks_what_was_scored_by_other_rules(submission_id, settings, digits_file):
    own = hashlib.sha256(digits_file.read_bytes()).hexdigest()

    def board():
        with serving(settings) as client:
            found = client.get("/api/v1/leaderboards/digits").json()
            [entry] = rows_of(found)
            page = client.get("/benchmarks/digits").text
            return entry["benchmark_sha256"], found["other_rules"], page

    kept, others, page = board()
    assert (kept, others, "other rules" in page.lower()) == (own, {}, False)
    # Another definition by whose rules a figure is the same one.
    digits_file.write_text(digits_file.read_text() + "\n# Another.\n")
    kept, others, page = board()
    assert (kept, others, "other rules" in page.lower()) == (own, {}, False)
    digits_file.write_text(digits_file.read_text().replace("value = 97.5", "value = 98.0"))
    kept, others, page = board()
    assert (kept, others) == (own, {own: "version 1, other target"})
    assert "other rules: version 1, other target</span>" in page


def test_under_way_keeps_its_definition(replay, olivia, settings, rescore, digits_file):
    digits_file.write_text(digits_file.read_text() + "\n# Another.\n")
    with serving(settings):
        pass  # The file is in force from the start on.
    for status in ("verifying", "verified"):  # An earlier verdict stands meanwhile.
        assert replay.status() == status
        code, summary = rescore("--definition", "current")
        assert (code, summary["changed"]) == (1, [])
        assert "being verified" in summary["failed"][0]["error"]
        if status == "verifying":
            replay.finish()
            replay.ask_again(olivia)


def test_oldest_is_rescored_first(digits_submission, submit, make_log, database, rescore):
    ids = []
    for place in range(3):
        digits_submission.logs = {
            name: make_log(100 * place + i, name=name)
            for i, name in enumerate(digits_submission.logs)
        }
        ids.append(submit(digits_submission).json()["id"])
        damage(database, ids[-1], tta_seconds=0.5)
    _, summary = rescore()

    assert [changed["id"] for changed in summary["changed"]] == ids


def test_an_unknown_benchmark_is_said(rescore, submission_id):
    code, told = rescore("--benchmark", "mnist")

    assert code == 1
    assert "There is no benchmark 'mnist'" in told["error"]["message"]


def test_an_archive_gets_its_day(digits_submission, submit, olivia, client, database, rescore):
    digits_submission.form = {"archive": "true"}
    digits_submission.claim["submitted_on"] = "2024-11-13"
    stored = submit(digits_submission, by=olivia).json()["id"]
    with database.write() as session:
        session.get_one(PublishedResult, stored).published_on = None
    _, summary = rescore()

    (changed,) = summary["changed"]
    assert changed["changes"] == [{"field": "submitted_on", "before": None, "after": "2024-11-13"}]
    assert client.get(f"/api/v1/submissions/{stored}").json()["submitted_on"] == "2024-11-13"
