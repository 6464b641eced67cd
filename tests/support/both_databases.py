"""For files whose tests run on SQLite and on PostgreSQL: a fixture, to be imported, and help."""

import threading

import pytest

from tests.support.processes import wait_for

# For a test whose answer no database has a part in.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
# For a test of a file whose others have SQLite.
on_both_databases = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)], indirect=True
)
# For a test of the locks of rows.
ON_POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def database_url(request):
    return request.getfixturevalue(f"{request.param}_url")


def wait_until_blocked(database, transactions=1):
    def blocked():
        with database.engine.connect() as connection:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            return connection.exec_driver_sql(waiting).scalar() == transactions

    wait_for(blocked, seconds=20, what="transactions that wait for another", pause=0.02)


def at_once(*calls):
    """What calls that start together return or raise, in the order of the calls."""
    barrier = threading.Barrier(len(calls))
    results = [None] * len(calls)

    def run(index, call):
        barrier.wait(timeout=10)
        try:
            results[index] = call()
        except BaseException as error:  # noqa: BLE001  It is a result like any other here.
            results[index] = error

    threads = [threading.Thread(target=run, args=(index, call)) for index, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a call hangs"
    return results
