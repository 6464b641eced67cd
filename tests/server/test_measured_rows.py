"""Rows that were measured here, claims in brackets, and figures of claims that are hidden."""

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from server.base.database import utc_now
from server.base.models import Pool, PoolRun, Submission, Verification
from server.base.viewer import ANYBODY, ORGANISER
from server.verifications.event_stream import Position, read_news
from server.verifications.overdue import expire_leases
from tests.support.addresses import addresses
from tests.support.services import services_of

BOARD = "/api/v1/leaderboards/digits"


def entries(client, **query):
    response = client.get(BOARD, params=query)
    assert response.status_code == 200, response.text
    return response.json()["entries"]


@pytest.fixture
def verify(client, olivia, make_report, replay):
    """Have a submission replayed; the report is changed by `change` before it is sent."""

    def run(submission_id=None, *, change=None, **report):
        if submission_id is not None:
            asked = client.post(
                f"/api/v1/submissions/{submission_id}/verifications",
                json={"reason": "wanted"},
                headers=olivia.headers,
            )
            assert asked.status_code == 201, asked.text
            replay.submission_id, replay.verification_id = submission_id, asked.json()["id"]
        made = make_report(replay.seeds(), **report)
        sent = replay.report(replay.claim().json(), change(made) if change else made)
        assert sent.status_code == 200, sent.text
        return made

    return run


def test_a_claim_has_no_number_and_a_provisional_rank(submit, digits_submission, client):
    sent = submit(digits_submission).json()["id"]
    (entry,) = entries(client)

    assert (entry["submission_id"], entry["rank"], entry["provisional_rank"]) == (sent, None, 1)
    assert (entry["evidence"], entry["check"]) == ("claimed", "none")
    assert entry["unranked_reason"] == "claimed: not measured here"
    assert entry["claimed_seconds"] == entry["tta_seconds"]
    assert entry["measured_seconds"] is None


def test_a_replayed_claim_ranks_at_our_time(verify, replay, client):
    report = verify(seconds_per_epoch=0.13)
    (entry,) = entries(client)

    own = replay.view()["own_runs"]
    times = sorted(run.tta_seconds for run in report.runs[own:])
    assert (entry["rank"], entry["evidence"], entry["check"]) == (1, "measured", None)
    kept = times[1:-1]
    assert entry["measured_seconds"] == pytest.approx(sum(kept) / len(kept))
    assert entry["tta_seconds"] == entry["measured_seconds"] != entry["claimed_seconds"]
    assert entry["measured_runs"] == len(times)
    assert (
        entry["measured_low_seconds"] < entry["measured_seconds"] < entry["measured_high_seconds"]
    )
    # A hundredth of the price of an hour on a machine of a tenth of a dollar.
    assert entry["cost_usd"] == pytest.approx(entry["measured_seconds"] / 3600 * 0.1)


def test_a_forged_time_gains_nothing(verify, submit, digits_submission, client, bob, make_log):
    """Logs with all times scaled by 0.08 never take rank 1 from what was measured here."""
    verify()
    forged = deepcopy(digits_submission)
    for index, name in enumerate(forged.logs):
        forged.logs[name] = make_log(index, name=name, seconds_per_epoch=0.0093)
    sent = submit(forged, by=bob)
    assert sent.status_code == 201, sent.text
    first, second = entries(client)

    assert (first["rank"], first["evidence"]) == (1, "measured")
    assert (second["submission_id"], second["rank"]) == (sent.json()["id"], None)
    assert second["tta_seconds"] < first["tta_seconds"]
    assert second["provisional_rank"] == 1


def test_one_configuration_is_one_row_whoever_submits_it(
    verify, submit, digits_submission, client, database, bob
):
    verify()
    (alone,) = entries(client)
    sent = submit(digits_submission, by=bob).json()["id"]
    verify(sent)
    (entry,) = entries(client)

    assert entry["submission_id"] == alone["submission_id"]
    assert (entry["also_by"], entry["rank"]) == (["bob"], 1)
    assert entry["measured_runs"] > alone["measured_runs"]
    with database.read() as session:
        assert len(session.scalars(select(Pool)).all()) == 1


def test_a_miss_counts_as_infinite_and_own_seeds_never_count(verify, replay, database, client):
    with database.write() as session:
        session.get_one(Verification, replay.verification_id).own_runs = 1

    def miss(report):
        *others, last = report.runs
        below = [replace(each, quality=50.0) for each in last.evaluations]
        missed = replace(last, status="not_reached", tta_seconds=None, evaluations=below)
        return replace(report, runs=[*others, missed])

    report = verify(change=miss)
    with database.read() as session:
        runs = session.scalars(select(PoolRun).order_by(PoolRun.index)).all()
        assert [run.index for run in runs] == list(range(1, len(report.runs)))
        assert runs[-1].seconds is None
        assert all(run.seconds is not None for run in runs[:-1])


