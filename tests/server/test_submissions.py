"""POST /api/v1/submissions, also twice, reads of a submission, and a replay beside its ghosts."""

import hashlib
import shutil
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.base.database import utc_now
from server.base.forms import SUBMISSION
from server.base.models import Submission
from server.operations import limits
from server.operations.limits import Slots
from server.verifications.sweep import expire_leases
from tests.server.conftest import without_place
from tests.server.test_entries import FILES, Entries
from tests.support.build import CURVE, ENTRY, ask_for_replay, send_entry
from tests.support.pages import BROWSER
from tests.support.statements import statements_of

SUBMISSIONS = "/api/v1/submissions"


@pytest.fixture
def submitted(digits_submission, submit):
    return submit(digits_submission).json()


def test_one_address_takes_logs_and_code(digits_submission, client, database, walter, alice):
    Entries(client, database, walter).greet()
    logs, code = digits_submission.files(), [("files", part) for part in FILES.items()]
    for parts, kind in ((logs, "logs"), (code, "code")):
        sent = client.post(SUBMISSIONS, files=parts, headers=alice.headers)
        assert (sent.status_code, sent.json()["kind"]) == (201, kind)
        assert client.get(sent.headers["location"]).json()["kind"] == kind

    for parts, got in (([*logs, *code], "both training.toml and 'submission'"),
                       (logs[1:], "neither"), (code[1:], "neither")):  # fmt: skip
        for query in ({}, {"dry_run": "true"}):
            answer = client.post(SUBMISSIONS, params=query, files=parts, headers=alice.headers)
            assert (answer.status_code, answer.json()["detail"]) == (
                422,
                f"{SUBMISSION}; got {got}.",
            )
            assert answer.json()["hint"].startswith("`finishline submit PATH`")
    for parts, field in (([*logs, code[1]], "files"), ([*code, logs[1]], "logs")):
        answer = client.post(SUBMISSIONS, files=parts, headers=alice.headers)
        assert (answer.status_code, answer.json()["problems"][0]["field"]) == (422, field)


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_too_many_are_refused(monkeypatch, digits_submission, client, alice, olivia, dry_run):
    monkeypatch.setattr(limits, "MOST_TURNS", 1)
    monkeypatch.setattr(limits, "Slots", lambda most: Slots(most if most > 1 else 0))
    for parts in (digits_submission.files(), [("files", part) for part in FILES.items()]):
        busy = client.post(
            SUBMISSIONS, params={"dry_run": dry_run}, files=parts, headers=alice.headers
        )
        assert (busy.status_code, busy.headers.get("retry-after")) == (429, "2"), busy.text
        assert "works on one of yours at a time" in busy.json()["detail"]
    client.get("/api/v1/me", headers=olivia.headers)  # Her role is known from now on.
    imported = {"params": {"dry_run": dry_run}, "headers": olivia.headers}
    assert client.post(SUBMISSIONS, files=digits_submission.files(), **imported).is_success


def test_a_submission_is_answered_with_its_result(digits_submission, submit, client):
    response = submit(digits_submission)

    assert response.status_code == 201, response.text
    view = response.json()
    assert view["status"] == "claimed"
    assert view["submitter"] == "alice"
    assert view["result"]["reached"] == 3
    # The middle of three runs is left after dropping fastest and slowest: 8 * (0.114 + 0.004).
    assert round(view["result"]["tta_seconds"], 6) == 0.944
    # 0.944 s at 0.1 USD an hour.
    assert view["result"]["cost_usd"] == pytest.approx(0.944 * 0.1 / 3600)
    assert view["result"]["steps"]
    read = client.get(response.headers["location"]).json()
    assert without_place(read) == view


def test_logs_are_kept_byte_for_byte(digits_submission, submitted, client, stored_files):
    kept = {path.rsplit("/", 1)[-1] for path in stored_files()}
    page = client.get(f"/submissions/{submitted['id']}?tab=runs", headers=BROWSER).text

    contents = [content for _, (_, content) in digits_submission.files()]
    assert kept == {hashlib.sha256(content).hexdigest() for content in contents}
    for index, content in enumerate(digits_submission.logs.values()):
        address = f"{SUBMISSIONS}/{submitted['id']}/runs/{index}/log"
        log = client.get(address)
        assert log.content == content
        assert log.headers["content-type"] == "text/plain; charset=utf-8"
        assert log.headers["x-content-type-options"] == "nosniff"
        assert log.headers["content-disposition"].startswith("inline")
        assert f"run_{index}.log" in log.headers["content-disposition"]
        for link in (f'<a href="{address}">', f'<a href="{address}" download>'):
            assert link in page


