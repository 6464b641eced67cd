"""One key, one log and one ticket for one submission."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from server.base.database import utc_now
from server.base.models import Submission, TicketRow
from server.operations.integrity import Findings, check_evidence
from server.submissions.rescoring import rescore_submissions
from tests.server.conftest import Replay, without_place
from tests.support.run_logs import make_run_log
from tests.support.services import services_of
from tests.support.statements import statements_of


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


def test_another_request_under_one_key_is_409_and_leaves_nothing(
    digits_submission, submit, row_counts, stored_files, make_log
):
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


def test_a_refused_request_does_not_use_up_its_key(digits_submission, submit):
    good = digits_submission.logs["run_0.log"]
    digits_submission.logs["run_0.log"] = b""
    assert submit(digits_submission, key="key-1").status_code == 422

    digits_submission.logs["run_0.log"] = good
    assert submit(digits_submission, key="key-1").status_code == 201


def test_without_a_key_the_same_request_is_refused_naming_the_submission_it_made(
    digits_submission, submit
):
    first = submit(digits_submission, as_is=True).json()
    again = submit(digits_submission, as_is=True)

    assert again.status_code == 409
    assert first["id"] in again.json()["detail"]


def test_two_requests_under_one_key_at_once_make_one_submission(
    digits_submission, submit, client, stored_files
):
    barrier = threading.Barrier(4)
    answers = []

    def send():
        barrier.wait(timeout=10)
        answers.append(submit(digits_submission, key="key-1"))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 3
    assert len(client.get("/api/v1/submissions").json()["submissions"]) == 1
    assert not [path for path in stored_files() if path.startswith("incoming/")]


@pytest.mark.parametrize("key", [" ", "k" * 201, "tab\there"])
def test_a_key_that_is_none_is_422(key, digits_submission, submit, stored_files):
    response = submit(digits_submission, key=key)

    assert response.status_code == 422
    assert "Idempotency-Key" in response.json()["detail"]
    assert stored_files() == []


def test_the_same_request_after_its_verdicts_is_answered_with_them(
    digits_submission, submit, client, database, olivia, walter, make_report
):
    submission_id = submit(digits_submission, key="key-1").json()["id"]
    for reason in ("the first verdict is published", "the second waits"):
        asked = client.post(
            f"/api/v1/submissions/{submission_id}/verifications",
            headers=olivia.headers,
            json={"reason": reason},
        )
        replay = Replay(client, database, walter, submission_id, asked.json()["id"])
        replay.report(replay.claim().json(), make_report(replay.seeds()))

    again = submit(digits_submission, key="key-1")

    assert again.status_code == 201
    assert again.json() == client.get(f"/api/v1/submissions/{submission_id}").json()
    assert again.json()["published_verification"] is not None
    assert len(again.json()["pending_decisions"]) == 1


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_a_log_that_is_in_another_submission_is_refused_with_its_address(
    who, request, digits_submission, make_log, submit, row_counts
):
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


def test_a_withdrawn_submission_leaves_its_logs_free(digits_submission, submit, client, alice):
    first = submit(digits_submission, as_is=True).json()["id"]
    address = f"/api/v1/submissions/{first}/withdrawal"
    client.post(address, json={"reason": "the wrong system"}, headers=alice.headers)
    digits_submission.claim["notes"] = "the right one"

    assert submit(digits_submission, as_is=True).status_code == 201


def test_an_archive_may_have_what_another_has(digits_submission, submit, olivia):
    submit(digits_submission, as_is=True)
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


TICKETS = "/api/v1/tickets"


WANTED = {"benchmark": "digits", "settings": {"batch_size": 64}, "hardware_class": "cpu-test"}


CURVE = [40.0, 80.0, 90.0, 94.0, 96.0, 96.5, 97.0, 98.1]


Get = Callable[..., dict[str, Any]]


@pytest.fixture
def get_ticket(client, alice):
    """Gets a ticket for alice, or for somebody else."""

    def get(*, by=None, **changes):
        headers = (by or alice).headers
        answer = client.post(TICKETS, json=WANTED | changes, headers=headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    return get


@pytest.fixture
def claim_with(digits, digits_submission):
    """Makes a claim with a ticket: a log for each of some seeds, which began at some moment."""

    def make(issued, seeds, *, minutes=0.0, **fields):
        began = time.time_ns() // 1_000_000 + int(minutes * 60_000)
        logs = {
            f"run_{index}.log": make_run_log(
                digits,
                [quality - index / 10 - seed % 97 / 1000 for quality in CURVE[:-1]] + CURVE[-1:],
                lambda epoch, index=index: epoch * (0.11 + index / 1000),
                name=f"run_{index}.log",
                seed=seed,
                started_at_ms=began + index * 2000,
            )
            for index, seed in enumerate(seeds)
        }
        claim = digits_submission.claim | {"ticket": issued["id"], "runs": list(logs)} | fields
        return replace(digits_submission, claim=claim, logs=logs)

    return make


def test_a_ticket_has_seeds_of_the_server_for_30_days(get_ticket):
    ticket = get_ticket()

    assert len(set(ticket["seeds"])) == 3
    assert ticket["division"] == "closed"
    assert ticket["settings"]["momentum"] == 0.9  # Of the reference: it was not asked for.
    assert ticket["submission"] is None
    assert get_ticket(runs=6)["seeds"][:3] != ticket["seeds"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"benchmark": "digit"}, "did you mean 'digits'?"),
        ({"division": "half"}, "closed or open"),
        ({"settings": {"batch_size": 8}}, "settings.batch_size"),
        ({"settings": {"speed": 8}}, "settings.speed"),
        ({"hardware_class": "My GPU"}, "hardware_class"),
        ({"runs": 2}, "3 to 6"),
        ({"runs": 7}, "3 to 6"),
        ({"seeds": [1, 2, 3]}, "seeds"),
    ],
)
def test_a_wrong_request_names_its_field_and_leaves_no_ticket(client, alice, change, said):
    answer = client.post(TICKETS, json=WANTED | change, headers=alice.headers)

    assert answer.status_code == 422, answer.text
    assert said in answer.text
    assert client.get(TICKETS, headers=alice.headers).json()["tickets"] == []


def test_three_tickets_may_be_open_for_a_user_and_a_benchmark(
    client, get_ticket, alice, bob, database
):
    first, *_ = [get_ticket(), get_ticket(), get_ticket()]

    fourth = client.post(TICKETS, json=WANTED, headers=alice.headers)

    assert fourth.status_code == 429
    assert first["id"] in fourth.json()["detail"]
    assert 29 * 86400 < int(fourth.headers["Retry-After"]) <= 30 * 86400
    get_ticket(by=bob)
    get_ticket(benchmark="cifar10", settings={})
    expire(database, first["id"])
    get_ticket()


def expire(database, ticket_id):
    with database.write() as session:
        session.get_one(TicketRow, ticket_id).expires_at = utc_now() - timedelta(seconds=1)


def test_own_tickets_are_read_and_no_others(client, get_ticket, alice, bob):
    ticket = get_ticket()

    assert client.get(TICKETS, headers=alice.headers).json()["tickets"] == [ticket]
    assert client.get(f"{TICKETS}/{ticket['id']}", headers=alice.headers).json() == ticket
    assert client.get(TICKETS, headers=bob.headers).json()["tickets"] == []
    assert client.get(f"{TICKETS}/{ticket['id']}", headers=bob.headers).status_code == 404


def test_a_claim_spends_its_ticket(client, get_ticket, claim_with, submit, alice):
    ticket = get_ticket()

    stored = submit(claim_with(ticket, ticket["seeds"]), as_is=True)

    assert stored.status_code == 201, stored.text
    assert stored.json()["ticket"] == ticket["id"]
    now = client.get(f"{TICKETS}/{ticket['id']}", headers=alice.headers).json()
    assert now["submission"] == stored.json()["id"]
    again = submit(claim_with(ticket, ticket["seeds"], minutes=1), as_is=True)
    assert again.status_code == 409
    assert stored.json()["id"] in again.json()["detail"]
    assert "finishline ticket digits" in again.json()["detail"]


def test_the_same_request_again_is_the_same_submission(get_ticket, claim_with, submit):
    ticket = get_ticket()
    claim = claim_with(ticket, ticket["seeds"])

    first, second = (submit(claim, key="k") for _ in range(2))

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"]


def test_an_unfinished_seed_counts_as_a_run_that_never_reached_the_target(
    get_ticket, claim_with, submit
):
    ticket = get_ticket()
    *trained, left = ticket["seeds"]

    result = submit(claim_with(ticket, trained, unfinished=[left]), as_is=True).json()["result"]

    assert (result["started"], result["reached"]) == (3, 2)
    # The slower of the two: the seed that is not there is the slowest of three, and dropped.
    assert result["tta_seconds"] == pytest.approx(8 * (0.111 + 0.004))
    assert "unfinished run 1" in str(result["steps"])
    assert str(left) not in str(result)  # A seed is nobody else's to see as yet.


def test_a_claim_with_a_ticket_is_scored_again_and_its_proof_holds(
    get_ticket, claim_with, submit, replay, make_report, olivia
):
    ticket = get_ticket()
    *trained, left = ticket["seeds"]
    sent = submit(claim_with(ticket, trained, unfinished=[left]), as_is=True).json()
    path = f"/api/v1/submissions/{sent['id']}/verifications"
    asked = replay.client.post(path, json={"reason": "wanted"}, headers=olivia.headers)
    replay.submission_id, replay.verification_id = sent["id"], asked.json()["id"]
    replay.report(replay.claim().json(), make_report(replay.seeds()))

    replay.client.get(f"/api/v1/verifications/{replay.verification_id}/proof")  # Lists the key.
    findings = Findings()
    check_evidence(services_of(replay.client), findings)
    again = rescore_submissions(services_of(replay.client), progress=print)

    assert (findings.looked_at["proofs"], findings.faults) == (1, [])
    assert (again.unchanged, again.changed, again.failed) == (2, [], [])


def test_two_unfinished_seeds_of_three_leave_no_time(get_ticket, claim_with, submit):
    ticket = get_ticket()
    first, *left = ticket["seeds"]

    view = submit(claim_with(ticket, [first], unfinished=left), as_is=True).json()

    assert view["result"]["tta_seconds"] is None
    assert len(view["runs"]) == 1


def test_a_claim_without_a_ticket_is_taken_and_says_so(submit, digits_submission):
    assert submit(digits_submission).json()["ticket"] is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda t, make: make(t, t["seeds"][:2]), "of ticket"),
        (lambda t, make: make(t, t["seeds"][:2]), "in the list `unfinished`"),
        (lambda t, make: make(t, [*t["seeds"][:2], 7]), "seed 7, which ticket"),
        (lambda t, make: make(t, [*t["seeds"], 7]), "seed 7, which ticket"),
        (lambda t, make: make(t, t["seeds"], unfinished=[8]), "seed 8, which ticket"),
        (lambda t, make: make(t, t["seeds"], unfinished=t["seeds"][:1]), "is also the seed of"),
        (lambda t, make: make(t, t["seeds"], minutes=-6), "minutes before ticket"),
        (lambda t, make: make(t, t["seeds"], hyperparameters={"batch_size": 32}), "batch_size"),
        (lambda t, make: make(t, t["seeds"], ticket="nothere"), "you have no ticket 'nothere'"),
        (lambda t, make: make(t, t["seeds"], ticket=None, unfinished=[8]), "without a ticket"),
        (lambda t, make: make(t, t["seeds"], unfinished=["8"]), "not a list of seeds"),
        (lambda t, make: make(t, t["seeds"], unfinished=[8, 8]), "listed twice"),
    ],
)  # fmt: skip
def test_a_claim_that_is_not_of_its_ticket_is_refused_and_not_stored(
    make, said, get_ticket, claim_with, submit, client, alice, row_counts, stored_files
):
    ticket = get_ticket()
    before = row_counts()

    refused = submit(make(ticket, claim_with), as_is=True)

    assert refused.status_code == 422, refused.text
    assert said in refused.text
    assert (row_counts(), stored_files()) == (before, [])
    open_one = client.get(f"{TICKETS}/{ticket['id']}", headers=alice.headers).json()
    assert open_one["submission"] is None


def test_somebody_elses_ticket_is_none(get_ticket, claim_with, submit, bob):
    ticket = get_ticket(by=bob)

    refused = submit(claim_with(ticket, ticket["seeds"]), as_is=True)

    assert refused.status_code == 422
    assert f"you have no ticket '{ticket['id']}'" in refused.text


def test_an_expired_ticket_is_refused(get_ticket, claim_with, submit, database):
    ticket = get_ticket()
    expire(database, ticket["id"])

    refused = submit(claim_with(ticket, ticket["seeds"]), as_is=True)

    assert refused.status_code == 409
    assert f"Ticket {ticket['id']} expired on" in refused.json()["detail"]
