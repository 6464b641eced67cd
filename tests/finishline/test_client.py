"""The client and the examples of docs/python.md against a server that listens."""

import json
import re
from pathlib import Path

import pytest

import finishline
from finishline import Client
from finishline.api.submissions import ResultView
from finishline.cli.main import main
from tests.support.build import Replay, build_report
from tests.support.trainings import trained_anew


@pytest.fixture
def ada(site, alice):
    with Client(site, alice.secret, retries=0) as made:
        yield made


def test_a_folder_is_one_submission_however_it_is_sent(ada, folder):
    made = ada.submit(folder)
    assert (made.benchmark, made.status, len(made.runs)) == ("digits", "claimed", 3)
    assert isinstance(made.result, ResultView)
    assert made.result.reached == 3

    again = [ada.submit(str(folder / "submission.json")), ada.submit(folder)]
    assert {each.id for each in again} == {made.id}
    claim = json.loads((folder / "submission.json").read_text()) | {"notes": "other"}
    with pytest.raises(finishline.Conflict, match=f"of submission {made.id}"):
        ada.submit(claim, logs=sorted(folder.glob("*.log")))


def test_the_command_and_the_client_send_one_submission(ada, folder, alice, capsys):
    made = ada.submit(folder)
    code = main(["submit", str(folder), "--url", ada.url, "--token", alice.secret, "--json"])
    assert (code, json.loads(capsys.readouterr().out)["id"]) == (0, made.id)
    assert main(["submit", str(folder), "--url", ada.url, "--token", alice.secret]) == 0
    assert capsys.readouterr().out.startswith(f"Submitted before, as {made.id}. Nothing changed.")


def test_a_mapping_and_logs_are_a_submission(ada, folder, digits_submission):
    claim = {name: each for name, each in digits_submission.claim.items() if name != "runs"}
    made = ada.submit(claim, logs=sorted(folder.glob("*.log")))
    assert [run.file for run in made.runs] == ["run_0.log", "run_1.log", "run_2.log"]
    assert ada.log(made, 2) == (folder / "run_2.log").read_bytes()
    assert ada.submit(claim, logs=digits_submission.logs).id == made.id

    others = {name: trained_anew(log, 1) for name, log in digits_submission.logs.items()}
    other = ada.submit(claim, logs=others)
    backwards = ada.submit(dict(reversed(claim.items())), logs=others)
    assert other.id == backwards.id != made.id


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"source": {}, "logs": ["run_9.log"]}, {"logs"}),
        ({"source": {}, "logs": ["a/run.log", "b/run.log"]}, {"logs"}),
        ({"source": {}, "logs": "run_0.log"}, {"logs"}),
        ({"source": "mine", "logs": ["run_0.log"]}, {"logs"}),
        ({"source": "nowhere"}, {None}),
        ({"source": {"notes": float("nan")}, "logs": {"run.log": b""}}, {"submission"}),
        ({"source": {"notes": "\ud800"}, "logs": {"run.log": b""}}, {"submission"}),
        ({"source": {"notes": Path()}, "logs": {"run.log": b""}}, {"submission"}),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is(given, fields, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for name in ("a", "b"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "run.log").write_text("log")
    with Client("http://127.0.0.1:1", retries=0) as client, pytest.raises(finishline.Refused) as no:
        client.submit(**given)
    assert {problem.field for problem in no.value.problems} == fields
    assert no.value.status is None


def test_refusals_say_file_and_line_and_who_may(ada, folder):
    log = folder / "run_1.log"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:4], ":::MLLOG {\n", *lines[4:]]))
    with pytest.raises(finishline.Refused) as refused:
        ada.submit(folder)
    [problem] = refused.value.problems
    assert (problem.file, problem.line, refused.value.status) == ("run_1.log", 5, 422)
    assert "run_1.log line 5" in str(refused.value)

    with pytest.raises(finishline.NotFound) as missing:
        ada.board("no-such")
    assert "digits" in missing.value.detail
    with Client(ada.url, retries=0) as nobody, pytest.raises(finishline.NotSignedIn):
        nobody.submit({}, logs={"run_0.log": b""})
    with pytest.raises(finishline.NotAllowed):
        ada.cancel("abc")
    with Client("http://127.0.0.1:1", retries=0) as far, pytest.raises(finishline.NoAnswer) as away:
        far.quota()
    assert isinstance(away.value, finishline.Unavailable)


def test_lists_go_on_over_every_page(ada, digits_submission, submit):
    made = [submit(digits_submission).json()["id"] for _ in range(3)]
    assert [each.id for each in ada.submissions(benchmark="digits", page_size=2)] == made[::-1]
    assert list(ada.submissions(benchmark="cifar10")) == []
    runs = [(run.submission_id, run.run) for run in ada.runs("digits", page_size=2)]
    assert runs == [(each, index) for each in made for index in range(3)]

    board = ada.board("digits", division="closed", limit=2)
    assert (board.total, len(board.entries)) == (3, 2)
    assert ada.board("digits", limit=2, cursor=board.next_cursor).first == 3
    pairs = ada.compare([ada.submission(made[0]), *made[1:]]).pairs
    assert len(pairs) == 3
    assert ada.benchmark("digits") in ada.benchmarks()


def test_verification_is_watched_to_its_end(ada, client, database, folder, olivia, walter):
    made = ada.submit(folder)
    with Client(ada.url, olivia.secret, retries=0) as organiser:
        asked = organiser.verify(made, reason="record claim")
        assert (asked.state, asked.reason) == ("queued", "record claim")
        replay = Replay(client, database, walter, made.id, asked.id)
        grant = replay.claim().json()
        assert replay.report(grant, build_report(replay.seeds())).status_code == 200
        events = list(ada.watch(asked.id))
        assert [event.name for event in events][-1] == "end"
        ended = ada.wait(asked.id, timeout_seconds=0)
        assert ended.outcome == events[-1].json()["outcome"] == "verified"
        second = organiser.verify(made.id)
        assert organiser.cancel(second.id).state == "cancelled"
        with pytest.raises(finishline.Conflict):
            organiser.cancel(second.id)


def test_an_answer_cannot_be_changed(ada):
    digits = ada.benchmark("digits")
    with pytest.raises(ValueError, match="frozen"):
        digits.id = "other"


PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def replay_what_waits(client, database, worker):
    waiting = client.get("/api/v1/verifications", params={"state": "queued"}).json()
    for view in waiting["verifications"]:
        replay = Replay(client, database, worker, view["submission_id"], view["id"])
        grant = replay.claim().json()
        assert replay.report(grant, build_report(replay.seeds())).status_code == 200


def test_the_examples_of_the_page_run_as_they_are(
    client, database, site, folder, alice, olivia, walter, monkeypatch, capsys
):
    (folder.parent / "runs").mkdir()
    folder.rename(folder.parent / "runs" / "mine")
    monkeypatch.chdir(folder.parent)
    for log in Path("runs/mine").glob("*.log"):
        Path(log.name).write_bytes(trained_anew(log.read_bytes(), 1))
    for name, value in (
        ("FINISHLINE_URL", site),
        ("FINISHLINE_TOKEN", alice.secret),
        ("ORGANISER_TOKEN", olivia.secret),
    ):
        monkeypatch.setenv(name, value)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  (our own examples)
        replay_what_waits(client, database, walter)

    said = capsys.readouterr().out
    assert len(blocks) == 8
    assert names["verification"].outcome == "verified"
    assert "submission.json None model missing" in said
    assert len(Path("digits.csv").read_text().splitlines()) == 6