@pytest.mark.parametrize(
    "why",
    ["another class", "shared processor", "drift", "own implementation"],
)
def test_what_was_not_timed_is_claimed_and_its_epochs_agree(verify, replay, client, database, why):
    def change(report):
        if why == "another class":
            return report
        if why == "shared processor":
            slow = [replace(run, cpu_seconds=run.parent_seconds * 0.5) for run in report.runs]
            return replace(report, runs=slow)
        return replace(report, drift="2 % slower than its baseline") if why == "drift" else report

    with database.write() as session:
        submission = session.get_one(Submission, replay.submission_id)
        if why == "another class":
            submission.system = submission.system | {"hardware_class": "another"}
        if why == "own implementation":
            submission.trained_with = "own"
    verify(change=change)
    (entry,) = entries(client)

    assert (entry["status"], entry["rank"]) == ("verified", None)
    assert (entry["evidence"], entry["check"]) == ("claimed", "epochs_agree")


def test_filters_of_evidence_and_check(verify, submit, digits_submission, client):
    verify()
    submit(digits_submission)

    assert len(entries(client)) == 2
    assert [each["evidence"] for each in entries(client, evidence="measured")] == ["measured"]
    assert [each["check"] for each in entries(client, check="none")] == ["none"]
    assert entries(client, check="contradicted") == []
    assert client.get(BOARD, params={"evidence": "seen"}).status_code == 422


def test_a_submission_tells_its_place_and_our_time_as_its_board_does(verify, replay, client):
    verify(seconds_per_epoch=0.13)
    (entry,) = entries(client)
    view = client.get(f"/api/v1/submissions/{replay.submission_id}").json()

    told = ("rank", "provisional_rank", "measured_seconds", "measured_low_seconds",
            "measured_high_seconds", "measured_runs", "owners", "by_organisers", "also_by",
            "evidence", "check")  # fmt: skip
    assert {name: view[name] for name in told} == {name: entry[name] for name in told}
    assert view["rank"] == 1


def test_a_price_of_its_submitters_own_ranks_nobody_by_cost(verify, client):
    verify(seconds_per_epoch=0.13)
    (entry,) = entries(client, metric="cost")

    assert (entry["rank"], entry["cost_usd"] is None) == (None, False)
    assert entry["unranked_reason"].startswith("priced by its submitter")


def test_through_a_lens_a_measured_row_is_seen_by_the_curves_of_its_sealed_runs(
    verify, replay, client
):
    report = verify(seconds_per_epoch=0.13)
    (entry,) = entries(client, target=95.0)

    sealed = report.runs[replay.view()["own_runs"] :]
    times = sorted(
        next(item.seconds for item in run.evaluations if item.quality >= 95.0) for run in sealed
    )
    assert len(times) == 3
    assert entry["rank"] == 1
    assert entry["measured_seconds"] == entry["tta_seconds"] == pytest.approx(times[1])
    assert entry["measured_low_seconds"] < times[1] < entry["measured_high_seconds"]


# Figures that stand in no other place: seeds, and a quality of a curve.
SEEDS = (770_001_111, 770_002_222, 770_003_333)


QUALITY = 91.2345678


@pytest.fixture
def claim(digits_submission, make_log, submit, alice):
    """A claim of alice's whose seeds and curve can be told from all others."""
    curve = [40.0, 80.0, QUALITY, 94.0, 96.0, 96.5, 97.0, 98.1]
    digits_submission.logs = {
        f"run_{index}.log": make_log(
            seed,
            name=f"run_{index}.log",
            qualities=[quality + index / 1000 * (quality < 98) for quality in curve],
        )
        for index, seed in enumerate(SEEDS)
    }
    return submit(digits_submission, by=alice, as_is=True).json()


def known(claim, verification_id):
    return {
        "benchmark_id": "digits",
        "index": 0,
        "name": "walter-1",
        "submission_id": claim["id"],
        "verification_id": verification_id,
    }


def secrets(claim):
    """What tells of the runs: a seed, a log's hash, a quality of a curve."""
    hashes = [run["log_sha256"] for run in claim["runs"]]
    return (*map(str, SEEDS), *hashes, str(QUALITY)[:8])


@pytest.fixture
def verification_id(claim, client, olivia):
    address = f"/api/v1/submissions/{claim['id']}/verifications"
    return str(client.post(address, headers=olivia.headers).json()["id"])


def test_no_address_tells_strangers_the_runs_of_a_claim_and_its_owner_and_organisers_read_them(
    claim, verification_id, client, alice, bob, walter, olivia
):
    readable = {
        "/api/v1/submissions/{submission_id}",
        "/api/v1/submissions/{submission_id}/runs",
        "/api/v1/submissions/{submission_id}/runs/{index}/curve",
        "/api/v1/submissions/{submission_id}/runs/{index}/log",
    }
    found = {"alice": set(), "olivia": set()}
    for path, address in addresses(client, known(claim, verification_id)):
        if path.endswith("/events") or path.startswith(("/console", "/static")):
            continue
        for who in ({}, bob.headers, walter.headers):
            answer = client.get(address, headers={"Accept": "text/html, */*"} | who)
            assert answer.status_code < 500, address
            for word in secrets(claim):
                assert word not in answer.text, f"{address} tells {word}"
        for person in (alice, olivia) if path in readable else ():
            text = client.get(address, headers=person.headers).text
            if any(word in text for word in secrets(claim)):
                found[person.name].add(path)
    for name, paths in found.items():
        assert paths == readable, name


