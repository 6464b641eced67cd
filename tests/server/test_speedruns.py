"""Records of the NanoGPT speedrun on a server: its board, its time line and the figures of each."""

import json
import re

import pytest

from finishline.cli.main import main
from tests.support.boards import rows_of
from tests.support.serving import serving
from tests.support.speedrun_folders import LOSSES, write_records, write_runs

COMMIT = "f411b3d346aa52d3504324ca93c230fd84c6c07f"


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"max_log_files": 20})


@pytest.fixture
def bring(client, olivia, capsys):
    def respond(request, body):
        answer = client.request(
            request.command, request.path, content=body, headers=dict(request.headers.items())
        )
        repeated = {"Idempotent-Replayed": answer.headers.get("Idempotent-Replayed", "false")}
        return answer.status_code, repeated, answer.content

    def run(folder):
        with serving(respond) as url:
            access = ("--json", "--url", url, "--token", olivia.secret)
            main(["import", "nanogpt", str(folder), "--commit", COMMIT, *access])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def imported(bring, tmp_path):
    document = bring(write_records(tmp_path / "nanogpt"))
    assert (document["refused"], document["failed"]) == ([], [])
    return {each["path"].rpartition("/")[2]: each["submission_id"] for each in document["imported"]}


def test_an_import_makes_the_board_of_the_track(imported, client, bring, tmp_path):
    rows = rows_of(client.get("/api/v1/leaderboards/nanogpt?division=open").json())
    figures = [[row["rank"], row["model"], row["submitter"], row["tta_seconds"]] for row in rows]
    assert figures == [
        [1, "Smaller steps", "@carl", pytest.approx(74.2)],
        [2, "First of all", "@ann, @ben", pytest.approx(84.2)],
    ]
    page = client.get("/benchmarks/nanogpt").text
    assert "Smaller steps" in page
    assert "2 to 100" in page
    assert "Published and reviewed by the maintainers of" in page
    assert "It is listed as claimed, below the ranked rows." in page
    # One page has 25 rows by default, and a link to all of them.
    first = client.get("/benchmarks/nanogpt?limit=1").text
    assert 'href="?division=open&amp;limit=2#board">Show all 2<' in first
    listed = client.get("/submissions?source=archives").text
    days = re.findall(r'<time datetime="(\d{4}-\d\d-\d\d)">', listed)
    assert days == sorted(days, reverse=True)
    assert len(set(days)) > 1
    benchmark = client.get("/api/v1/benchmarks/nanogpt").json()
    assert (benchmark["runs"]["count"], benchmark["runs"]["most"]) == (2, 100)
    assert benchmark["convergence_unit"] == "steps"
    # The other clock has no time without a ledger.
    board = client.get("/api/v1/leaderboards/nanogpt?division=open&clock=mlperf").json()
    assert {row["tta_seconds"] for row in rows_of(board)} == {None}
    again = bring(tmp_path / "nanogpt")
    assert (len(again["already_there"]), again["imported"]) == (2, [])


def test_an_accepted_result_shows_its_statistics(imported, client):
    submission = imported["this_pr"]
    at_stop = client.get(f"/api/v1/submissions/{submission}").json()["result"]["at_stop"]
    assert (at_stop["runs"], at_stop["step"]) == (5, 1375)
    assert at_stop["mean_seconds"] == pytest.approx(74.2)
    assert at_stop["mean_quality"] == pytest.approx(sum(LOSSES) / 5)
    assert 0 < at_stop["p_value"] < 0.01
    page = client.get(f"/submissions/{submission}").text
    spread = "5 runs, standard deviation 0.158 s"
    for words in ("First of all by @ann", "Mean time", spread, "Mean quality", "3.2785"):
        assert words in page
    scoring = client.get(f"/submissions/{submission}?tab=scoring").text
    for words in ("Steps to target", "5 published runs counted", "from the published runs"):
        assert words in scoring
    board = client.get("/benchmarks/nanogpt?round=archive").text
    assert "/rounds/" not in board
    assert submission in board


def test_the_time_line_has_each_record_with_its_day_and_drop(imported, client):
    (line,) = client.get("/api/v1/benchmarks/nanogpt/records").json()["divisions"]
    first, second = line["records"]
    assert (first["date"], first["model"]) == ("2026-03-06", "First of all")
    assert first["margin_percent"] is None
    assert (second["date"], second["submitter"]) == ("2026-07-17", "@carl")
    assert second["margin_percent"] == pytest.approx(100 * (1 - 74.2 / 84.2))
    page = client.get("/benchmarks/nanogpt/charts/records?division=open").text
    assert page.index("Smaller steps") < page.index("First of all")
    assert "0.88" in page


def test_what_missed_the_target_says_why(bring, client, tmp_path):
    track = tmp_path / "records" / "track_1_short"
    write_runs(track / "2026-07-20_AloneAgain", [3.2701])
    write_runs(track / "2026-07-21_Beyond", [3.2799, 3.2805, 3.2796], first_ms=80_000, name="c")
    alone, beyond = bring(tmp_path)["imported"]
    page = client.get(f"/submissions/{beyond['submission_id']}").text
    assert "a mean beyond 3.28 with p &lt; 0.01" in page or "p-value" in page
    found = client.get(f"/api/v1/submissions/{alone['submission_id']}").json()
    codes = {violation["code"] for violation in found["result"]["violations"]}
    assert codes == {"too_few_runs", "target_not_proven"}
    assert (found["model"], found["submitter"]) == ("Alone Again", "modded-nanogpt")


def test_the_medium_track_takes_a_single_run(bring, client, tmp_path):
    write_runs(tmp_path / "records" / "track_2_medium" / "2025-04-16_One", [2.9193], stop=6450)
    bring(tmp_path)
    (row,) = rows_of(client.get("/api/v1/leaderboards/nanogpt-medium?division=open").json())
    assert (row["rank"], row["tta_seconds"]) == (1, 84.0)
