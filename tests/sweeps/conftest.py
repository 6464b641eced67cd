"""Fixtures of the sweeps: the command as a user runs it."""

import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest


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
