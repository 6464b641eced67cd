"""A server with a real, migrated database, and the people who use it."""

import secrets
import shutil
from collections import Counter
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, func, select

from finishline.rules.archive.definitions import shipped_definition, shipped_texts
from server.app import create_app
from server.base.database import Database, RoomState, utc_now
from server.base.models import Base
from server.base.schema import migrate
from server.base.settings import MIB, Settings
from server.benchmarks.definitions import put_in_force
from server.benchmarks.in_force import PhaseWatch
from server.people.accounts import create_token
from server.reactions import connect_rooms
from tests.support.build import (
    Person,
    ask_for_replay,
    build_report,
    measure,
    take_from_archive,
    taken,
)
from tests.support.postgresql import running_postgresql
from tests.support.run_logs import CLAIM, SECONDS_PER_EPOCH, SubmissionParts, build_log
from tests.support.services import services_of
from tests.support.trainings import trained_anew
from tests.support.workers import say_hello


@pytest.fixture(scope="session", autouse=True)
def rooms_are_connected():
    """Rooms react to each other's events also where a test needs no application."""
    connect_rooms()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory):
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
    with running_postgresql() as url:
        engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        yield engine
        engine.dispose()


@contextmanager
def postgresql_database(server, template="template1"):
    name = f"test_{secrets.token_hex(6)}"
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_postgresql_url(postgresql):
    with postgresql_database(postgresql) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql):
    with postgresql_database(postgresql) as url:
        database = Database(url)
        migrate(database)
        database.close()
        yield str(database.url.database)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def empty_database(request, tmp_path):
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'new' / 'old.db'}")
    else:
        database = Database(request.getfixturevalue("empty_postgresql_url"))
    yield database
    database.close()


@pytest.fixture
def postgresql_url(postgresql, migrated_postgresql):
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
    return Settings(
        database_url=database_url,
        artifacts_dir=tmp_path / "artifacts",
        max_log_bytes=MIB,
        max_request_bytes=4 * MIB,
        max_json_bytes=MIB,
        max_log_files=5,
        rate_limits=False,
    )


@pytest.fixture
def client(settings, request):
    database = None
    if settings.database_url.startswith("sqlite:"):
        database = request.getfixturevalue("sqlite_database")
        database.state = RoomState()
    with TestClient(create_app(settings, dispatch=False, database=database)) as made:
        yield made


@pytest.fixture
def offer_archive(client):
    def offer(benchmark_id):
        services = services_of(client)
        with services.database.write() as session:
            benchmark = shipped_definition(benchmark_id)
            put_in_force(session, benchmark, shipped_texts()[benchmark_id])
        services.of(PhaseWatch).look_once()

    return offer


@pytest.fixture
def database(client):
    return services_of(client).database


@pytest.fixture
def make_person(client, database):
    def make(name, role):
        with database.write() as session:
            made = create_token(session, user_name=name, role=role, expires_in=None)
        return Person(name, made.secret, client)

    return make


def person(name, role):
    @pytest.fixture(name=name)
    def made(make_person):
        return make_person(name, role)

    return made


alice, bob = person("alice", "submitter"), person("bob", "submitter")
olivia, ada = person("olivia", "organiser"), person("ada", "admin")
walter = person("walter", "worker")


@pytest.fixture
def digits_submission(digits):
    logs = {}
    for index, name in enumerate(("run_0.log", "run_1.log", "run_2.log")):
        pace = SECONDS_PER_EPOCH + index * 0.004
        logs[name] = build_log(digits, 100 + index, name=name, seconds_per_epoch=pace)
    return SubmissionParts(claim=deepcopy(CLAIM) | {"runs": list(logs)}, logs=logs)


@pytest.fixture
def hello(client, walter):
    def say(name="walter-1", *, person=walter, **how):
        return say_hello(client, person, worker=name, **how)

    return say


@pytest.fixture
def submit(client, alice):
    """Sends a submission as alice, or as somebody else, and returns the response.

    The logs of one that is sent twice are of other trainings the second time; `as_is` or with a
    key they are the same. Another `batch_size` makes another configuration.
    """
    sent = Counter()
    counting = Lock()

    def send(parts, *, by=None, key=None, as_is=False, batch_size=None):
        if batch_size is not None:
            parts = parts.at(batch_size)
        own = {} if as_is else parts.logs
        with counting:
            times = {name: sent[log] for name, log in own.items()}
            sent.update(own.values())
        if key is None:
            logs = {name: trained_anew(log, times[name]) for name, log in own.items()}
            parts = replace(parts, logs=parts.logs | logs)
        headers = (by or alice).headers | ({"Idempotency-Key": key} if key else {})
        sent_as = {"files": parts.files(), "data": parts.form, "headers": headers}
        return client.post("/api/v1/submissions", **sent_as)

    return send


