"""Benchmarks and their phases: over the API and in the browser."""

import hashlib
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.app import create_app
from server.base.database import utc_now
from server.base.models import BenchmarkPhases, Submission
from server.base.places import SOURCE
from server.benchmarks.in_force import PhaseWatch
from tests.conftest import OWN_BENCHMARKS
from tests.support.pages import BROWSER, ORIGIN, sign_in
from tests.support.services import services_of
from tests.support.trainings import trained_anew

PHASES = "/api/v1/benchmarks/digits/phases"
HOUR = timedelta(hours=1)


def moment(offset):
    return (utc_now() + offset).isoformat()


@pytest.fixture
def set_phases(client, olivia):
    """Sets the dates of digits as an organiser, as distances from this moment."""

    def change(*, by=None, unfreeze=False, **dates):
        body = {name: None if at is None else moment(at) for name, at in dates.items()}
        body |= {"reason": "the winter round", "unfreeze": unfreeze}
        return client.post(PHASES, json=body, headers=(by or olivia).headers)

    return change


def test_closed_takes_nothing(set_phases, submit, digits_submission, client, olivia, row_counts):
    assert submit(digits_submission, key="first").status_code == 201
    made = set_phases(opens_at=HOUR)
    assert made.status_code == 201, made.text
    opens = made.json()["opens_at"][:16].replace("T", " ")
    before = row_counts()
    refused = submit(digits_submission)
    assert refused.status_code == 409
    assert opens in refused.json()["detail"]
    assert row_counts() == before
    # What was taken once is answered as it was.
    assert submit(digits_submission, key="first").status_code == 201
    assert set_phases(opens_at=-2 * HOUR, closes_at=-HOUR).status_code == 201
    assert submit(digits_submission).status_code == 409
    # Archives are exempt, and an organiser's own submission is not.
    assert submit(digits_submission, by=olivia).status_code == 409
    digits_submission.form = {"archive": "true"}
    assert submit(digits_submission, by=olivia).status_code == 201
    digits_submission.form = {}
    assert set_phases(closes_at=HOUR).status_code == 201
    assert submit(digits_submission).status_code == 201
    told = client.get("/api/v1/benchmarks/digits").json()["phases"]
    assert (told["phase"], told["takes_submissions"]) == ("open", True)
    listed = client.get("/api/v1/benchmarks").json()["benchmarks"]
    assert [b["phases"]["sentence"] for b in listed if b["id"] == "digits"] == [told["sentence"]]
    assert "Closes" in client.get("/benchmarks/digits").text


def test_what_was_set_is_kept_with_who_and_why(set_phases, client, olivia):
    assert client.get(PHASES).json()["history"] == []
    set_phases(opens_at=HOUR)
    set_phases(opens_at=2 * HOUR, closes_at=3 * HOUR)
    found = client.get(PHASES).json()
    assert [item["closes_at"] is None for item in found["history"]] == [False, True]
    why = {(item["set_by"], item["reason"]) for item in found["history"]}
    assert why == {("olivia", "the winter round")}
    assert found["phases"]["opens_at"] == found["history"][0]["opens_at"]
    logged = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][0]
    assert (logged["actor"], logged["action"]) == ("olivia", "benchmark.phases")
    assert logged["subject_id"] == "digits"
    assert logged["before"]["closes_at"] is None
    assert logged["after"]["closes_at"] is not None


def test_a_wrong_date_changes_nothing(client, olivia):
    for wrong in (
        {},
        {"reason": " "},
        {"reason": "r", "opens_at": "soon"},
        {"reason": "r", "opens_at": "2026-12-01T00:00:00"},
        {"reason": "r", "opens_at": "0001-01-01T00:00:00+14:00"},
        {"reason": "r", "ends_at": moment(HOUR)},
        {"reason": "r", "opens_at": 1_800_000_000},
        {"reason": "r", "opens_at": "1800000000"},
        {"reason": "r", "unfreeze": "true"},
        {"reason": "r", "opens_at": moment(HOUR), "closes_at": moment(-HOUR)},
        {"reason": "r", "freezes_at": moment(2 * HOUR), "closes_at": moment(HOUR)},
    ):
        answer = client.post(PHASES, json=wrong, headers=olivia.headers)
        assert answer.status_code == 422, wrong
    assert client.get(PHASES).json()["history"] == []


@pytest.fixture
def own_benchmarks(settings, tmp_path):
    folder = tmp_path / "benchmarks"
    shutil.copytree(settings.benchmarks_dir, folder)
    return settings.model_copy(update={"benchmarks_dir": folder})


