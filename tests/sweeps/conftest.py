"""Fixtures of the sweeps: the command as a user runs it, and a server that is asked over HTTP."""

import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from tests.server.conftest import (  # noqa: F401  fixtures
    database,
    database_url,
    every_database_is_closed,
    make_person,
    migrated_file,
    servers_share_what_is_the_same,
    settings,
    sqlite_url,
)
from tests.support.world import Worker, World


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs the installed `finishline` with these words, in this process."""
    (script,) = entry_points(group="console_scripts", name="finishline")
    main = script.load()

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["finishline", *map(str, words)])
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
        captured = capsys.readouterr()
        return SimpleNamespace(code=code or 0, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def client(settings):
    """The application with its threads: a worker gets its jobs over HTTP."""
    with TestClient(create_app(settings)) as made:
        yield made


@pytest.fixture
def world(client, make_person):
    """A server with people of every role."""
    world = World(client, make_person("ada", "admin").secret)
    for name in ("alice", "bob"):
        world.person(name)
    world.person("olivia", "organiser")
    return world.person("walter", "worker")


@pytest.fixture
def worker(world):
    """A confirmed worker of walter's."""
    return Worker(world).confirm()
