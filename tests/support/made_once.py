"""What is the same for every server that tests start, made once for all of them.

A test's server has a database, folders and figures of its own; the document of its API and the SQL
of its statements are those of every other.
"""

import copy
from contextlib import contextmanager
from typing import Any

import fastapi.applications
import pytest
from sqlalchemy import event, util

import server.base.database

# Each is some 20 kB.
KEPT_STATEMENTS = 2_000


@contextmanager
def made_once():
    """Within the block the first server makes what the others need too."""
    with pytest.MonkeyPatch.context() as patch:
        describe = described_once(fastapi.applications.get_openapi)
        patch.setattr(fastapi.applications, "get_openapi", describe)
        make_engine = compiling_once(server.base.database.create_engine)
        patch.setattr(server.base.database, "create_engine", make_engine)
        yield


def described_once(describe):
    """FastAPI's get_openapi, which describes the same routes once: it takes 0.5 s of CPU."""
    # With the routes, so that another's cannot come to lie where they lay.
    described = {}

    def find(**what):
        routes = what["routes"]
        key = tuple(id(r) if hasattr(r, "original_router") else r.path for r in routes)
        if key not in described:
            described[key] = (list(routes), describe(**what))
        return copy.deepcopy(described[key][1])

    return find


def compiling_once(make_engine):
    """SQLAlchemy's create_engine, whose engines share what a statement was compiled to.

    It is kept by dialect, so they share that too, once one of them has connected.
    """
    compiled = util.LRUCache[Any, Any](KEPT_STATEMENTS)
    dialects = {}

    def make(*arguments, **options):
        options.setdefault("execution_options", {"compiled_cache": compiled})
        engine = make_engine(*arguments, **options)
        kind = type(engine.dialect)
        if kind in dialects:
            engine.dialect = dialects[kind]
        else:
            event.listen(engine, "connect", lambda *_: dialects.setdefault(kind, engine.dialect))
        return engine

    return make
