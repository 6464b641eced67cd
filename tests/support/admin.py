"""An administrator's commands, run within the tests: a process of its own imports for 2 s."""

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest

from finishline.cli.main import main as finishline
from server.admin import main
from server.base.settings import get_settings


def environment_of(settings):
    """The variables by which a command finds a server's database, logs and benchmarks."""
    return {
        "FINISHLINE_DATABASE_URL": settings.database_url,
        "FINISHLINE_ARTIFACTS_DIR": str(settings.artifacts_dir),
        "FINISHLINE_BENCHMARKS_DIR": str(settings.benchmarks_dir),
    }


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


def run_admin(environment, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["server.admin", *arguments])
        return _run(environment, main)


def run_finishline(environment, *arguments):
    """Run `finishline admin --json` with these arguments, and with these settings alone."""
    return _run(environment, lambda: sys.exit(finishline(["--json", "admin", *arguments])))


def _run(environment, command):
    out, err, mask = StringIO(), StringIO(), os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        get_settings.cache_clear()
        try:
            command()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            get_settings.cache_clear()
            os.umask(mask)
    return Said(code, out.getvalue(), err.getvalue())
