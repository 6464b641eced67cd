"""Submissions, logs and reports of digits, and rows of its board that were measured."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, replace
from functools import partialmethod

from fastapi.testclient import TestClient

from finishline.rules.verification.messages import (
    WORKER_PROTOCOL,
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
)
from server.base.board_versions import raise_board_version
from server.base.database import Database
from server.base.models import Attempt, Submission, Verification, WorkerRow
from server.base.visibility import ORGANISER
from tests.support.run_logs import REFERENCE, SECONDS_PER_EPOCH, curve_of
from tests.support.streams import stream_report
from tests.support.workers import WORKER_SYSTEM, greet_as_servers, latest_attempt, send_to

SOURCE = {
    "name": "An archive",
    "url": "https://archive.example",
    "commit": "fb27b827bd83eff9021698ffe576b33a100e0b78",
}


ENTRY = {
    "version": "v1.0", "author": "Ada", "authorEmail": "ada@example.org", "framework": "PyTorch",
    "model": "ResNet-18", "hardware": "1 V100", "timestamp": "2018-04-20",
}  # fmt: skip
# Of the metric of cifar10. The second row is the first at 94.0 or more: 0.05 h = 180 s.
CURVE = "epoch\thours\ttop1Accuracy\n1\t0.025\t80.5\n2\t0.05\t94.0\n3\t0.075\t93.9\n"


def send_entry(client, person, entry=ENTRY, *, curve=CURVE, key=None, **form):
    """Send a DAWNBench entry to cifar10, without a curve as an inference result; the answer."""
    parts = [("submission", ("entry.json", json.dumps(entry, indent=1)))]
    parts += [("logs", ("entry.tsv", curve))] if curve is not None else []
    headers = person.headers | ({"Idempotency-Key": key} if key else {})
    form = {name: x for name, x in ({"benchmark": "cifar10"} | form).items() if x is not None}
    return client.post("/api/v1/submissions", files=parts, data=form, headers=headers)


def seal_of(**opened):
    """The seal that these opened values have, worked out from the document alone.

    As in JavaScript 64.0 is written 64.
    """
    text = json.dumps({"draw": 3} | opened, sort_keys=True, separators=(",", ":"))
    text = re.sub(r"(\d)\.0\b", r"\1", text)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Person:
    """Somebody with a token, and what they ask of the server of a client."""

    name: str
    secret: str
    client: TestClient = field(repr=False)

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.secret}"}

    def ask(self, method, address, json=None, **more):
        return self.client.request(method, address, json=json, headers=self.headers, **more)

    get = partialmethod(ask, "GET")
    post = partialmethod(ask, "POST")
    put = partialmethod(ask, "PUT")
    patch = partialmethod(ask, "PATCH")
    delete = partialmethod(ask, "DELETE")


def build_report(
    seeds,
    *,
    qualities=None,
    seconds_per_epoch=SECONDS_PER_EPOCH,
    cpu_share=1.0,
    system=WORKER_SYSTEM,
):
    runs = []
    for index, seed in enumerate(seeds):
        curve = curve_of(seed, qualities or REFERENCE)
        pace = seconds_per_epoch * (1 + 0.01 * index)
        evaluations = [
            ReplayEvaluation(
                epoch=float(j),
                samples=1152 * j,
                seconds=j * (pace + 0.004),
                quality=quality,
                ledger={"init": 2.0, "warmup": 0.2, "train": j * pace, "eval": j * 0.004},
            )
            for j, quality in enumerate(curve, start=1)
        ]
        last = evaluations[-1]
        reached = last.quality >= 97.5
        runs.append(
            ReplayRun(
                index=index,
                seed=seed,
                status="reached" if reached else "not_reached",
                evaluations=evaluations,
                ledger=last.ledger,
                tta_seconds=last.seconds if reached else None,
                parent_seconds=last.seconds,
                child_seconds=last.seconds,
                cpu_seconds=cpu_share * last.seconds,
            )
        )
    return ReplayReport(runs=runs, system=system)


def taken(answer):
    """What an answer says that was made."""
    assert answer.status_code == 201, answer.text
    return answer.json()


def claim_headers(grant):
    return {"Authorization": f"Bearer {grant['token']}", "Finishline-Fence": str(grant["fence"])}


@dataclass
class Replay:
    client: TestClient
    database: Database
    worker: Person
    submission_id: str
    verification_id: str

    def view(self):
        return self.client.get(f"/api/v1/verifications/{self.verification_id}").json()

    def status(self):
        view = self.client.get(f"/api/v1/submissions/{self.submission_id}").json()
        return str(view["status"])

    def seeds(self):
        with self.database.read(ORGANISER) as session:
            found = session.get_one(Verification, self.verification_id)
            return list(found.seeds)

    def change(self, attempt_id, **values):
        """Change an attempt's row behind the server's back: time that passed, for example."""
        with self.database.write() as session:
            attempt = session.get_one(Attempt, attempt_id)
            for name, value in values.items():
                setattr(attempt, name, value)

    @property
    def attempt_id(self):
        return latest_attempt(self.database, self.verification_id)

    def claim(self, attempt_id=None, *, worker="walter-1", protocol=WORKER_PROTOCOL):
        """Ask for an attempt, the latest if none is named, as the worker it was sent to."""
        wanted = attempt_id or self.attempt_id
        send_to(self.database, wanted, worker)
        return self.client.post(
            f"/api/v1/attempts/{wanted}/claim",
            json={"worker": worker, "protocol": protocol},
            headers=self.worker.headers,
        )

    def ask_again(self, person, submission_id=None, *, reason="record claim"):
        """Turn to another verification, of the same submission or another; the first one's id."""
        first, self.submission_id = self.verification_id, submission_id or self.submission_id
        address = f"/api/v1/submissions/{self.submission_id}/verifications"
        self.verification_id = taken(person.post(address, {"reason": reason}))["id"]
        return first

    def decide(self, person, decision, verification_id=None):
        address = f"/api/v1/verifications/{verification_id or self.verification_id}/decision"
        return person.post(address, {"decision": decision, "reason": "throttled host"})

    def cancel(self, person):
        return person.post(f"/api/v1/verifications/{self.verification_id}/cancellation")

    def post(self, grant, events):
        return self.client.post(
            f"/api/v1/attempts/{grant['attempt_id']}/evaluations",
            content=json.dumps({"events": events}),  # The client itself would refuse NaN.
            headers=claim_headers(grant) | {"Content-Type": "application/json"},
        )

    def report(self, grant, report):
        stream_report(self.database, grant["attempt_id"], report, fence=grant["fence"])
        with self.database.read() as session:
            unknown = session.get(WorkerRow, report.system.worker) is None
        if unknown:
            greet_as_servers(self.database, report.system.worker, report.system.hardware_class)
        return self.post_report(grant, report)

    def train(self, grant=None, **how):
        """Report the trainings of an attempt, the latest if none is leased yet; the answer."""
        return self.report(grant or self.claim().json(), build_report(self.seeds(), **how))

    def finish(self, **how):
        """Have the worker lease it and report honest runs; the answer, which must be taken."""
        answer = self.train(**how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post_report(self, grant, report):
        return self.client.post(
            f"/api/v1/attempts/{grant['attempt_id']}/report",
            json=asdict(report),
            headers=claim_headers(grant),
        )


def ask_for_replay(client, database, submission_id, *, by, worker):
    replay = Replay(client, database, worker, submission_id, "")
    replay.ask_again(by)
    return replay


def measure(replay, *, hardware_class="cpu-test", seconds_per_epoch=SECONDS_PER_EPOCH, **how):
    """Lease and report a replay, which an idle worker of a class trained at this pace."""
    worker = f"walter-{hardware_class}"
    system = replace(WORKER_SYSTEM, worker=worker, hardware_class=hardware_class)
    greet_as_servers(replay.database, worker, hardware_class)
    lease = replay.claim(worker=worker).json()
    how = {"system": system, "seconds_per_epoch": seconds_per_epoch} | how
    answer = replay.report(lease, build_report(replay.seeds(), **how))
    assert answer.status_code == 200, answer.text


def take_from_archive(database, submission_id):
    """Give a published result the source that the import of a known archive states."""
    with database.write() as session:
        submission = session.get_one(Submission, submission_id)
        submission.published.source = SOURCE
        raise_board_version(session, submission.benchmark_id, submission_id=submission_id)
