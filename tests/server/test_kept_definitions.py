"""What was published under a definition stays readable when such a definition is refused."""

import json
from dataclasses import replace

import pytest

from finishline.cli.main import main
from finishline.rules.benchmarks.benchmark import parse_benchmark, read_benchmark
from finishline.rules.errors import BenchmarkError
from server.operations.backup import back_up, restore
from server.submissions.rescoring import rescore_submissions
from tests.support.boards import rows_of
from tests.support.copies import answers, serving, settings_of, unserved
from tests.support.services import services_of

MENDED = "value = 97.5"
WRONG = "value = 0.975"  # In percent: reached by whatever is trained for an epoch.


@pytest.fixture
def digits(benchmarks_dir, tmp_path):
    text = (benchmarks_dir / "digits.toml").read_text()
    assert text.count(MENDED) == 1
    path = tmp_path / "benchmarks" / "digits.toml"
    path.parent.mkdir()
    path.write_text(text.replace(MENDED, WRONG))
    (path.parent / "cifar10.toml").write_bytes((benchmarks_dir / "cifar10.toml").read_bytes())
    return read_benchmark(path.read_bytes(), file=path.name)


@pytest.fixture
def settings(settings, digits, tmp_path):
    return settings.model_copy(update={"benchmarks_dir": tmp_path / "benchmarks"})


@pytest.fixture
def client(settings, monkeypatch):
    monkeypatch.setattr("finishline.rules.benchmarks.benchmark._faults", lambda benchmark: ())
    with serving(settings) as earlier:
        yield earlier


@pytest.fixture
def published(replay, make_report):
    report = make_report(replay.seeds(), qualities=[14.8])
    runs = [
        replace(run, status="reached", tta_seconds=run.evaluations[0].seconds)
        for run in report.runs
    ]
    ended = replay.report(replay.claim().json(), replace(report, runs=runs))
    assert ended.json()["outcome"] == "verified", ended.text
    return replay


@pytest.fixture
def upgraded(published, settings, monkeypatch):
    path = settings.benchmarks_dir / "digits.toml"
    monkeypatch.undo()
    with pytest.raises(BenchmarkError):
        parse_benchmark(path.read_bytes(), file=path.name)
    path.write_text(path.read_text().replace(WRONG, MENDED))
    with serving(settings) as later:
        yield later


def test_it_is_shown_audited_and_scored_as_before(published, upgraded, tmp_path, capsys):
    found = answers(upgraded)

    assert {status for status, _ in found.values()} == {200}
    replay, submission = published.verification_id, published.submission_id
    assert b"0.975" in found[f"/submissions/{submission}"][1]
    assert f"proof of {replay}" in found
    board = json.loads(found["/api/v1/leaderboards/digits"][1])
    (entry,) = rows_of(board)
    assert (entry["submission_id"], entry["status"]) == (submission, "verified")
    for more in ("/", f"/verifications/{replay}", f"/verifications/{replay}/charts/replay.json"):
        assert upgraded.get(more).status_code == 200, more

    proof, keys = tmp_path / "proof.zip", tmp_path / "keys.json"
    proof.write_bytes(upgraded.get(f"/api/v1/verifications/{replay}/proof").content)
    keys.write_bytes(upgraded.get("/api/v1/keys").content)
    code = main(["proof", str(proof), "--key", str(keys)])
    assert code == 0, capsys.readouterr().out
    for current in (False, True):
        summary = rescore_submissions(services_of(upgraded), current=current, progress=print)
        assert (summary.submissions, summary.failed) == (1, [])


def test_a_second_server_takes_it_over(published, upgraded, tmp_path):
    expected = answers(upgraded)
    back_up(services_of(upgraded), tmp_path / "backups")
    folder = tmp_path / "second"
    folder.mkdir()
    second = settings_of(folder, f"sqlite:///{folder / 'finishline.db'}")
    second.benchmarks_dir = tmp_path / "benchmarks"
    with unserved(second) as empty:
        restore(empty, tmp_path / "backups")
    with serving(second) as other:
        assert answers(other) == expected
