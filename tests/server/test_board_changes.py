"""After a write only what it changed is read again, and the board is what reading all gives."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from server.app import create_app
from server.base.board_versions import (
    MOST_CHANGES,
    _note_change,
    changes_between,
    raise_board_version,
)
from server.base.database import Database
from server.base.models import Submission
from server.base.settings import Settings
from tests.support.statements import Statement, statements_of

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

BOARD = "/api/v1/leaderboards/digits"
PATHS = (BOARD, f"{BOARD}?metric=cost", f"{BOARD}?sort=rank&order=desc", f"{BOARD}.csv")


@pytest.fixture
def read_whole(settings: Settings) -> Callable[[str], str]:
    """What a process that has nothing in memory answers."""

    def read(path: str) -> str:
        with TestClient(create_app(settings, dispatch=False)) as other:
            return str(other.get(path).text)

    return read


@pytest.fixture
def reads_of_submissions(database: Database) -> Iterator[list[Statement]]:
    """The statements that read figures of submissions for a board."""

    def reads_figures(text: str) -> bool:
        return "submissions.ticket_id" in text and "submissions.check_word" in text

    with statements_of(database, reads_figures) as sent:
        yield sent


def test_a_board_after_each_step_of_a_submission_is_what_reading_all_gives(
    replay: Any,
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    make_report: Callable[..., Any],
    read_whole: Callable[[str], str],
    reads_of_submissions: list[str],
) -> None:
    def submit_another() -> None:
        digits_submission.claim["model"] = "another"
        assert submit(digits_submission).status_code == 201

    client.get(BOARD)
    reads_of_submissions.clear()
    steps = (submit_another, lambda: replay.report(replay.claim().json(), report()), submit_another)

    def report() -> Any:
        return make_report(replay.seeds())

    for step in steps:
        step()
        for path in PATHS:
            assert client.get(path).text == read_whole(path)
    assert '"verified"' in client.get(BOARD).text
    on_board = [
        text for text in reads_of_submissions if "(submissions.benchmark_id || ?) =" in text
    ]
    # How a submission stands, and its details.
    assert len(on_board) == 2 * len(steps)
    assert all("submissions.id IN" in text for text in on_board)
    assert not any("WHERE submissions.benchmark_id" in text for text in reads_of_submissions)


def test_a_change_that_another_process_wrote_has_all_read_again(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    settings: Settings,
    read_whole: Callable[[str], str],
) -> None:
    submit(digits_submission)
    client.get(BOARD)
    other = Database(settings.database_url)
    with other.write() as session:
        session.execute(update(Submission).values(model="changed elsewhere"))
        raise_board_version(session, "digits")
    other.close()
    digits_submission.claim["model"] = "another"
    submit(digits_submission)

    models = {entry["model"] for entry in client.get(BOARD).json()["entries"]}
    assert models == {"changed elsewhere", "another"}
    assert client.get(BOARD).text == read_whole(BOARD)


def test_a_change_of_one_submission_by_another_process_has_that_one_read_again(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    settings: Settings,
    read_whole: Callable[[str], str],
    reads_of_submissions: list[str],
) -> None:
    for model in ("first", "second"):
        digits_submission.claim["model"] = model
        changed = submit(digits_submission).json()["id"]
    client.get(BOARD)
    reads_of_submissions.clear()
    other = Database(settings.database_url)
    with other.write() as session:
        which = update(Submission).where(Submission.id == changed)
        session.execute(which.values(model="changed elsewhere"))
        raise_board_version(session, "digits", submission_id=changed)
    other.close()

    assert '"changed elsewhere"' in client.get(BOARD).text
    assert client.get(BOARD).text == read_whole(BOARD)
    assert all("submissions.id IN" in text for text in reads_of_submissions)
    assert len(reads_of_submissions) == 2


def test_what_changed_is_known_only_if_every_version_is(database: Database) -> None:
    with database.write() as session:
        for version, submission_id in ((4, "a"), (5, "b"), (6, "a"), (8, "c")):
            _note_change(session, "digits", version, submission_id)
    with database.read() as session:
        assert changes_between(session, "digits", 3, 6) == {"a", "b"}
        assert changes_between(session, "digits", 5, 5) == set()
        assert changes_between(session, "digits", 6, 8) is None
        assert changes_between(session, "digits", 6, 5) is None
        assert changes_between(session, "cifar10", 3, 4) is None


def test_of_many_changes_the_latest_are_known(database: Database) -> None:
    with database.write() as session:
        for version in range(1, 2 * MOST_CHANGES + 1):
            _note_change(session, "digits", version, f"s{version}")
    with database.read() as session:
        latest = changes_between(session, "digits", MOST_CHANGES, 2 * MOST_CHANGES)
        assert latest == {f"s{v}" for v in range(MOST_CHANGES + 1, 2 * MOST_CHANGES + 1)}
        assert changes_between(session, "digits", MOST_CHANGES - 1, MOST_CHANGES + 1) is None
        assert changes_between(session, "digits", 0, 2 * MOST_CHANGES) is None
