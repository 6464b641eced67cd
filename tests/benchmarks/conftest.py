"""The teacher's task, loaded from its file as the box loads it."""

import importlib.util
from pathlib import Path

import pytest

TEACHER = Path(__file__).parents[2] / "benchmarks" / "teacher"


def load_task(file):
    """A module from its file, outside the packages of the repository."""
    spec = importlib.util.spec_from_file_location("drawn_task", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def teacher():
    """The module of the teacher's task."""
    return load_task(TEACHER / "task.py")


@pytest.fixture(scope="session")
def drawn(teacher):
    """The draw of a nonce of 32 zero bytes."""
    return teacher.draw(bytes(32))
