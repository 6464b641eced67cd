"""A benchmark may list checked claims below what it numbers, by their own times."""

import csv
import html
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.board_versions import raise_board_version
from server.base.database import Database
from server.base.models import Submission
from server.base.settings import Settings
from tests.support.pages import words_of

BOARD = "/api/v1/leaderboards/digits"


@pytest.fixture(autouse=True)
def listed(settings: Settings, tmp_path: Path) -> None:
    """A server whose digits lists the claims whose epochs agree."""
    folder = tmp_path / "definitions"
    shutil.copytree(settings.benchmarks_dir, folder)
    with (folder / "digits.toml").open("a") as file:
        file.write('\n[ranking]\nnumbers = ["measured", "published", "epochs_agree"]\n')
    settings.benchmarks_dir = folder


@pytest.fixture
def agreed(replay: Any, make_report: Any, database: Database) -> str:
    """A claim made with its submitter's own code and a ticket, whose epochs agree."""
    with database.write() as session:
        submission = session.get_one(Submission, replay.submission_id)
        submission.trained_with, submission.ticket_id = "own", "a-ticket"
    sent = replay.report(replay.claim().json(), make_report(replay.seeds()))
    assert sent.status_code == 200, sent.text
    return str(replay.submission_id)


def test_a_listed_claim_has_a_place_of_its_own_kind_and_no_rank(
    agreed: str, client: TestClient
) -> None:
    (entry,) = client.get(BOARD).json()["entries"]
    places = ("rank", "listed_rank", "provisional_rank", "not_separated_from", "tied")
    assert [entry[name] for name in places] == [None, 1, None, None, False]
    (row,) = csv.DictReader(io.StringIO(client.get(f"{BOARD}.csv").text))
    assert (row["rank"], row["listed_rank"]) == ("", "1")
    view = client.get(f"/api/v1/submissions/{agreed}").json()
    assert (view["rank"], view["listed_rank"]) == (None, 1)
    records = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    assert [one["records"] for one in records] == [[]] * len(records)


def test_the_list_has_a_heading_of_its_own_on_the_board(agreed: str, client: TestClient) -> None:
    board = html.unescape(words_of(client.get("/benchmarks/digits").text))
    assert "Claimed: times are the submitters' own" in board
    assert "[1]" in board
    page = words_of(client.get(f"/submissions/{agreed}").text)
    assert "Place [1] of the claims listed" in page
    assert "Listed among the claims" in page


def test_a_claim_without_a_ticket_is_not_in_the_list(
    agreed: str, database: Database, client: TestClient
) -> None:
    with database.write() as session:
        session.get_one(Submission, agreed).ticket_id = None
        raise_board_version(session, "digits", submission_id=agreed)
    (entry,) = client.get(BOARD).json()["entries"]

    assert (entry["listed_rank"], entry["provisional_rank"]) == (None, 1)
    assert entry["unranked_reason"].endswith("made without a ticket")
