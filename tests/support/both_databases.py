"""Fixture for a file whose tests run on SQLite and on PostgreSQL: import it there."""

import pytest

# For a test whose answer no database has a part in.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database of either kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
