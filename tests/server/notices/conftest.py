"""A receiver of webhooks on a real port, and a server that may post to it."""

import json
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database
from server.notices.outbox import NoticeLoop
from tests.support.processes import wait_for
from tests.support.services import services_of
from tests.support.serving import serving

EVERY_KIND = [
    "submission.accepted", "submission.verifying", "submission.verified", "submission.rejected",
    "verification.queued", "verification.started", "verification.lost", "verification.done",
    "verification.failed", "verification.cancelled", "record.set", "calibration.adopted",
    "decision.published", "worker.drifted",
    "worker.lost", "worker.paused", "worker.refused",
]  # fmt: skip


@dataclass(frozen=True)
class Post:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self):
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came in, and what is answered: each of `answers` once, then 200."""

    url: str
    posts: list[Post] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    text: bytes = b"thank you"
    gate: threading.Event | None = None

    @property
    def kinds(self):
        return [post.event["type"] for post in self.posts]


@pytest.fixture
def make_receiver():
    """Starts receivers, with a certificate if they are given one."""
    with ExitStack() as running:

        def make(context=None):
            receiver = Receiver(url="")

            def respond(request, body):
                headers = {name.lower(): value for name, value in request.headers.items()}
                receiver.posts.append(Post(request.path, headers, body))
                if receiver.gate is not None:
                    receiver.gate.wait(timeout=30)
                status = receiver.answers.pop(0) if receiver.answers else 200
                return status, receiver.headers, receiver.text

            receiver.url = f"{running.enter_context(serving(respond, context))}/hook"
            return receiver

        yield make


@pytest.fixture
def receiver(make_receiver):
    return make_receiver()


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"webhook_private_addresses": True})


@pytest.fixture
def make_loop(client, settings):
    services = services_of(client)
    made = []

    def make():
        loop = NoticeLoop(services.database, settings)
        made.append(loop)
        return loop

    yield make
    for loop in made:
        loop.stop()


@dataclass
class Hooks:
    client: TestClient
    loop: NoticeLoop
    database: Database

    def make(self, by, url, *kinds, **wanted):
        body = {"url": url, "kinds": list(kinds) or EVERY_KIND} | wanted
        answer = self.client.post("/api/v1/webhooks", json=body, headers=by.headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def log(self, by, hook):
        address = f"/api/v1/webhooks/{hook['id']}/deliveries"
        return self.client.get(address, headers=by.headers).json()["deliveries"]

    def ping(self, by, hook):
        answer = self.client.post(f"/api/v1/webhooks/{hook['id']}/test", headers=by.headers)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def read(self, by, hook):
        return self.client.get(f"/api/v1/webhooks/{hook['id']}", headers=by.headers).json()

    def delivered(self, by, hook):
        """Rounds until the latest message is delivered."""
        self.run(lambda: self.log(by, hook)[0]["state"] == "delivered")
        return self.log(by, hook)[0]

    def tried(self, by, hook, tries):
        """Rounds until the latest message was tried so often."""
        self.run(lambda: len(self.log(by, hook)[0]["tries"]) == tries)
        return self.log(by, hook)[0]

    def run(self, until):
        """Rounds of the loop until something is so."""

        def round_and_look():
            self.loop.run_once()
            return until()

        return wait_for(round_and_look, seconds=20, what="the notices", pause=0.02)


@pytest.fixture
def hooks(client, database, make_loop):
    """Webhooks of a server whose loop turns only when a test says so."""
    return Hooks(client, make_loop(), database)
