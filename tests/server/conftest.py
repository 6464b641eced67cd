"""A server with a real, migrated database, and the people who use it."""

import json
import secrets
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, func, select

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from server.app import create_app
from server.base.database import Database, RoomState, insert_missing, utc_now
from server.base.models import Attempt, Base, Submission, Verification, WorkerRow
from server.base.schema import migrate
from server.base.settings import MIB, Settings
from server.people.accounts import create_token
from server.reactions import connect_rooms
from tests.support.postgresql import running_postgresql
from tests.support.run_logs import make_run_log
from tests.support.services import services_of
from tests.support.streams import stream_report
from tests.support.trainings import trained_anew
from tests.support.workers import greet_as_servers, latest_attempt, send_to

REFERENCE = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
SECONDS_PER_EPOCH = 0.11


@pytest.fixture(scope="session", autouse=True)
def rooms_are_connected():
    """Rooms react to each other's events also where a test needs no application."""
    connect_rooms()


@pytest.fixture(autouse=True)
def workers_are_confirmed(request, monkeypatch):
    """Each worker is confirmed, as by the server for its own, when it first says hello.

    Not in tests marked `unconfirmed`, which are about that.
    """
    if request.node.get_closest_marker("unconfirmed") is not None:
        return

    def insert_confirmed(session, model, **values):
        confirmed = {"confirmed_at": utc_now(), "confirmed_by": None}
        return insert_missing(session, model, **(values | confirmed))

    monkeypatch.setattr("server.verifications.workers.insert_missing", insert_confirmed)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory):
    """A SQLite file at the newest schema, to be copied."""
    path = tmp_path_factory.mktemp("schema") / "empty.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture(scope="session")
def sqlite_database(tmp_path_factory):
    """The database of one file for all tests. Its engine compiles each statement once."""
    return Database(f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'finishline.db'}")


@pytest.fixture
def sqlite_url(sqlite_database, migrated_file):
    """The address of that file, which is new and migrated for each test."""
    file = Path(sqlite_database.url.database)
    for old in file.parent.iterdir():
        old.unlink()
    shutil.copy(migrated_file, file)
    yield f"sqlite:///{file}"
    sqlite_database.close()


@pytest.fixture(scope="session")
def postgresql():
    """A real PostgreSQL for the session; the engine makes and drops databases."""
    with running_postgresql() as url:
        engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        yield engine
        engine.dispose()


@contextmanager
def postgresql_database(server, template="template1"):
    """The address of a database that is a copy of another, for as long as the block lasts."""
    name = f"test_{secrets.token_hex(6)}"
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_postgresql_url(postgresql):
    """An empty PostgreSQL database of the test's own."""
    with postgresql_database(postgresql) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql):
    """The name of a PostgreSQL database at the newest schema, to be copied."""
    with postgresql_database(postgresql) as url:
        database = Database(url)
        migrate(database)
        database.close()
        yield str(database.url.database)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def empty_database(request, tmp_path):
    """A database of either kind, for a test of one migration to bring to where it begins."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'new' / 'old.db'}")
    else:
        database = Database(request.getfixturevalue("empty_postgresql_url"))
    yield database
    database.close()


@pytest.fixture
def postgresql_url(postgresql, migrated_postgresql):
    """A migrated PostgreSQL database of the test's own."""
    with postgresql_database(postgresql, migrated_postgresql) as url:
        yield url


@pytest.fixture
def database_url(request):
    """The database of `client`: SQLite, or the kind that a test names by an indirect parameter.

    A file whose tests run on both imports tests.support.both_databases.
    """
    return request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_url")


@pytest.fixture
def settings(tmp_path, database_url):
    """Settings of a server of its own, with small limits."""
    return Settings(
        database_url=database_url,
        artifacts_dir=tmp_path / "artifacts",
        max_log_bytes=MIB,
        max_request_bytes=4 * MIB,
        max_json_bytes=MIB,
        max_log_files=5,
        rate_limits=False,  # A test asks faster than people do.
    )


@pytest.fixture
def client(settings, request):
    """The application, without its dispatch loop."""
    database = None
    if settings.database_url.startswith("sqlite:"):
        database = request.getfixturevalue("sqlite_database")
        database.state = RoomState()
    with TestClient(create_app(settings, dispatch=False, database=database)) as made:
        yield made


@pytest.fixture
def offer_archive(client):
    """Offers the shipped definition of an archive, as the import of one of its results does."""

    def offer(benchmark_id):
        services = services_of(client)
        services.benchmarks.offer(shipped_definition(benchmark_id))

    return offer


@pytest.fixture
def database(client):
    """The database of `client`."""
    return services_of(client).database


@dataclass(frozen=True)
class Person:
    """Somebody with a token."""

    name: str
    secret: str

    @property
    def headers(self):
        """What makes a request this person's."""
        return {"Authorization": f"Bearer {self.secret}"}