def test_a_submission_says_whose_code_trained(digits_submission, submit, client):
    del digits_submission.claim["trained_with"]
    plain = submit(digits_submission).json()
    assert (plain["trained_with"], plain["tuning"]) == ("own", None)
    tuning = {"trials": 40, "seconds": 3600.0}
    digits_submission.claim |= {"trained_with": "reference", "tuning": tuning}

    view = submit(digits_submission).json()

    assert (view["trained_with"], view["tuning"]) == ("reference", tuning)
    assert client.get(f"{SUBMISSIONS}/{view['id']}").json()["tuning"] == tuning


def test_runs_are_listed_in_the_order_of_the_claim_with_every_evaluation(submitted, client):
    runs = client.get(f"{SUBMISSIONS}/{submitted['id']}/runs").json()["runs"]

    listed = [(run["index"], run["file"], run["seed"]) for run in runs]
    assert listed == [(index, f"run_{index}.log", 100 + index) for index in range(3)]
    # Eight epochs of 0.110, 0.114, 0.118 s and as many evaluations of 0.004 s.
    assert [run["tta_seconds"] for run in runs] == pytest.approx([0.912, 0.944, 0.976])
    assert {run["epochs_to_target"] for run in runs} == {8.0}
    curve = client.get(f"{SUBMISSIONS}/{submitted['id']}/runs/0/curve").json()
    assert (curve["index"], curve["file"]) == (0, "run_0.log")
    qualities = [evaluation["quality"] for evaluation in curve["evaluations"]]
    # The seed of a log shows in its second quality.
    assert qualities == pytest.approx([14.8, 47.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1], abs=0.1)
    assert curve["evaluations"][7]["seconds"] == pytest.approx(0.912)
    assert curve["evaluations"][7]["samples"] == 9216
    for index in ("-1", "x", "99999999999999999999"):
        response = client.get(f"{SUBMISSIONS}/{submitted['id']}/runs/{index}/log")
        assert response.status_code == 422
        assert response.json()["problems"][0]["field"] == "path.index"


