"""Fixtures for tests of the rules."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def archives():
    """The folder of published DAWNBench and MLPerf files; tests that need it skip without it."""
    beside = REPOSITORY.parent / "shared" / "archives"
    folder = Path(os.environ.get("FINISHLINE_ARCHIVES", beside))
    if not (folder / "dawnbench" / "expected.json").is_file():
        pytest.skip(f"no archives at {folder}: set FINISHLINE_ARCHIVES to a folder that has them")
    return folder