@pytest.fixture
def make_person(database):
    """Makes people by name and role."""

    def make(name, role):
        with database.write() as session:
            made = create_token(session, user_name=name, role=role, expires_in=None)
        return Person(name, made.secret)

    return make


@pytest.fixture
def alice(make_person):
    """A submitter."""
    return make_person("alice", "submitter")


@pytest.fixture
def bob(make_person):
    """Another submitter."""
    return make_person("bob", "submitter")


@pytest.fixture
def olivia(make_person):
    """An organiser."""
    return make_person("olivia", "organiser")


@pytest.fixture
def ada(make_person):
    """An admin."""
    return make_person("ada", "admin")


@pytest.fixture
def walter(make_person):
    """A worker."""
    return make_person("walter", "worker")


def build_log(
    digits,
    seed,
    *,
    name="run_0.log",
    epochs=8,
    qualities=None,
    division="closed",
    batch_size=64,
    seconds_per_epoch=SECONDS_PER_EPOCH,
):
    """An MLLOG of one digits run that reaches 98.1 % at epoch `epochs`."""
    curve = qualities or REFERENCE[-epochs:] if epochs <= len(REFERENCE) else REFERENCE
    if not qualities and len(curve) > 2:
        # Nor in every quality: early ones differ most.
        curve = [curve[0], curve[1] + seed % 7, *curve[2:]]

    def train_seconds(epoch):
        # No two trainings agree in every time: two evaluations differ by the seed, which they
        # tell to the base of 20.
        digit = {2: seed % 20, 3: seed // 20 % 20}.get(epoch, 0)
        return epoch * seconds_per_epoch + 0.4 * seconds_per_epoch * digit / 20

    return make_run_log(
        digits,
        curve,
        train_seconds,
        name=name,
        seed=seed,
        batch_size=batch_size,
        division=division,
    )


@dataclass
class SubmissionParts:
    """A submission that can be changed before it is sent."""

    claim: dict[str, Any]
    logs: dict[str, bytes]
    form: dict[str, str] = field(default_factory=dict)

    def files(self):
        """The multipart parts."""
        parts = [("submission", ("submission.json", orjson.dumps(self.claim)))]
        return parts + [("logs", (name, content)) for name, content in self.logs.items()]


@pytest.fixture
def digits_submission(digits):
    """Three honest digits runs in the closed division."""
    names = [f"run_{index}.log" for index in range(3)]
    return SubmissionParts(
        claim={
            "benchmark": "digits",
            "division": "closed",
            "model": "digits reference",
            "framework": "torch 2.13.0",
            "system": {
                "name": "two-core test machine",
                "hardware_class": "cpu-test",
                "processor": "test processor",
                "processor_count": 2,
                "memory_gib": 24,
                "price_usd_per_hour": 0.1,
                "price_source": "price list of the test",
            },
            "hyperparameters": {"batch_size": 64},
            "trained_with": "reference",
            "runs": names,
        },
        logs={
            name: build_log(
                digits, 100 + index, name=name, seconds_per_epoch=SECONDS_PER_EPOCH + index * 0.004
            )
            for index, name in enumerate(names)
        },
    )


@pytest.fixture
def submit(client, alice):
    """Sends a submission as alice, or as somebody else, and returns the response.

    The logs of one that is sent twice are of other trainings the second time; `as_is` or with a
    key they are the same.
    """
    sent = Counter()
    counting = Lock()

    def send(parts, *, by=None, key=None, as_is=False):
        own = {} if as_is else parts.logs
        with counting:
            times = {name: sent[log] for name, log in own.items()}
            sent.update(own.values())
        if key is None:
            logs = {name: trained_anew(log, times[name]) for name, log in own.items()}
            parts = replace(parts, logs=parts.logs | logs)
        headers = (by or alice).headers | ({"Idempotency-Key": key} if key else {})
        return client.post(
            "/api/v1/submissions", files=parts.files(), data=parts.form, headers=headers
        )

    return send


WORKER_SYSTEM = WorkerSystem(
    worker="walter-1",
    hardware_class="cpu-test",
    processor="test processor",
    processor_count=2,
    memory_gib=24.0,
    accelerator=None,
    accelerator_count=0,
    threads=1,
    software={"torch": "2.13.0"},
)


def curve_of(seed, curve):
    """A curve that only this seed has; one that stands still is that of every seed."""
    if len(set(curve)) < 2:
        return curve
    # A claim's own seed follows its log (build_log); the server draws no seed as small, and none
    # of 2**32 or more.
    shift = seed % 7 if seed < 10_000 else seed * 1e-11
    return [curve[0], curve[1] + shift, *curve[2:]]


def build_report(
    seeds,
    *,
    qualities=None,
    seconds_per_epoch=SECONDS_PER_EPOCH,
    cpu_share=1.0,
    system=WORKER_SYSTEM,
):
    """The report of an honest replay of the reference."""
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


def list_stored_files(settings):
    """Every file in the artifact store."""
    return sorted(
        str(path.relative_to(settings.artifacts_dir))
        for path in settings.artifacts_dir.rglob("*")
        if path.is_file()
    )


@pytest.fixture
def claims_are_numbered(monkeypatch):
    """For tests of what a board does with numbered rows, whatever their evidence and price."""
    monkeypatch.setattr(
        "finishline.rules.ranking.ranking.NUMBERED", ("measured", "published", "claimed")
    )
    monkeypatch.setattr(
        "server.verifications.record_candidates.OWN_TIMES", ("published", "claimed")
    )
    monkeypatch.setattr("server.boards.rows.is_own_price", lambda *_: False)


def without_place(view):
    """A submission as it was answered when it came: its place is told when it is read."""
    return view | {"rank": None, "provisional_rank": None}


@pytest.fixture
def make_log(digits):
    """Writes the log of a digits run: see build_log."""
    return partial(build_log, digits)


@pytest.fixture
def make_report():
    """Builds the report of a replay: see build_report."""
    return build_report


@pytest.fixture
def stored_files(settings):
    """Lists what is in the artifact store."""
    return partial(list_stored_files, settings)


@pytest.fixture
def row_counts(database):
    """Counts the rows of every table."""

    def count():
        with database.read() as session:
            return {
                table.name: session.scalar(select(func.count()).select_from(table)) or 0
                for table in Base.metadata.sorted_tables
            }

    return count


def claim_headers(grant):
    """What makes a post that of a claim."""
    return {"Authorization": f"Bearer {grant['token']}", "Finishline-Fence": str(grant["fence"])}


@dataclass
class Replay:
    """A verification of a digits submission, and what a worker sends about it."""

    client: TestClient
    database: Database
    worker: Person
    submission_id: str
    verification_id: str

    def view(self):
        """The verification as the API shows it."""
        return self.client.get(f"/api/v1/verifications/{self.verification_id}").json()

    def status(self):
        """The submission's status."""
        view = self.client.get(f"/api/v1/submissions/{self.submission_id}").json()
        return str(view["status"])

    def seeds(self):
        """The seeds that were drawn, as a worker finds them in its job."""
        with self.database.read() as session:
            found = session.get_one(Verification, self.verification_id)
            return list(found.seeds)

    def pool_id(self):
        """The pool that measures the submission."""
        with self.database.read() as session:
            return session.get_one(Submission, self.submission_id).pool_id

    def change(self, attempt_id, **values):
        """Change an attempt's row behind the server's back: time that passed, for example."""
        with self.database.write() as session:
            attempt = session.get_one(Attempt, attempt_id)
            for name, value in values.items():
                setattr(attempt, name, value)

    @property
    def attempt_id(self):
        """The latest attempt."""
        return latest_attempt(self.database, self.verification_id)

    def claim(self, attempt_id=None, *, worker="walter-1"):
        """Ask for an attempt, the latest if none is named, as the worker it was sent to."""
        wanted = attempt_id or self.attempt_id
        send_to(self.database, wanted, worker)
        return self.client.post(
            f"/api/v1/attempts/{wanted}/claim",
            json={"worker": worker, "hardware_class": "cpu-test"},
            headers=self.worker.headers,
        )

    def post(self, grant, events):
        """Post events with a claim's token."""
        return self.client.post(
            f"/api/v1/attempts/{grant['attempt_id']}/evaluations",
            content=json.dumps({"events": events}),  # The client itself would refuse NaN.
            headers=claim_headers(grant) | {"Content-Type": "application/json"},
        )

    def report(self, grant, report):
        """Send a report with a claim's token, after the events of its trainings."""
        stream_report(self.database, grant["attempt_id"], report, fence=grant["fence"])
        with self.database.read() as session:
            unknown = session.get(WorkerRow, report.system.worker) is None
        if unknown:
            greet_as_servers(self.database, report.system.worker, report.system.hardware_class)
        return self.post_report(grant, report)

    def post_report(self, grant, report):
        """Send a report alone."""
        return self.client.post(
            f"/api/v1/attempts/{grant['attempt_id']}/report",
            json=asdict(report),
            headers=claim_headers(grant),
        )


@pytest.fixture
def replay(digits_submission, submit, client, database, olivia, walter):
    """A digits submission whose verification an organiser has asked for."""
    submission_id = submit(digits_submission).json()["id"]
    answer = client.post(
        f"/api/v1/submissions/{submission_id}/verifications",
        json={"reason": "record claim"},
        headers=olivia.headers,
    )
    assert answer.status_code == 201, answer.text
    return Replay(client, database, walter, submission_id, answer.json()["id"])


@pytest.fixture
def embargo(client, olivia):
    """Sets the end of an embargo as a distance from this moment; None takes it away."""

    def change(until):
        at = None if until is None else (utc_now() + until).isoformat()
        body = {"embargo_until": at, "reason": "the round is not over"}
        answer = client.post("/api/v1/benchmarks/digits/phases", json=body, headers=olivia.headers)
        assert answer.status_code == 201, answer.text

    return change
