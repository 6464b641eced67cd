"""A second server beside that of a test, and everything a server answers about what it holds."""

import re
from contextlib import contextmanager

from fastapi.testclient import TestClient
from sqlalchemy import select

from server.app import create_app
from server.base.artifacts import make_store
from server.base.database import Database, Services
from server.base.models import Submission, Verification
from server.base.settings import Settings
from server.base.standing import ENDED
from tests.support.proofs import predicate_in
from tests.support.services import services_of

BOARDS = ("digits", "cifar10")
# "13 seconds ago" hangs on when a page was asked for; the moment itself is beside it.
AGO = re.compile(rb"( title=\"[^\"<>]*\")?>[^<]*</time>")


@contextmanager
def serving(settings):
    with TestClient(create_app(settings, dispatch=False)) as client:
        yield client


@contextmanager
def unserved(settings):
    """What an administrator's command works with, where no server runs."""
    database = Database(settings.database_url)
    try:
        yield Services(settings, database, make_store(settings), {})
    finally:
        database.close()


def settings_of(folder, database_url):
    return Settings(database_url=database_url, artifacts_dir=folder / "artifacts")


def ids_in(database):
    with database.read() as session:
        submissions = list(session.scalars(select(Submission.id).order_by(Submission.id)))
        replays = select(Verification.id).where(Verification.state.in_(ENDED))
        return submissions, list(session.scalars(replays.order_by(Verification.id)))


def answers(client):
    submissions, replays = ids_in(services_of(client).database)
    paths = ["/api/v1/prices", "/api/v1/submissions"]
    for board in BOARDS:
        paths += [f"/benchmarks/{board}", f"/api/v1/leaderboards/{board}"]
        paths += [f"/api/v1/leaderboards/{board}.csv", f"/api/v1/benchmarks/{board}/records"]
        paths += [f"/api/v1/benchmarks/{board}/runs.json"]
    for each in submissions:
        paths += [f"/api/v1/submissions/{each}", f"/submissions/{each}"]
        paths += [f"/api/v1/submissions/{each}/runs/0/log"]
        paths += [f"/api/v1/submissions/{each}/runs/0/curve"]
    for each in replays:
        paths += [f"/api/v1/verifications/{each}"]  # Its page names the server's own key.
    found = {}
    for path in paths:
        answer = client.get(path)
        found[path] = (answer.status_code, AGO.sub(b"></time>", answer.content))
    for each in replays:
        answer = client.get(f"/api/v1/verifications/{each}/proof?format=dsse")
        # Another server signs with a key of its own.
        proof = predicate_in(answer) if answer.is_success else answer.json()
        found[f"proof of {each}"] = (answer.status_code, proof)
    return found
