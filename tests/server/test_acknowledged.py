"""Acknowledged means stored: while a server is killed, with people writing."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count

import httpx2
import pytest
from sqlalchemy import select

from server.base.database import Database
from server.base.models import RunRow, Submission
from server.base.visibility import ORGANISER
from server.people.accounts import create_token
from tests.support.processes import free_port, running_server, wait_for
from tests.support.run_logs import SubmissionParts
from tests.support.trainings import trained_anew

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

KILLS = 2
BETWEEN = 12
CLIENTS = 8


class Submitters:
    """People who submit one after the other, each under a key until it is acknowledged.

    `acknowledged` has the id that each key was answered with, and the hashes of its logs.
    """

    def __init__(self, secret, parts, url):
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._parts, self._url = parts, url
        self.acknowledged = {}
        self.over = threading.Event()

    def submit_on(self, number):
        with httpx2.Client(base_url=self._url, timeout=20) as client:
            for made in count():
                if self.over.is_set():
                    return
                self._submit(client, f"{number}-{made}", made * CLIENTS + number)

    def _submit(self, client, key, training):
        logs = {name: trained_anew(log, training) for name, log in self._parts.logs.items()}
        files = SubmissionParts(self._parts.claim, logs).files()
        headers = self._headers | {"Idempotency-Key": key}
        status = None
        while status is None or status > 500:  # The server is away, or says so.
            self.over.wait(0.02)
            with suppress(httpx2.TransportError):
                answer = client.post("/api/v1/submissions", files=files, headers=headers)
                status = answer.status_code
        assert status == 201, answer.text
        hashes = {hashlib.sha256(log).hexdigest() for log in logs.values()}
        self.acknowledged[key] = answer.json()["id"], hashes


def has_enough(sent, submitting, wanted):
    return len(sent.acknowledged) >= wanted or any(each.done() for each in submitting)


def test_acknowledged_outlives_a_killed_server_once(sqlite_url, tmp_path, digits_submission):
    database, port, artifacts = Database(sqlite_url), free_port(), tmp_path / "artifacts"
    with database.write() as session:
        made = create_token(session, user_name="ada", role="submitter", expires_in=None)
    sent = Submitters(made.secret, digits_submission, f"http://127.0.0.1:{port}")
    settings = {"database_url": sqlite_url, "artifacts_dir": artifacts}
    settings["quota_submissions_per_day"] = "unlimited"
    with ThreadPoolExecutor(CLIENTS) as people:
        submitting = []
        for round_ in range(KILLS + 1):
            with running_server(tmp_path / "log", port, **settings) as (server, _):
                submitting = submitting or [
                    people.submit(sent.submit_on, number) for number in range(CLIENTS)
                ]
                enough = partial(has_enough, sent, submitting, len(sent.acknowledged) + BETWEEN)
                wait_for(enough, seconds=60, pause=0.01, what="acknowledgements")
                if round_ < KILLS:
                    server.kill()
                else:
                    sent.over.set()
                    for each in submitting:
                        each.result(timeout=60)

    with database.read(ORGANISER) as session:  # Runs of a claim are hidden from others.
        keys = session.execute(select(Submission.idempotency_key, Submission.id)).all()
        logs = session.execute(select(RunRow.submission_id, RunRow.log_sha256)).all()
    database.close()
    assert dict(keys) == {key: made for key, (made, _) in sent.acknowledged.items()}
    assert len(keys) >= (KILLS + 1) * BETWEEN
    for submission_id, hashes in sent.acknowledged.values():
        assert {sha256 for sent_as, sha256 in logs if sent_as == submission_id} == hashes
        for sha256 in hashes:
            content = (artifacts / sha256[:2] / sha256).read_bytes()
            assert hashlib.sha256(content).hexdigest() == sha256
