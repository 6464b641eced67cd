"""Calibrations, and two verifications side by side, as pages."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.base.database import Database
from server.base.models import Calibration, CalibrationRunRow
from server.base.settings import Settings
from tests.support.pages import BROWSER, HOSTILE, words_of

CURVE = [14.0, 45.0, 73.0, 85.0, 91.0, 95.5, 97.4, 98.1, 98.3]


@pytest.fixture
def calibration_id(client: TestClient, database: Database, olivia: Any) -> str:
    """A calibration of digits with twelve runs at one batch size, asked for by somebody hostile."""
    body = {"benchmark": "digits", "batch_sizes": [64], "runs": 12, "reason": HOSTILE}
    view = client.post("/api/v1/calibrations", json=body, headers=olivia.headers).json()
    with database.write() as session:
        for seed in range(12):
            session.add(
                CalibrationRunRow(
                    calibration_id=view["id"],
                    batch_size=64,
                    seed=seed,
                    verification_id=view["chunks"][0]["verification_id"],
                    status="reached",
                    quality=[quality + 0.05 * (seed % 7) for quality in CURVE],
                    seconds=[0.1 * step for step in range(1, 10)],
                    system={},
                )
            )
        session.get_one(Calibration, view["id"]).state = "done"
    return str(view["id"])


def test_a_calibration_shows_its_figures_its_bands_and_what_it_would_change(
    calibration_id: str, client: TestClient, olivia: Any
) -> None:
    address = f"/calibrations/{calibration_id}"
    page = client.get(address, headers=BROWSER)
    words = words_of(page.text)

    assert page.status_code == 200
    assert "Not adopted; not used for verdicts." in words
    assert "12 of 12 runs of the reference, requested by olivia" in words
    # Seeds 2 to 6 and 9 to 11 reach at the seventh evaluation: 97.4 + 0.1 and more; 12 runs.
    assert "64 12 of 12 0 12 7.3333 0.492 7 to 8" in words
    assert "Compared with the runs of the benchmark's file" in words
    assert "<script>alert" not in page.text
    assert 'style="' not in page.text
    figure = client.get(f"{address}/charts/bands.json").json()
    assert {trace["name"] for trace in figure["data"]} == {
        "a run", "mean", "lower limit", "control-point band",
    }  # fmt: skip

    client.post(
        f"/api/v1{address}/adopt", json={"reason": "it is measured here"}, headers=olivia.headers
    )
    words = words_of(client.get(address, headers=BROWSER).text)
    assert "In force: new replays under this definition are judged by these runs." in words
    assert "by olivia, because: it is measured here." in words
    assert f'href="{address}"' in client.get("/benchmarks/digits/convergence").text
    assert client.get("/calibrations/nothing", headers=BROWSER).status_code == 404


def test_a_calibration_of_an_earlier_definition_is_in_force_nowhere(
    calibration_id: str, client: TestClient, settings: Settings, tmp_path: Path, olivia: Any
) -> None:
    address = f"/calibrations/{calibration_id}"
    body = {"reason": "it is measured here"}
    adopted = client.post(f"/api/v1{address}/adopt", json=body, headers=olivia.headers).json()
    assert (adopted["judges"], adopted["outdated"]) == (True, False)

    folder = tmp_path / "benchmarks"
    shutil.copytree(settings.benchmarks_dir, folder)
    digits = folder / "digits.toml"
    digits.write_text(digits.read_text() + "\n# Another.\n")
    settings.benchmarks_dir = folder
    with TestClient(create_app(settings, dispatch=False)) as later:
        assert later.get(f"/api/v1{address}").json()["outdated"]
        [listed] = later.get("/api/v1/calibrations").json()["calibrations"]
        assert listed["outdated"]
        page = words_of(later.get(address, headers=BROWSER).text)
        assert "For an earlier definition; not used for new replays." in page
        assert "In force" not in page
        page = words_of(later.get("/calibrations", headers=BROWSER).text)
        assert ", for an earlier definition" in page
        assert "in force" not in page


def test_calibrations_are_listed_by_benchmark_with_their_state(
    calibration_id: str, client: TestClient
) -> None:
    page = client.get("/calibrations?benchmark=digits", headers=BROWSER).text
    words = words_of(page)

    assert f'href="/calibrations/{calibration_id}"' in page
    assert "1 ● done 64 12 of 12 not adopted" in words
    assert "<script>alert" not in page
    none = words_of(client.get("/calibrations?benchmark=cifar10", headers=BROWSER).text)
    assert "finishline calibrate cifar10" in none


def test_two_verifications_stand_side_by_side(
    replay: Any, client: TestClient, olivia: Any, make_report: Callable[..., Any]
) -> None:
    first = replay.verification_id
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    asked = f"/api/v1/submissions/{replay.submission_id}/verifications"
    replay.verification_id = client.post(asked, headers=olivia.headers).json()["id"]
    far_below = make_report(replay.seeds(), qualities=[10.0] * 8)
    replay.report(replay.claim().json(), far_below)

    address = f"/verifications/compare?first={first}&second={replay.verification_id}"
    page = client.get(address, headers=BROWSER)
    words = words_of(page.text)
    assert page.status_code == 200
    assert "They disagree: verified and rejected" in words
    assert "Published: it sets the status." in words
    assert "did_not_reach" in words
    assert "No differences reported." in words
    submission = client.get(f"/submissions/{replay.submission_id}", headers=BROWSER).text
    assert f'href="{address.replace("&", "&amp;")}"' in submission
    same = client.get(f"/verifications/compare?first={first}&second={first}", headers=BROWSER)
    assert same.status_code == 422
    assert "Choose two different verifications." in words_of(same.text)
