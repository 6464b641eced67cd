"""The browser that tests drive, and what they hold against every page."""

import shutil
from contextlib import contextmanager
from os import environ
from pathlib import Path

import pytest

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def find_chromium():
    candidates = [environ.get("FINISHLINE_CHROMIUM"), "/usr/bin/chromium"]
    found = next((c for c in candidates if c and Path(c).is_file()), None)
    return found or shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def running_chromium():
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium: install chromium or set FINISHLINE_CHROMIUM to its path")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield opened
        opened.close()
