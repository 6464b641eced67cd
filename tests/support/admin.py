"""The administrator's command, run within the tests: a process of its own imports for 2 s."""

import gc
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest

from server.admin import main
from server.base.settings import get_settings


@dataclass(frozen=True)
class Said:
    """What a command left: its exit code and both its outputs."""

    code: int
    out: str
    err: str


def run_admin(environment, *arguments):
    """Run `python -m server.admin` with these arguments, and with these settings alone."""
    out, err, thresholds = StringIO(), StringIO(), gc.get_threshold()
    mask = os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["server.admin", *arguments])
        for name, value in environment.items():
            patch.setenv(name, value)
        get_settings.cache_clear()
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            get_settings.cache_clear()
            gc.set_threshold(*thresholds)
            os.umask(mask)
    return Said(code, out.getvalue(), err.getvalue())
