"""Databases that a test opens and leaves open."""

from contextlib import contextmanager

import pytest
from sqlalchemy import QueuePool

import server.base.database


@contextmanager
def databases_closed():
    """Hold a block to closing each Database that it opens.

    What is left open is closed when the garbage collector comes by: under another test, which is
    blamed for it, and on SQLite with a warning from Python 3.13 on only.
    """
    opened = []
    make_engine = server.base.database.create_engine

    def note(*arguments, **options):
        opened.append(make_engine(*arguments, **options))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.base.database, "create_engine", note)
        yield
    left = [str(engine.url) for engine in opened if connections_of(engine)]
    assert not left, f"not closed: {left}"


def connections_of(engine):
    """How many connections of an engine are open, in use or not; of one in memory 0."""
    pool = engine.pool
    return pool.checkedin() + pool.checkedout() if isinstance(pool, QueuePool) else 0
