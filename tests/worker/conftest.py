"""Jobs, trainers without torch and a server that keeps what it is told."""

import json
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from finishline.rules.verification.messages import ReplayJob, TargetSpec, Training
from tests.support.serving import serving
from tests.support.workers import WORKER_SYSTEM
from worker.child_process import Host
from worker.link import WorkerLink
from worker.outbox import Announcer

CHILD_WITH_FAKES = Path(__file__).with_name("child_with_fakes.py")


@pytest.fixture
def make_job():
    def make(
        reference="climb",
        *,
        seeds=(1,),
        evaluations_in_a_row=1,
        hyperparameters=None,
        target=97.5,
        hyperparameters_by_run=(),
        stop_at="target",
        latency=None,
        precision=None,
        **changes,
    ):
        tables = hyperparameters_by_run or [hyperparameters or {"batch_size": 64}] * len(seeds)
        measure = ("tta", "latency") if latency is not None else ("tta",)
        if not hyperparameters_by_run:
            measure += ("profile",)
        how = {"stop_at": stop_at, "measure": measure, "precision": precision}
        pairs = zip(seeds, tables, strict=True)
        ids = {f"{name}_id": f"{name}-1" for name in ("attempt", "verification", "submission")}
        job = ReplayJob(
            **ids, benchmark_id="digits", benchmark_sha256="0" * 64,
            data_set_sha256="fake-data-set", clock="mlperf", division="closed", control_points=[],
            trainings=[Training(reference, settings, seed, **how) for seed, settings in pairs],
            target=TargetSpec("top1Accuracy", target, "higher", evaluations_in_a_row),
            run_limit_seconds=30.0, latency=latency,
        )  # fmt: skip
        return replace(job, **changes)

    return make


@pytest.fixture
def host():
    command = (sys.executable, str(CHILD_WITH_FAKES))
    return Host(device="cpu", data_dir=Path("unused"), command=command)


@pytest.fixture
def system():
    return replace(WORKER_SYSTEM, worker="grace", processor="test", memory_gib=1.0, software={})


@pytest.fixture
def events():
    return []


@pytest.fixture
def announcer(events):
    return Announcer(events.append)


@dataclass
class FakeServer:
    """Answers every post and keeps it; `answers` overrides the answer to a kind of post."""

    url: str = ""
    posts: list[tuple[str, str, dict]] = field(default_factory=list)  # (kind, token, body)
    answers: dict[str, list[tuple[int, dict]]] = field(default_factory=dict)
    fence_headers: list[tuple[str, str | None]] = field(default_factory=list)
    lease_seconds: float = 4.0
    fence: int = 1
    job: ReplayJob | None = None  # Of the next lease.
    changed: threading.Condition = field(default_factory=threading.Condition)

    def answer_to(self, kind):
        if self.answers.get(kind):
            scripted = self.answers[kind]
            return scripted.pop(0) if len(scripted) > 1 else scripted[0]
        grant = {"attempt_id": "attempt-1", "fence": self.fence, "token": "attempt-token"}
        grant |= {"lease_seconds": self.lease_seconds, "job": self.job and asdict(self.job)}
        return 200, {"claim": grant, "evaluations": {"proceed": True, "reason": None}}.get(kind, {})

    def bodies(self, kind):
        return [body for posted, _, body in self.posts if posted == kind]

    def tokens(self, kind):
        return {token for posted, token, _ in self.posts if posted == kind}

    def fences(self, kind):
        return {fence for posted, fence in self.fence_headers if posted == kind}

    def events(self):
        posted = [event for body in self.bodies("evaluations") for event in body["events"]]
        return list({event["sequence"]: event for event in posted}.values())

    def wait_for(self, condition, seconds=30.0):
        with self.changed:
            assert self.changed.wait_for(condition, timeout=seconds), self.posts


@pytest.fixture
def fake_server():
    fake = FakeServer()

    def respond(request, body):
        kind = urlsplit(request.path).path.rsplit("/", 1)[-1]
        with fake.changed:
            status, answer = fake.answer_to(kind)
            if request.command == "POST":
                fake.posts.append((kind, request.headers["authorization"], json.loads(body)))
                fake.fence_headers.append((kind, request.headers["finishline-fence"]))
            fake.changed.notify_all()
        if isinstance(answer, bytes):
            return status, {}, answer
        return status, {}, json.dumps(answer).encode() if status != 204 else b""

    with serving(respond) as fake.url:
        yield fake


@pytest.fixture
def server_client(fake_server):
    with WorkerLink(fake_server.url, token="worker-token") as client:
        yield client
