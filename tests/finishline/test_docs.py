"""The examples of docs/python.md, run in order against a server."""

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.server.conftest import Person, Replay, build_report
from tests.support.trainings import trained_anew

PAGE = Path(__file__).parents[2] / "docs" / "python.md"

pytestmark = pytest.mark.usefixtures("shown_claims")


def replay_what_waits(client: TestClient, database: Any, worker: Person) -> None:
    """Be the worker for every verification that is queued."""
    waiting = client.get("/api/v1/verifications", params={"state": "queued"}).json()
    for view in waiting["verifications"]:
        replay = Replay(client, database, worker, view["submission_id"], view["id"])
        grant = replay.claim().json()
        assert replay.report(grant, build_report(replay.seeds())).status_code == 200


def test_the_examples_of_the_page_run_as_they_are(
    client: TestClient,
    database: Any,
    site: str,
    folder: Path,
    alice: Person,
    olivia: Person,
    walter: Person,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
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
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  (our own examples)
        replay_what_waits(client, database, walter)

    said = capsys.readouterr().out
    assert len(blocks) == 7
    assert names["verification"].outcome == "verified"
    assert "submission.json None model missing" in said
    assert len(Path("digits.csv").read_text().splitlines()) == 6
