"""Prices that had shapes stay in the book when the shapes go; and the way back."""

import pytest
from alembic import command
from sqlalchemy.exc import DatabaseError

from server.base.database import Database
from server.base.schema import alembic_config, migrate
from tests.server.test_migrations import insert_rows, select_all

BEFORE, HERE = "0038", "0039"
ROWS = """
INSERT INTO users (id, name, role, created_at) VALUES (1, 'ada', 'organiser', :now);
INSERT INTO prices (id, provider, instance, region, pricing, usd_per_hour, effective_on, source_url,
  added_by, added_at)
VALUES (1, 'cloud', 'gpu', 'north', 'on_demand', 2.5, '2026-11-01', 'https://a.example', 1, :now);
INSERT INTO prices (id, provider, instance, region, pricing, usd_per_hour, effective_on, source_url,
  added_by, added_at, accelerator, accelerator_count, processor_count, memory_gib)
VALUES (2, 'cloud', 'gpu', 'north', 'on_demand', 2.5, '2026-11-01', 'https://a.example', 1, :now,
  'H100', 8, 192, 2048.5)
"""
KEPT = "SELECT id, provider, instance, region, usd_per_hour, source_url FROM prices ORDER BY id"
SHAPE = "SELECT accelerator, accelerator_count, processor_count, memory_gib FROM prices ORDER BY id"


@pytest.fixture
def old(empty_database: Database) -> Database:
    """A database of the schema before, with a price that has a shape and one that has none."""
    migrate(empty_database, BEFORE)
    insert_rows(empty_database, ROWS)
    return empty_database


def test_prices_stay_in_both_directions_and_can_still_not_be_changed(old: Database) -> None:
    before = select_all(old, KEPT)
    migrate(old, HERE)
    assert select_all(old, KEPT) == before
    with pytest.raises(DatabaseError):
        select_all(old, SHAPE)
    with pytest.raises(DatabaseError, match="only ever added to"):
        insert_rows(old, "UPDATE prices SET usd_per_hour = 1")

    command.downgrade(alembic_config(old), BEFORE)
    assert (select_all(old, KEPT), select_all(old, SHAPE)) == (before, [(None,) * 4] * 2)
    with pytest.raises(DatabaseError, match="only ever added to"):
        insert_rows(old, "DELETE FROM prices")
    migrate(old, HERE)
    assert select_all(old, KEPT) == before