def test_the_curve_of_an_own_seed_is_not_told_while_its_claim_is_hidden(
    replay, client, alice, bob, olivia
):
    own = replay.view()["own_runs"]
    assert own > 0
    told = [
        {"sequence": n, "run": run, "kind": "evaluation", "epoch": 1.0, "samples": 1152,
         "seconds": 0.1, "quality": quality}
        for n, (run, quality) in enumerate([(own, 55.4321), (own - 1, QUALITY)])
    ]  # fmt: skip
    assert replay.post(replay.claim().json(), told).status_code == 200
    race = f"/api/v1/verifications/{replay.verification_id}/race"

    def seen(headers):
        runs = client.get(race, headers=headers).json()["runs"]
        return [point["quality"] for run in runs for point in run["evaluations"]]

    assert seen({}) == seen(bob.headers) == [55.4321]
    assert seen(alice.headers) == seen(olivia.headers) == [QUALITY, 55.4321]
    for viewer, qualities in ((ANYBODY, [55.4321, None]), (ORGANISER, [55.4321, QUALITY])):
        services = services_of(client)
        news = read_news(services, viewer, replay.verification_id, Position())
        assert [event["quality"] for _, event in news.replay] == qualities
    assert str(QUALITY)[:5] not in client.get("/").text
    replay.change(replay.attempt_id, lease_expires_at=utc_now() - timedelta(seconds=1))
    assert expire_leases(replay.database) == 1
    for address in (f"/verifications/{replay.verification_id}", race.removesuffix("/race")):
        assert str(QUALITY)[:5] not in client.get(address).text


def test_figures_are_shown_meanwhile_with_the_day_of_the_rest(claim, client):
    view = client.get(f"/api/v1/submissions/{claim['id']}").json()

    assert view["result"] == claim["result"]
    assert [run["tta_seconds"] for run in view["runs"]] == [
        run["tta_seconds"] for run in claim["runs"]
    ]
    assert view["hidden_until"] > (utc_now() + timedelta(days=29)).isoformat()
    answer = client.get(f"/api/v1/submissions/{claim['id']}/runs/0/log")
    assert answer.status_code == 404
    assert "until its first verdict, or until" in answer.json()["detail"]
    board = client.get("/api/v1/leaderboards/digits").json()
    assert [entry["submission_id"] for entry in board["entries"]] == [claim["id"]]


def test_after_30_days_the_runs_are_everybodys(claim, client, database):
    with database.write() as session:
        submission = session.get_one(Submission, claim["id"])
        assert submission.revealed_at == submission.submitted_at + timedelta(days=30)
        submission.revealed_at = utc_now()

    view = client.get(f"/api/v1/submissions/{claim['id']}").json()

    assert (view["runs"], view["hidden_until"]) == (claim["runs"], None)
    assert client.get(f"/api/v1/submissions/{claim['id']}/runs/0/log").status_code == 200


def test_the_first_verdict_shows_the_runs(replay, make_report, client):
    address = f"/api/v1/submissions/{replay.submission_id}"
    assert client.get(f"{address}/runs/0/curve").status_code == 404

    replay.report(replay.claim().json(), make_report(replay.seeds()))

    assert client.get(f"{address}/runs/0/curve").status_code == 200
    assert client.get(address).json()["hidden_until"] is None


def test_a_verification_that_ends_without_a_verdict_opens_no_seeds_of_a_hidden_claim(
    claim, verification_id, client, olivia
):
    address = f"/api/v1/verifications/{verification_id}"
    client.post(f"{address}/cancel", json={"reason": "wrong class"}, headers=olivia.headers)

    view = client.get(address).json()

    assert view["state"] == "cancelled"
    assert view["seeds"] is None


def test_an_archive_is_hidden_from_nobody(digits_submission, client, submit, olivia):
    digits_submission.form = {"archive": "true"}
    view = submit(digits_submission, by=olivia).json()

    assert client.get(f"/api/v1/submissions/{view['id']}").json()["runs"] == view["runs"]


def test_through_a_lens_hidden_curves_give_no_time_and_the_board_says_why(claim, client, alice):
    asked = "/api/v1/leaderboards/digits?target=95"
    for headers in ({}, alice.headers):
        (entry,) = client.get(asked, headers=headers).json()["entries"]
        assert (entry["submission_id"], entry["tta_seconds"]) == (claim["id"], None)
        assert entry["unranked_reason"] == "its curves are hidden until its first verdict"