def test_pages_of_the_list_are_newest_first(digits_submission, submit, client):
    made = [submit(digits_submission).json()["id"] for _ in range(5)]
    assert len(set(made)) == 5

    seen = []
    cursor = {}
    sizes = []
    while True:
        page = client.get(SUBMISSIONS, params={"limit": "2"} | cursor).json()
        sizes.append(len(page["submissions"]))
        seen += [submission["id"] for submission in page["submissions"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == made[::-1]
    for benchmark, count in (("digits", 5), ("cifar10", 0)):
        listed = client.get(SUBMISSIONS, params={"benchmark": benchmark}).json()["submissions"]
        assert len(listed) == count
    assert sizes == [2, 2, 1]
    cursors = ("x", "12.!!", f"{10**17}.abc", "1790000000000000.abc\n")
    for name, value in (("limit", 0), ("limit", 101), *(("cursor", each) for each in cursors)):
        response = client.get(SUBMISSIONS, params={name: value})
        assert response.status_code == 422, value
        assert response.json()["problems"][0]["field"] == f"query.{name}"


def test_a_dawnbench_entry_is_a_submission_to_the_benchmark_given_beside_it(client, alice):
    response = send_entry(client, alice, ENTRY | {"costPerHour": 3.06, "misc": {}})

    assert response.status_code == 201, response.text
    view = response.json()
    assert (view["benchmark"], view["division"]) == ("cifar10", "open")
    assert view["result"]["tta_seconds"] == pytest.approx(180.0)
    assert view["result"]["tta_display"] == "0:03:00"
    assert view["result"]["cost_usd"] == pytest.approx(0.05 * 3.06)
    assert view["system"]["name"] == "1 V100"
    log = client.get(f"{SUBMISSIONS}/{view['id']}/runs/0/log")
    assert log.content == CURVE.encode()


def test_a_dawnbench_entry_that_is_refused_names_file_and_line(client, alice, stored_files):
    for form, field in (
        ({"benchmark": None}, "benchmark"),
        ({"benchmark": "../cifar10"}, "benchmark"),
        ({"benchmark": "cifar10", "division": "closed"}, "division"),
    ):
        response = send_entry(client, alice, **form)
        assert response.status_code == 422
        (problem,) = response.json()["problems"]
        assert (problem["file"], problem["field"]) == ("entry.json", field)
    curve = "epoch\thours\ttop1Accuracy\n1\t0.05\t80\n2\t0.025\t95\n"
    response = send_entry(client, alice, curve=curve)

    assert response.status_code == 422
    (problem,) = response.json()["problems"]
    assert (problem["file"], problem["line"], problem["field"]) == ("entry.tsv", 3, "hours")
    assert problem["expected"] == "hours that do not decrease"
    assert stored_files() == []


@pytest.mark.parametrize(
    ("stated", "status", "states"),
    [({}, "verifying", ["queued"]), ({"precision": "bf16", "notes": "mixed"}, "claimed", [])],
    ids=["its own precision", "one that nobody calibrated"],
)
def test_a_benchmark_may_verify_each_submission(
    digits_submission, alice, olivia, settings, benchmarks_dir, tmp_path, stated, status, states
):
    digits_submission.claim |= stated
    settings.benchmarks_dir = tmp_path / "benchmarks"
    shutil.copytree(benchmarks_dir, settings.benchmarks_dir)
    definition = settings.benchmarks_dir / "digits.toml"
    wanted = definition.read_text().replace("automatic = false", "automatic = true")
    definition.write_text(wanted)
    files, archive = digits_submission.files(), {"archive": "true"}
    with TestClient(create_app(settings, dispatch=False)) as client:
        own = client.post(SUBMISSIONS, files=files, headers=alice.headers).json()
        other = client.post(SUBMISSIONS, files=files, data=archive, headers=olivia.headers).json()

        read = client.get(f"{SUBMISSIONS}/{own['id']}", headers=alice.headers)
        assert own == without_place(read.json())
    assert (own["status"], [v["state"] for v in own["verifications"]]) == (status, states)
    assert (other["status"], other["verifications"]) == ("claimed", [])


def evaluation(sequence, quality, run=0):
    place = {"seconds": 0.1 * (sequence + 1), "epoch": float(sequence + 1), "samples": 1152}
    kind = {"kind": "evaluation", "sequence": sequence, "run": run}
    return kind | {"quality": quality} | place


def race_of(client, verification_id):
    answer = client.get(f"/api/v1/verifications/{verification_id}/race")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_claim_that_nobody_measured_holds_no_record_and_races_alone(replay, client):
    race = race_of(client, replay.verification_id)
    (claim,) = race["ghosts"]
    assert race["why_no_record"] == "no submission is in first place of closed yet"
    assert (claim["role"], claim["is_own"]) == ("claim", True)
    # The runs take 110, 114 and 118 ms an epoch, and 4 ms more to evaluate.
    assert claim["points"][-1]["seconds"] == pytest.approx(8 * 0.118)
    assert claim["points"][-1]["quality"] == pytest.approx(98.1)
    assert [point["index"] for point in claim["points"]] == list(range(1, 9))


def test_claims_race_the_record(replay, digits_submission, make_log, submit, client, olivia):
    replay.finish()
    measured = replay.submission_id
    record, claim = race_of(client, replay.verification_id)["ghosts"]
    assert (record["role"], record["submission_id"], record["is_own"]) == ("record", measured, True)
    assert claim["role"] == "claim"
    page = client.get(f"/api/v1/verifications/{replay.verification_id}").json()
    trained = [run["evaluations"] for run in page["report"]["runs"]]
    drawn = [point["seconds"] for point in record["points"]]
    assert drawn in [[each["seconds"] for each in run] for run in trained]
    assert drawn[-1] != pytest.approx(8 * 0.118)  # The claim's own median run.
    for pace, seed, batch_size in ((0.2, 200, 32), (0.05, 300, 128)):
        for index, name in enumerate(digits_submission.logs):
            digits_submission.logs[name] = make_log(
                seed + index, name=name, seconds_per_epoch=pace + 0.004 * index
            )
        other = submit(digits_submission, batch_size=batch_size).json()["id"]
        address = f"/api/v1/submissions/{other}/verifications"
        asked = client.post(address, headers=olivia.headers).json()["id"]
        record, claim = race_of(client, asked)["ghosts"]
        assert (record["submission_id"], record["is_own"]) == (measured, False)
        assert (claim["submission_id"], claim["is_own"]) == (other, True)


def test_runs_so_far_are_those_of_the_latest_attempt(replay, client, database):
    assert race_of(client, replay.verification_id)["runs"] == []
    grant = replay.claim().json()
    finish = {"sequence": 2, "run": 0, "kind": "run_finished", "status": "reached"}
    replay.post(grant, [evaluation(0, 50.0), evaluation(1, 98.0), finish])
    replay.post(grant, [{"sequence": 3, "run": 1, "kind": "run_started"}])
    first, second = race_of(client, replay.verification_id)["runs"]
    assert first["status"] == "reached"
    assert [point["quality"] for point in first["evaluations"]] == [50.0, 98.0]
    assert (second["index"], second["status"], second["evaluations"]) == (1, None, [])
    page = client.get(f"/verifications/{replay.verification_id}").text
    assert 'data-live="evaluations"' in page
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(hours=1))
    expire_leases(database)
    race = race_of(client, replay.verification_id)
    assert (race["attempt"], race["runs"]) == (2, [])
    replay.finish()
    done = race_of(client, replay.verification_id)["runs"]
    assert [len(run["evaluations"]) for run in done] == [8] * len(replay.seeds())


def test_the_same_request_under_one_key_is_stored_once(digits_submission, submit, row_counts):
    first = submit(digits_submission, key="key-1")
    counts = row_counts()
    second = submit(digits_submission, key="key-1")

    assert (first.status_code, second.status_code) == (201, 201)
    assert without_place(second.json()) == first.json()
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert row_counts() == counts


def test_one_key_is_one_request(digits_submission, submit, row_counts, stored_files, make_log):
    first = submit(digits_submission, key="key-1").json()
    before = row_counts(), stored_files()
    digits_submission.logs["run_0.log"] = make_log(999)
    refused = submit(digits_submission, key="key-1")

    assert refused.status_code == 409
    assert first["id"] in refused.json()["detail"]
    assert (row_counts(), stored_files()) == before


def test_a_key_belongs_to_its_user(digits_submission, submit, make_log, bob):
    by_alice = submit(digits_submission, key="key-1").json()
    logs = enumerate(digits_submission.logs)
    digits_submission.logs = {name: make_log(200 + index, name=name) for index, name in logs}
    by_bob = submit(digits_submission, by=bob, key="key-1").json()

    assert by_alice["id"] != by_bob["id"]
    assert by_bob["submitter"] == "bob"


def test_a_refused_request_does_not_use_up_its_key(digits_submission, submit, stored_files):
    good = digits_submission.logs["run_0.log"]
    digits_submission.logs["run_0.log"] = b""
    assert submit(digits_submission, key="key-1").status_code == 422

    digits_submission.logs["run_0.log"] = good
    for key in (" ", "k" * 201, "tab\there"):
        response = submit(digits_submission, key=key)
        assert response.status_code == 422, key
        assert "Idempotency-Key" in response.json()["detail"]
    assert stored_files() == []
    assert submit(digits_submission, key="key-1").status_code == 201


def test_a_repeat_has_the_verdicts(digits_submission, submit, client, database, olivia, walter):
    submission_id = submit(digits_submission, key="key-1").json()["id"]
    for _ in ("the first verdict is published", "the second waits"):
        replay = ask_for_replay(client, database, submission_id, by=olivia, worker=walter)
        replay.finish()

    again = submit(digits_submission, key="key-1")

    assert again.status_code == 201
    assert again.json() == client.get(f"/api/v1/submissions/{submission_id}").json()
    assert again.json()["published_verification"] is not None
    assert len(again.json()["pending_decisions"]) == 1


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_a_log_is_sent_once(who, request, digits_submission, make_log, submit, row_counts):
    person = request.getfixturevalue(who)
    first = submit(digits_submission, as_is=True).json()["id"]
    before = row_counts()
    digits_submission.logs["run_0.log"] = make_log(500)
    digits_submission.logs["run_2.log"] = make_log(502, name="run_2.log")

    again = submit(digits_submission, by=person, as_is=True)

    assert again.status_code == 409
    assert f"run_1.log of submission {first} (/submissions/{first})" in again.json()["detail"]
    assert [problem["file"] for problem in again.json()["problems"]] == ["run_1.log"]
    assert row_counts() == before


def test_withdrawn_logs_are_free(digits_submission, submit, client, alice, olivia):
    first = submit(digits_submission, as_is=True).json()["id"]
    address = f"/api/v1/submissions/{first}/withdrawal"
    client.post(address, json={"reason": "the wrong system"}, headers=alice.headers)
    digits_submission.claim["notes"] = "the right one"

    assert submit(digits_submission, as_is=True).status_code == 201
    digits_submission.form = {"archive": "true"}
    assert submit(digits_submission, by=olivia, as_is=True).status_code == 201


def test_a_submission_under_embargo_is_not_named(digits_submission, submit, database, bob):
    first = submit(digits_submission, as_is=True).json()["id"]
    with database.write() as session:
        session.get_one(Submission, first).embargoed = True

    again = submit(digits_submission, by=bob, as_is=True)

    assert again.status_code == 409
    assert first not in again.text
    assert "under embargo" in again.json()["detail"]


def test_a_submission_looks_up_its_logs_by_hash_alone(digits_submission, submit, database):
    """However many submissions the benchmark has: others wait for this transaction."""
    with statements_of(database, lambda text: "log_sha256 IN" in text) as sent:
        assert submit(digits_submission).status_code == 201

    (asked,) = sent
    with database.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", asked.parameters).all()
    assert [str(row[3]).split(" (")[0] for row in plan] == [
        "SEARCH runs USING INDEX ix_runs_log_sha256"
    ]
