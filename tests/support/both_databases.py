"""Fixture for a file whose tests run on SQLite and on PostgreSQL: import it there."""

import pytest


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database of either kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
