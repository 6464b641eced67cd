"""Rows that were measured here, and claims below them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from server.base.database import utc_now
from server.base.models import PoolRun, Submission, Verification
from server.verifications.sweep import expire_leases
from tests.support.boards import rows_of
from tests.support.build import build_report, taken
from tests.support.run_logs import REFERENCE
from tests.support.streams import stream_report, streamed

BOARD = "/api/v1/leaderboards/digits"


def entries(client, **query):
    response = client.get(BOARD, params=query)
    assert response.status_code == 200, response.text
    return rows_of(response.json())


@pytest.fixture
def verify(olivia, replay):
    def run(submission_id=None, *, change=None, **report):
        if submission_id is not None:
            replay.ask_again(olivia, submission_id)
        made = build_report(replay.seeds(), **report)
        sent = replay.report(replay.claim().json(), change(made) if change else made)
        assert sent.status_code == 200, sent.text
        return made

    return run


def test_a_claim_has_no_number(submit, digits_submission, client):
    sent = submit(digits_submission).json()["id"]
    (entry,) = entries(client)

    assert (entry["submission_id"], entry["rank"]) == (sent, None)
    assert (entry["evidence"], entry["check"]) == ("claimed", "none")
    assert entry["unranked_reason"] == "claimed: not measured here"
    assert entry["claimed_seconds"] == entry["tta_seconds"]
    assert entry["measured_seconds"] is None


@pytest.fixture
def claimed(submit, digits_submission, make_log):
    claim = digits_submission.claim | {"division": "open", "code_url": "https://example.org/code"}
    logs = {
        name: make_log(200 + k, name=name, division="open")
        for k, name in enumerate(digits_submission.logs)
    }
    return taken(submit(replace(digits_submission, claim=claim, logs=logs)))["id"]


def test_comparison_uses_the_measured_runs(verify, replay, claimed, client):
    report = verify(seconds_per_epoch=0.13)
    (entry,) = entries(client, division="closed")
    ids = f"{replay.submission_id},{claimed}"

    measured, own = client.get(f"/api/v1/compare?submissions={ids}").json()["submissions"]

    assert measured["tta_seconds"] == entry["measured_seconds"]
    assert measured["run_seconds"] == [run.tta_seconds for run in report.runs]
    assert measured["runs_started"] == len(report.runs)
    assert own["run_seconds"] != measured["run_seconds"]
    page = client.get(f"/compare?ids={ids}").text
    assert client.get(f"/compare?submissions={ids}").text == page
    assert f"{entry['measured_seconds']:.3f}" in page
    assert f"{entry['claimed_seconds']:.3f}" not in page


def test_a_replayed_claim_ranks_at_our_time(verify, replay, client):
    report = verify(seconds_per_epoch=0.13)
    (entry,) = entries(client)

    times = sorted(run.tta_seconds for run in report.runs)
    assert (entry["rank"], entry["evidence"], entry["check"]) == (1, "measured", None)
    kept = times[1:-1]
    assert entry["measured_seconds"] == pytest.approx(sum(kept) / len(kept))
    assert entry["tta_seconds"] == entry["measured_seconds"] != entry["claimed_seconds"]
    assert entry["measured_runs"] == len(times)
    assert entry["tta_low_seconds"] < entry["measured_seconds"] < entry["tta_high_seconds"]
    # A hundredth of the price of an hour on a machine of a tenth of a dollar.
    assert entry["cost_usd"] == pytest.approx(entry["measured_seconds"] / 3600 * 0.1)

    # Its own page tells its place and our time as its board does.
    view = client.get(f"/api/v1/submissions/{replay.submission_id}").json()
    told = ("rank", "is_holder", "not_first", "measured_seconds", "measured_runs", "busy",
            "duplicate_of", "evidence", "check")  # fmt: skip
    assert {name: view[name] for name in told} == {name: entry[name] for name in told}
    for end in ("low", "high"):
        assert view[f"measured_{end}_seconds"] == entry[f"tta_{end}_seconds"]
    # A price of its submitter's own ranks nobody by cost.
    (priced,) = entries(client, metric="cost")
    assert (priced["rank"], priced["cost_usd"] is None) == (None, False)
    assert priced["unranked_reason"].startswith("priced by its submitter")
    # Another target is seen by the curves of the measured runs.
    (seen,) = entries(client, target=95.0)
    times = sorted(
        next(item.seconds for item in run.evaluations if item.quality >= 95.0)
        for run in report.runs
    )
    assert (len(times), seen["rank"]) == (3, 1)
    assert seen["measured_seconds"] == seen["tta_seconds"] == pytest.approx(times[1])
    assert seen["tta_low_seconds"] < times[1] < seen["tta_high_seconds"]


def test_a_miss_counts_as_infinite(verify, database):
    def miss(report):
        *others, last = report.runs
        below = [replace(each, quality=50.0) for each in last.evaluations]
        missed = replace(last, status="not_reached", tta_seconds=None, evaluations=below)
        return replace(report, runs=[*others, missed])

    report = verify(change=miss)
    with database.read() as session:
        runs = session.scalars(select(PoolRun).order_by(PoolRun.index)).all()
        assert [run.index for run in runs] == list(range(len(report.runs)))
        assert runs[-1].seconds is None
        assert all(run.seconds is not None for run in runs[:-1])


def test_runs_of_lost_attempts_count_nowhere(verify, replay, database):
    def pooled():
        with database.read() as session:
            return session.scalars(select(PoolRun.seconds).order_by(PoolRun.index)).all()

    lost = build_report(replay.seeds(), seconds_per_epoch=0.05)
    grant = replay.claim().json()
    told = streamed(replace(lost, runs=lost.runs[:2]))
    stream_report(database, grant["attempt_id"], lost, events=told)
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(seconds=1))
    assert expire_leases(database) == 1
    assert pooled() == []

    report = verify(seconds_per_epoch=0.1)
    assert pooled() == pytest.approx([run.tta_seconds for run in report.runs])


@pytest.mark.parametrize("why", ["another class", "drift", "own implementation"])
def test_what_was_not_timed_is_claimed_and_its_epochs_agree(verify, replay, client, database, why):
    drift = "2 % slower than its baseline" if why == "drift" else None
    with database.write() as session:
        submission = session.get_one(Submission, replay.submission_id)
        if why == "another class":
            submission.system = submission.system | {"hardware_class": "another"}
        if why == "own implementation":
            submission.trained_with = "own"
    verify(change=lambda report: replace(report, drift=drift))
    (entry,) = entries(client)

    assert (entry["status"], entry["rank"]) == ("verified", None)
    assert (entry["evidence"], entry["check"]) == ("claimed", "epochs_agree")


def test_a_batch_size_between_calibrated_ones_is_undecided(measured, client):
    measured(hyperparameters={"batch_size": 96})
    (entry,) = entries(client)

    assert (entry["evidence"], entry["check"], entry["rank"]) == ("claimed", "undecided", None)
    assert (entry["status"], entry["measured_seconds"]) == ("verified", None)


@pytest.mark.parametrize("share", [0.79, 0.8])
def test_disturbed_replay_is_trained_once_more(verify, replay, client, share):
    seeds = replay.seeds()
    verify(cpu_share=0.5, seconds_per_epoch=0.3)
    view = replay.view()
    first = view["attempts"][0]
    assert (view["state"], view["report"], replay.seeds()) == ("queued", None, seeds)
    assert (first["state"], first["failure"]["code"]) == ("failed", "host_busy")
    assert first["refunded"]
    assert entries(client)[0]["check"] == "queued"

    verify(cpu_share=share, seconds_per_epoch=0.13)
    (entry,) = entries(client)
    is_busy = share < 0.8
    assert (entry["evidence"], entry["rank"], entry["busy"]) == ("measured", 1, is_busy)
    assert entry["measured_seconds"] < 2  # The first report's is 4 s.
    view = replay.view()
    assert [each["state"] for each in view["attempts"]] == ["failed", "done"]
    codes = {reason["code"] for reason in view["reasons"]}
    assert ("time_agrees" in codes, "noisy_host" in codes) == (True, is_busy)
    addresses = ("/benchmarks/digits", f"/submissions/{replay.submission_id}")
    chips = ["busy host: may be faster" in client.get(each).text for each in addresses]
    assert chips == [is_busy] * 2


def test_last_attempt_counts_though_it_is_disturbed(verify, replay, database):
    with database.write() as session:
        session.get_one(Verification, replay.verification_id).max_attempts = 1
    verify(cpu_share=0.5)

    assert (replay.view()["outcome"], len(replay.view()["attempts"])) == ("verified", 1)


def test_filters_of_evidence_and_check(verify, submit, digits_submission, client):
    verify()
    submit(digits_submission, batch_size=32)

    assert len(entries(client)) == 2
    assert [each["evidence"] for each in entries(client, evidence="measured")] == ["measured"]
    assert [each["check"] for each in entries(client, check="none")] == ["none"]
    assert entries(client, check="contradicted") == []
    assert client.get(BOARD, params={"evidence": "seen"}).status_code == 422


def test_the_quality_of_a_measured_row_is_measured(measured, client):
    measured(report={"qualities": [*REFERENCE[:-1], 97.7]})
    (entry,) = entries(client)
    sent = client.get(f"/api/v1/submissions/{entry['submission_id']}").json()

    assert (entry["evidence"], entry["quality"]) == ("measured", 97.7)
    assert sent["result"]["best_quality"] == REFERENCE[-1]


def test_a_measured_row_costs_the_price_of_its_class(measured, client, olivia):
    rented = {"provider": "example", "instance": "tiny", "region": "north"}
    system = {"hardware_class": "cpu-test", "cloud": rented | {"count": 1}}
    measured(system=system)

    def add(usd, **names):
        page = {"source_url": "https://cloud.example/prices", "effective_on": "2026-01-01"}
        body = rented | page | names | {"usd_per_hour": usd}
        return taken(olivia.post("/api/v1/prices", body))["id"]

    add(0.01)
    (cheap,) = entries(client, metric="cost")
    assert cheap["rank"] is None
    bound = add(36.0, instance="large", hardware_class="cpu-test")

    (entry,) = entries(client, metric="cost")
    assert (entry["rank"], entry["cost_price"]) == (1, bound)
    assert entry["cost_usd"] == pytest.approx(entry["measured_seconds"] / 100)
    (today,) = entries(client, metric="cost", prices_on="2026-06-01")
    assert (today["rank"], today["cost_usd"]) == (1, entry["cost_usd"])


def test_everybody_reads_the_runs_of_a_claim_before_its_verdict(replay, client):
    address = f"/api/v1/submissions/{replay.submission_id}"
    told = {"sequence": 0, "run": 0, "kind": "evaluation", "epoch": 1.0, "samples": 1152,
            "seconds": 0.1, "quality": 55.4321}  # fmt: skip
    assert replay.post(replay.claim().json(), [told]).status_code == 200

    view = client.get(address).json()
    assert (view["status"], len(view["runs"])) == ("verifying", 3)
    assert all(None not in (run["seed"], run["log_sha256"]) for run in view["runs"])
    assert client.get(f"{address}/runs").json()["runs"] == view["runs"]
    for part in ("curve", "log"):
        assert client.get(f"{address}/runs/0/{part}").status_code == 200
    race = client.get(f"/api/v1/verifications/{replay.verification_id}/race").json()
    assert race["runs"][0]["evaluations"][0]["quality"] == 55.4321
    (entry,) = rows_of(client.get(f"{BOARD}?target=95").json())
    assert entry["tta_seconds"] is not None
