"""How many of our files one request runs through: ceilings that may only be lowered."""

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from server.verifications.dispatch import Dispatcher
from tests.support.build import ask_for_replay
from tests.support.copies import serving
from tests.support.services import services_of
from tests.support.streams import streamed
from tests.support.workers import say_hello

ROOT = Path(__file__).parents[2]
FOLDERS = ("server", "finishline/rules")
# A verification is to come down to 30 of the server. It calls one file more under load.
SUBMISSION_CEILINGS = {"server": 22, "finishline/rules": 22}
VERIFICATION_CEILINGS = {"server": 36, "finishline/rules": 21}


class Tracer:
    """Collects the files in which Python functions are called, on all threads, while it counts."""

    def __init__(self):
        self._files = None

    def note(self, frame, event, _argument):
        """Python calls it at each call and return."""
        if self._files is not None and event == "call":
            self._files.add(frame.f_code.co_filename)

    @contextmanager
    def counting(self):
        """Fills in our files in which a function is called within the block, by folder."""
        found = {}
        self._files = files = set()
        try:
            yield found
        finally:
            self._files = None
        for folder in FOLDERS:
            root = f"{ROOT / folder}/"
            found[folder] = sorted(f.removeprefix(root) for f in files if f.startswith(root))


@pytest.fixture
def tracer():
    """A tracer of this thread and of those that start from now on."""
    made, before = Tracer(), sys.getprofile()
    threading.setprofile(made.note)
    sys.setprofile(made.note)
    yield made
    sys.setprofile(before)
    threading.setprofile(None)


@pytest.fixture
def client(tracer, settings):
    """A server all of whose threads are traced."""
    with serving(settings) as made:
        yield made


@dataclass
class Broker:
    """Keeps the ids that it is given."""

    attempts: list[str] = field(default_factory=list)

    def send_attempt(self, attempt_id, _worker):
        """Keep an id."""
        self.attempts.append(attempt_id)


@pytest.fixture
def verify(client, olivia, walter, make_report, monkeypatch):
    """Has a submission verified: request, dispatch, claim, evaluations, report."""
    broker, services = Broker(), services_of(client)
    dispatcher = services.of(Dispatcher)
    monkeypatch.setattr(dispatcher, "broker", broker)

    def run(submission_id):
        how = {"by": olivia, "worker": walter}
        replay = ask_for_replay(client, services.database, submission_id, **how)
        say_hello(client, walter)
        dispatcher.run_once()
        grant = replay.claim(broker.attempts[-1]).json()
        report = make_report(replay.seeds())
        for sequence, (_, event) in enumerate(streamed(report)):
            assert replay.post(grant, [{"sequence": sequence, **event}]).status_code == 200
        # The trainings were posted at once; by the clock they came at the moments of their ledgers.
        assert replay.report(grant, report).status_code == 200
        assert replay.status() == "verified"

    return run


def require_at_most(ceilings, found):
    """Fail with the list of files where there are more of them than a ceiling allows."""
    for folder, files in found.items():
        listed = "\n".join(files)
        assert len(files) <= ceilings[folder], f"{len(files)} files of {folder}:\n{listed}"


def test_a_submission_runs_through_few_files(tracer, submit, digits_submission):
    submit(digits_submission)  # Imports, and builds what the first request builds.
    with tracer.counting() as found:
        answer = submit(digits_submission)

    assert answer.status_code == 201
    assert len(found["server"]) > 10  # It counts.
    require_at_most(SUBMISSION_CEILINGS, found)


def test_a_verification_runs_through_few_files(tracer, submit, digits_submission, verify):
    ids = [submit(digits_submission, batch_size=size).json()["id"] for size in (32, 128)]
    verify(ids[0])
    with tracer.counting() as found:
        verify(ids[1])

    assert len(found["server"]) > 10
    require_at_most(VERIFICATION_CEILINGS, found)