def list_stored_files(settings):
    files = (path for path in settings.artifacts_dir.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(settings.artifacts_dir)) for path in files)


@pytest.fixture
def publish(submit, olivia, database):
    """Hands a submission in as a result of a known archive, which a board numbers; its id."""

    def send(parts, *, organisation=None):
        claim = parts.claim | ({"organisation": organisation} if organisation else {})
        sent = submit(replace(parts, claim=claim, form={"archive": "true"}), by=olivia)
        submission_id = taken(sent)["id"]
        take_from_archive(database, submission_id)
        return submission_id

    return send


@pytest.fixture
def enter(digits_submission, publish, make_log):
    """Publishes digits runs of given seconds an epoch; the id. A run takes 8 epochs and 32 ms."""

    def send(
        *paces,
        seconds_per_epoch=0.116,
        spread=0.0,
        reached=True,
        by=None,
        division="closed",
        price=0.1,
        system=None,
        **claim,
    ):
        parts = replace(deepcopy(digits_submission), logs={})
        paces = paces or [seconds_per_epoch + index * spread for index in range(3)]
        names = [f"run_{index}.log" for index in range(len(paces))]
        parts.claim |= claim | {"division": division, "runs": names}
        parts.claim["system"] |= {"price_usd_per_hour": price} | (system or {})
        how = {"division": division, "qualities": None if reached else [50.0] * 8}
        for index, (name, pace) in enumerate(zip(names, paces, strict=True)):
            log = make_log(index, name=name, seconds_per_epoch=pace, **how)
            parts.logs[name] = log if reached else log.replace(b'"success"', b'"aborted"')
        return publish(parts, organisation=by)

    return send


def without_place(view):
    """A submission as it was answered when it came: its place is told when it is read."""
    return view | {"rank": None, "unranked_reason": None}


@pytest.fixture
def make_log(digits):
    return partial(build_log, digits)


@pytest.fixture
def make_report():
    return build_report


@pytest.fixture
def stored_files(settings):
    return partial(list_stored_files, settings)


@pytest.fixture
def row_counts(database):
    def count():
        with database.read() as session:
            return {
                table.name: session.scalar(select(func.count()).select_from(table)) or 0
                for table in Base.metadata.sorted_tables
            }

    return count


@pytest.fixture
def replay(digits_submission, submit, client, database, olivia, walter):
    submission_id = submit(digits_submission).json()["id"]
    return ask_for_replay(client, database, submission_id, by=olivia, worker=walter)


@pytest.fixture
def ask_another(replay, digits_submission, submit, olivia):
    sizes = count(65)

    def ask(by=None):
        other = submit(digits_submission, by=by, batch_size=next(sizes)).json()["id"]
        made = copy(replay)
        made.ask_again(olivia, other)
        return made.verification_id

    return ask


@pytest.fixture
def measured(digits_submission, digits, submit, client, database, olivia, walter):
    """Sends three digits runs of a pace and has them measured at it; the id of the submission.

    Each is of a hardware class of its own, so that each is a row of its own. `report` has changes
    of the report, and other arguments are fields of the claim.
    """
    numbers = count(1)

    def make(*, seconds_per_epoch=SECONDS_PER_EPOCH, by=None, system=None, report=None, **claim):
        number = next(numbers)
        parts = deepcopy(digits_submission)
        parts.claim |= claim
        system = {"hardware_class": f"cpu-{number}"} | (system or {})
        parts.claim["system"] |= system
        logged = {"division": parts.claim["division"], "seconds_per_epoch": seconds_per_epoch}
        logged["batch_size"] = int(parts.claim["hyperparameters"].get("batch_size", 64))
        for index, name in enumerate(parts.logs):
            parts.logs[name] = build_log(digits, 100 * number + index, name=name, **logged)
        submission_id = taken(submit(parts, by=by))["id"]
        found = ask_for_replay(client, database, submission_id, by=olivia, worker=walter)
        how = {"seconds_per_epoch": seconds_per_epoch} | (report or {})
        measure(found, hardware_class=system["hardware_class"], **how)
        return submission_id

    return make


@pytest.fixture
def embargo(olivia):
    """Sets the end of an embargo as a distance from this moment; None takes it away."""

    def change(until):
        at = None if until is None else (utc_now() + until).isoformat()
        body = {"embargo_until": at, "reason": "the round is not over"}
        taken(olivia.post("/api/v1/benchmarks/digits/phases", body))

    return change
