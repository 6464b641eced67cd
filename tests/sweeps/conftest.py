"""Fixtures of the sweeps: the command as a user runs it, and a server that is asked over HTTP."""

import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest

from tests.support.everything import fill
from tests.support.served import served
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the server: finishline.db and artifacts/."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def world(folder):
    """A server with people of every role, for all tests of a file."""
    with served(folder) as (client, secret):
        yield populated(client, secret)


@pytest.fixture(scope="module")
def worker(world):
    """A confirmed worker of walter's."""
    return Worker(world).confirm()


def populated(client, secret):
    world = World(client, secret)
    for name, role in (("alice", "submitter"), ("bob", "submitter"), ("olivia", "organiser")):
        world.person(name, role)
    return world.person("walter", "worker")


class Texts:
    """A text for each field that ends attributes and tags, and starts a formula in a table.

    Its number is the place of the field in `fields`.
    """

    def __init__(self):
        self.fields = []

    def __call__(self, field):
        if field not in self.fields:
            self.fields.append(field)
        return f"=1+1'\"><script>alert({self.fields.index(field)})</script>"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A server with one of everything and hostile text in each field, for all sweeps that read."""
    with served(tmp_path_factory.mktemp("hostile")) as (client, secret):
        world, texts = populated(client, secret), Texts()
        known = fill(world, Worker(world).confirm(), texts)
        yield SimpleNamespace(world=world, client=client, known=known, texts=texts)