def change_file(settings, *, target):
    path = settings.benchmarks_dir / "digits.toml"
    text = path.read_text()
    assert "value = 97.5" in text
    path.write_text(text.replace("value = 97.5", f"value = {target}", 1))


def send(server, parts, person):
    answer = server.post("/api/v1/submissions", files=parts.files(), headers=person.headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_board_follows_changed_rules(submit, digits_submission, client, own_benchmarks):
    """The server that starts tells all at once; the others offer its file a look later."""
    assert submit(digits_submission).status_code == 201
    change_file(own_benchmarks, target="90.0")
    with TestClient(create_app(own_benchmarks, dispatch=False)):
        board, page = "/api/v1/leaderboards/digits", "/benchmarks/digits"
        assert client.get(board).json()["other_rules"] == {}
        assert "97.5" in client.get(page).text
        services_of(client).of(PhaseWatch).look_once()

        (words,) = client.get(board).json()["other_rules"].values()
        assert "other target" in words
        assert f"other rules: {words}" in client.get(page).text


def test_frozen_rules_hold(set_phases, digits_submission, client, own_benchmarks, alice, caplog):
    def definitions(server):
        checks = server.get("/readyz").json()["checks"]
        return next(item for item in checks if item["name"] == "definitions")

    original = client.get("/api/v1/benchmarks/digits").json()["sha256"]
    frozen = set_phases(freezes_at=timedelta())
    assert frozen.json()["frozen_sha256"] == original
    assert frozen.json()["phase"] == "frozen"
    services_of(client).of(PhaseWatch).look_once()
    assert definitions(client)["state"] == "ok"  # Its file is the frozen text.
    change_file(own_benchmarks, target="90.0")
    with TestClient(create_app(own_benchmarks, dispatch=False)) as other:
        assert f"frozen as {original[:12]}" in caplog.text
        assert send(other, digits_submission, alice)["benchmark_sha256"] == original
        assert other.get("/api/v1/benchmarks/digits").json()["target"]["value"] == 97.5
        assert definitions(other)["state"] == "degraded"
        assert set_phases(unfreeze=True).status_code == 201
        assert other.get("/api/v1/benchmarks/digits").json()["target"]["value"] == 97.5
    # Unfrozen, the file comes in force with the next start.
    with TestClient(create_app(own_benchmarks, dispatch=False)) as started_again:
        digits = started_again.get("/api/v1/benchmarks/digits").json()
        assert digits["target"]["value"] == 90.0
        logs = digits_submission.logs
        digits_submission.logs = {name: trained_anew(log, 1) for name, log in logs.items()}
        sent = send(started_again, digits_submission, alice)
        assert sent["benchmark_sha256"] == digits["sha256"] != original
    services_of(client).of(PhaseWatch).look_once()
    assert client.get("/api/v1/benchmarks/digits").json()["sha256"] == digits["sha256"]
    assert definitions(client)["state"] == "ok"


def test_frozen_rules_say_what_is_verified(set_phases, digits_submission, own_benchmarks, alice):
    path = own_benchmarks.benchmarks_dir / "digits.toml"
    path.write_text(path.read_text().replace("automatic = false", "automatic = true"))
    assert set_phases(freezes_at=timedelta()).status_code == 201
    with TestClient(create_app(own_benchmarks, dispatch=False)) as other:
        assert send(other, digits_submission, alice)["status"] == "claimed"


def test_frozen_rules_need_no_file(set_phases, client, own_benchmarks, caplog):
    original = client.get("/api/v1/benchmarks/digits").json()["sha256"]
    assert set_phases(freezes_at=timedelta()).status_code == 201
    (own_benchmarks.benchmarks_dir / "digits.toml").unlink()
    with TestClient(create_app(own_benchmarks, dispatch=False)) as other:
        assert other.get("/api/v1/benchmarks/digits").json()["sha256"] == original
        assert "digits.toml is missing" in caplog.text
    assert set_phases(unfreeze=True).status_code == 201
    with TestClient(create_app(own_benchmarks, dispatch=False)) as other:
        assert other.get("/api/v1/benchmarks/digits").status_code == 404


def test_earlier_rules_are_refused(submit, digits_submission, client, own_benchmarks, row_counts):
    change_file(own_benchmarks, target="90.0")
    with TestClient(create_app(own_benchmarks, dispatch=False)) as other:
        changed = other.get("/api/v1/benchmarks/digits").json()["sha256"]
    before = row_counts()
    refused = submit(digits_submission)
    assert refused.status_code == 409
    assert "The definition of digits changed" in refused.json()["detail"]
    assert row_counts() == before
    services_of(client).of(PhaseWatch).look_once()
    assert submit(digits_submission).json()["benchmark_sha256"] == changed


def test_a_definition_freezes_when_its_moment_passes(set_phases, client, database, own_benchmarks):
    original = client.get("/api/v1/benchmarks/digits").json()["sha256"]
    set_phases(freezes_at=HOUR)
    assert client.get(PHASES).json()["phases"]["frozen_sha256"] is None
    with database.write() as session:  # Time passes.
        session.scalars(select(BenchmarkPhases)).one().freezes_at = utc_now() - HOUR
    assert client.get(PHASES).json()["phases"]["frozen_sha256"] == original
    change_file(own_benchmarks, target="90.0")
    with TestClient(create_app(own_benchmarks, dispatch=False)) as other:
        assert other.get("/api/v1/benchmarks/digits").json()["sha256"] == original


def test_a_freeze_stays(set_phases, submit, digits_submission, client, database, olivia):
    for ago in (HOUR, 3 * HOUR):
        submission_id = submit(digits_submission).json()["id"]
        with database.write() as session:
            session.get_one(Submission, submission_id).submitted_at = datetime.now(UTC) - ago
    assert set_phases(freezes_at=-2 * HOUR).status_code == 409
    set_phases(freezes_at=-timedelta(minutes=1))
    for dates in ({}, {"freezes_at": HOUR}):
        answer = set_phases(**dates)
        assert answer.status_code == 409
        assert "--unfreeze" in answer.json()["detail"]
    # Another date may change while the freeze stays as it is.
    kept = client.get(PHASES).json()["phases"]
    body = {"freezes_at": kept["freezes_at"], "closes_at": moment(HOUR), "reason": "longer"}
    answer = client.post(PHASES, json=body, headers=olivia.headers)
    assert answer.status_code == 201
    assert answer.json()["frozen_sha256"] == kept["frozen_sha256"]
    assert set_phases(freezes_at=HOUR, unfreeze=True).json()["frozen_sha256"] is None


def test_a_definition_is_kept_as_it_was_read(own_benchmarks, digits_submission, alice):
    with TestClient(create_app(own_benchmarks, dispatch=False)) as server:
        change_file(own_benchmarks, target="90.0")
        submission_id = send(server, digits_submission, alice)["id"]
        page = server.get(f"/submissions/{submission_id}?tab=scoring", headers=BROWSER)
        assert "97.5" in page.text


PHASES_PAGE = "/console/phases"
FORM = {
    "benchmark": "digits", "opens_at": "2026-01-01T09:30", "freezes_at": "2026-01-02T00:00",
    "closes_at": "2031-01-01T00:00", "embargo_until": "", "reason": "the <first> round",
}  # fmt: skip


def test_an_organiser_sets_dates_on_the_console(client, olivia):
    sign_in(client, olivia)
    assert "Open: it has no dates." in client.get(PHASES_PAGE).text
    assert 'type="datetime-local"' in client.get(f"{PHASES_PAGE}?benchmark=digits").text

    def send(**changes):
        return client.post(PHASES_PAGE, data=FORM | changes, headers=ORIGIN)

    wrong = send(closes_at="2025-01-01T00:00")
    assert wrong.status_code == 422
    assert "The closing date must be after the opening, 2026-01-01 09:30 UTC." in wrong.text
    assert 'value="2025-01-01T00:00"' in wrong.text
    assert "the &lt;first&gt; round" in wrong.text
    assert send(benchmark="nothing").status_code == 404
    assert "digits: Open until 2031-01-01 00:00 UTC. Its rules are frozen since" in send().text
    shown = client.get(f"{PHASES_PAGE}?benchmark=digits").text
    assert 'value="2026-01-01T09:30:00"' in shown
    assert "the &lt;first&gt; round" in shown
    again = send(opens_at="2026-01-01T09:30:00", freezes_at="2026-01-02T00:00:00")
    assert again.status_code == 200  # What is sent back as it was shown undoes no freeze.
    held = send(freezes_at="")
    assert held.status_code == 409
    assert "frozen since 2026-01-02 00:00 UTC" in held.text
    freed = send(freezes_at="", unfreeze="true")
    assert "digits: Open until 2031-01-01 00:00 UTC." in freed.text


def test_only_its_submitter_acts_on_the_page(client, submit, digits_submission, alice, bob):
    page = f"/submissions/{submit(digits_submission).json()['id']}"
    for other in (None, bob):
        if other is not None:
            sign_in(client, other)
        shown = client.get(page).text
        assert ("Request verification" in shown, "Withdraw" in shown) == (False, False)
    sign_in(client, alice)
    shown = client.get(page).text
    assert "Request verification" in shown
    assert f'action="{page}#withdraw"' in shown
    asked = client.post(f"{page}/verify", headers=ORIGIN, follow_redirects=False)
    assert asked.status_code == 303
    assert client.get(asked.headers["location"]).status_code == 200
    assert "Request verification" not in client.get(page).text
    assert client.post(f"{page}/verify", headers=ORIGIN).status_code == 409
    assert "Withdraw this submission" in client.get(page, params={"tab": "history"}).text
    assert client.post(f"{page}/withdraw", headers=ORIGIN).status_code == 422
    form = {"reason": "the clock was wrong"}
    missing = client.post("/submissions/none/withdraw", data=form, headers=ORIGIN)
    assert missing.status_code == 404
    done = client.post(f"{page}/withdraw", data=form, headers=ORIGIN)
    assert "<b>Withdrawn</b> by alice" in done.text
    assert form["reason"] in done.text
    assert "withdrawn" in client.get("/account").text


BENCHMARKS = "/api/v1/benchmarks"


def test_every_benchmark_is_listed_with_its_target(client):
    listed = {b["id"]: b for b in client.get(BENCHMARKS).json()["benchmarks"]}

    assert sorted(listed) == OWN_BENCHMARKS
    # Targets: DAWNBench's README and checks; digits and grammar: their own calibration.
    for name, *known in (
        ("cifar10", "top1Accuracy", 94.0, "percent"),
        ("digits", "top1Accuracy", 97.5, "percent"),
        ("grammar", "validationLoss", 0.80, "nats/byte"),
        ("imagenet", "top5Accuracy", 93.0, "percent"),
        ("squad", "f1Score", 0.75, "fraction"),
    ):
        assert [listed[name]["target"][each] for each in ("metric", "value", "unit")] == known
        assert listed[name]["replayable"], name


def test_a_benchmark_counts_its_submissions(client, digits_submission, submit):
    assert client.get(f"{BENCHMARKS}/digits").json()["submissions"] == 0
    made = submit(digits_submission).json()
    digits = client.get(f"{BENCHMARKS}/digits").json()

    assert (digits["submissions"], digits["sha256"]) == (1, made["benchmark_sha256"])
    assert digits["runs"] == {"count": 3, "dropped": 1, "started": 3, "most": None}
    assert digits["clock"] == "mlperf"


def test_a_benchmark_tells_every_metric_and_how_many_runs_are_started(client, offer_archive):
    """MLPerf Training rules of v0.5: two AP of Mask R-CNN; 100 runs of NCF, of which 50 count."""
    offer_archive("mlperf-v0.5-maskrcnn")
    offer_archive("mlperf-v0.5-ncf")
    maskrcnn = client.get(f"{BENCHMARKS}/mlperf-v0.5-maskrcnn").json()["target"]
    assert (maskrcnn["metric"], maskrcnn["value"]) == ("box AP", 0.377)
    assert [(goal["metric"], goal["value"]) for goal in maskrcnn["also"]] == [("mask AP", 0.339)]
    runs = client.get(f"{BENCHMARKS}/mlperf-v0.5-ncf").json()["runs"]
    assert runs == {"count": 50, "dropped": 1, "started": 100, "most": None}

    page = client.get("/benchmarks/mlperf-v0.5-maskrcnn").text
    assert "The clock stops at 0.377 box AP and 0.339 mask AP." in page
    assert "box AP is at least 0.377 and mask AP is at least 0.339" in page
    page = client.get("/benchmarks/mlperf-v0.5-ncf").text
    assert "first to reach the target of 100 started" in page
    assert "at least 100 runs" in page
    assert "The first 50 that reach the target count" in page


def test_a_definition_is_the_file_of_its_hash(client, digits_submission, submit, settings):
    answer = client.get(f"{BENCHMARKS}/digits.toml")

    assert answer.headers["content-type"] == "application/toml"
    assert answer.content == (SOURCE / "benchmarks" / "digits.toml").read_bytes()
    named = client.get(f"{BENCHMARKS}/digits").json()["sha256"]
    assert hashlib.sha256(answer.content).hexdigest() == named
    assert client.get(f"{BENCHMARKS}/nothing.toml").status_code == 404
    submit(digits_submission)
    settings.benchmarks_dir = Path("/nowhere")  # It may hold the next round's rules already.
    assert client.get(f"{BENCHMARKS}/digits.toml").content == answer.content
