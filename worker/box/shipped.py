"""Tasks of benchmarks in a folder, with data that a package of this host has."""

import importlib.util
from pathlib import Path

from worker.box.packages import requirements_of
from worker.box.task import TaskError, TaskModule

# Data of shipped tasks, in a package of this host: the package and the file below it.
SHIPPED_DATA = {"digits": {"digits.csv.gz": ("sklearn", "datasets/data/digits.csv.gz")}}


def task_module(folder: Path, benchmark_id: str) -> TaskModule:
    """The task in a folder. Raises TaskError without a module, or without its data."""
    if not (folder / "task.py").is_file():
        raise TaskError(f"benchmark {benchmark_id} has no task for code submissions")
    return TaskModule(
        folder=folder.resolve(),
        packages=dict(requirements_of(["numpy"])),
        data={
            name: _data_file(package, path)
            for name, (package, path) in SHIPPED_DATA.get(benchmark_id, {}).items()
        },
    )


def _data_file(package: str, path: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise TaskError(f"the task's data need the package {package}, which is not installed")
    return Path(found.origin).parent / path
