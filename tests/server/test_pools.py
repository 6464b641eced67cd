"""Pools: their rank and record, and their end."""

from copy import deepcopy
from dataclasses import replace

import pytest

from server.base.models import Submission
from tests.support.workers import greet_as_servers

BOARD = "/api/v1/leaderboards/digits"


class Pools:
    """Configurations that differ by their hardware class, measured one after the other."""

    def __init__(self, client, replay, make_report, submit):
        self.client, self.replay, self.make_report, self.submit = (
            client,
            replay,
            make_report,
            submit,
        )

    def measure(self, parts, hardware_class, pace, headers):
        """Submit the reference for a class and have it replayed at so many seconds an epoch."""
        parts = deepcopy(parts)
        parts.claim["system"]["hardware_class"] = hardware_class
        sent = self.submit(parts)
        assert sent.status_code == 201, sent.text
        self.verify(sent.json()["id"], hardware_class, pace, headers)
        return str(sent.json()["id"])

    def verify(self, submission_id, hardware_class, pace, headers):
        asked = self.client.post(
            f"/api/v1/submissions/{submission_id}/verifications",
            json={"reason": "wanted"},
            headers=headers,
        )
        assert asked.status_code == 201, asked.text
        self.train(submission_id, asked.json()["id"], hardware_class, pace)

    def train(self, submission_id, verification_id, hardware_class, pace):
        """Train a verification and report it."""
        self.replay.submission_id, self.replay.verification_id = submission_id, verification_id
        greet_as_servers(self.replay.database, "walter-1", hardware_class)
        report = self.make_report(self.replay.seeds(), seconds_per_epoch=pace)
        system = replace(report.system, hardware_class=hardware_class)
        sent = self.replay.report(self.replay.claim().json(), replace(report, system=system))
        assert sent.status_code == 200, sent.text

    def entry(self, submission_id):
        """A row of the board."""
        entries = self.client.get(BOARD).json()["entries"]
        return next(e for e in entries if e["submission_id"] == submission_id)


@pytest.fixture
def measure(client, replay, make_report, submit, digits_submission, olivia):
    """Measures the reference on a hardware class; returns the submission's id."""
    made = Pools(client, replay, make_report, submit)

    def run(hardware_class, pace):
        return made.measure(digits_submission, hardware_class, pace, olivia.headers)

    run.pools = made
    return run


def pool_of(client, database, submission_id):
    with database.read() as session:
        pool_id = session.get_one(Submission, submission_id).pool_id
    return client.get(f"/api/v1/pools/{pool_id}").json()


def test_a_measured_row_ranks_at_once_and_the_fastest_holds_the_record(measure, client):
    found = [measure(f"cpu-{number}", pace) for number, pace in enumerate((0.12, 0.14, 0.16, 0.1))]

    assert [measure.pools.entry(each)["rank"] for each in found] == [2, 3, 4, 1]
    divisions = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    (closed,) = [one for one in divisions if one["records"]]
    assert [(one["submission_id"], one["beaten"]) for one in closed["records"]] == [
        (found[0], None),
        (found[3], found[0]),
    ]
    assert closed["not_records"] == []
    assert "not the record" not in client.get("/benchmarks/digits").text.lower()
    assert "It holds the record." in client.get(f"/submissions/{found[3]}").text


def test_a_closed_pool_lets_its_submissions_go_and_the_next_replay_opens_another(
    measure, client, database, olivia, alice
):
    submission_id = measure("cpu-4", 0.11)
    pool = pool_of(client, database, submission_id)
    path, body = f"/api/v1/pools/{pool['id']}/close", {"reason": "the worker has another driver"}
    assert client.post(path, json=body, headers=alice.headers).status_code == 403
    assert client.post(path, json={}, headers=olivia.headers).status_code == 422
    closed = client.post(path, json=body, headers=olivia.headers)

    assert closed.status_code == 200, closed.text
    assert closed.json()["closed_because"] == "the worker has another driver"
    assert len(closed.json()["runs"]) == len(pool["runs"])
    entry = measure.pools.entry(submission_id)
    assert (entry["evidence"], entry["check"], entry["rank"]) == ("claimed", "epochs_agree", None)
    (logged,) = client.get("/api/v1/audit?action=pool.close", headers=olivia.headers).json()[
        "records"
    ]
    assert logged["after"]["consequence"] == (
        "1 submission dropped from measured to claimed until the configuration is trained again"
    )
    assert client.post(path, json=body, headers=olivia.headers).status_code == 409
    measure.pools.verify(submission_id, "cpu-4", 0.11, olivia.headers)
    assert pool_of(client, database, submission_id)["id"] != pool["id"]
    assert measure.pools.entry(submission_id)["rank"] == 1
