"""A folder of run logs with its submission.json, renewed after each run."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from finishline.devices import local_system
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError, LogFormatError
from finishline.rules.logs import parse_run_log
from finishline.rules.submissions.claim import read_json_object

CLAIM_NAME = "submission.json"
UNSTATED = "not stated"
# Libraries that train, and their distributions. The first loaded one is named.
FRAMEWORKS = {
    "torch": "torch",
    "jax": "jax",
    "tensorflow": "tensorflow",
    "mlx": "mlx",
    "sklearn": "scikit-learn",
    "numpy": "numpy",
}


@dataclass(frozen=True)
class Submission:
    """Facts that all runs of a submission share. None is filled in from this process."""

    benchmark: Benchmark
    division: str
    hyperparameters: Mapping[str, float]
    model: str | None = None
    framework: str | None = None


def next_log(folder: Path) -> BinaryIO:
    """Open the next run_N.log of a folder, unbuffered. Creates the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in count():
        with suppress(FileExistsError):
            return (folder / f"run_{number}.log").open("xb", buffering=0)
    raise AssertionError("counting does not end")


def renew_submission(folder: Path, submission: Submission) -> Path:
    """Write the submission.json of a folder's started logs. Fields that a person added stay."""
    kept = read_claim(folder, submission)
    seeds = {
        path.name: seed
        for path in logs_in(folder)
        if (seed := _seed_in(path, submission.benchmark)) is not False
    }
    system = local_system(os.environ.get("FINISHLINE_DEVICE") or None)
    script = Path(sys.argv[0]).name if sys.argv else ""
    told = {"model": submission.model, "framework": submission.framework}
    claim: dict[str, Any] = {
        "benchmark": submission.benchmark.benchmark_id,
        "division": submission.division,
        "model": UNSTATED if script in ("", "-c", "-m") else script,
        "framework": _framework() or UNSTATED,
        "system": system,
        "hyperparameters": dict(submission.hyperparameters),
        "trained_with": "own",
        **kept,
        **{name: value for name, value in told.items() if value is not None},
        "runs": list(seeds),
    }
    path = folder / CLAIM_NAME
    new = path.with_suffix(".new")
    new.write_text(json.dumps(claim, indent=2) + "\n", encoding="utf-8")
    new.replace(path)
    return path


def logs_in(folder: Path) -> list[Path]:
    """Return the logs run_N.log of a folder, by number."""
    numbered = [path for path in folder.glob("run_*.log") if path.stem[4:].isdecimal()]
    return sorted(numbered, key=lambda path: int(path.stem[4:]))


def _seed_in(path: Path, benchmark: Benchmark) -> int | bool | None:
    """Return the seed of a log or None, and False if the clock has yet to start."""
    try:
        return parse_run_log(path.read_bytes(), name=path.name, benchmark=benchmark).seed
    except LogFormatError as error:
        # `finishline check` reports other faults.
        return False if error.code == "no_run_start" else None


def read_claim(folder: Path, submission: Submission) -> dict[str, Any]:
    """Read the claim of a folder, if any. Raises ClaimError for another submission."""
    path = folder / CLAIM_NAME
    if not path.is_file():
        return {}
    claim = read_json_object(path.read_bytes(), file=str(path))
    ours = {
        "benchmark": submission.benchmark.benchmark_id,
        "division": submission.division,
        "hyperparameters": dict(submission.hyperparameters),
    }
    for field, value in ours.items():
        if claim.get(field) != value:
            raise ClaimError(
                f"{json.dumps(claim.get(field))}, but this run has {json.dumps(value)}",
                file=str(path),
                field=field,
                expected="another folder for another submission: out=..., or FINISHLINE_OUT",
            )
    return claim


def _framework() -> str | None:
    for module, package in FRAMEWORKS.items():
        if module in sys.modules:
            try:
                return f"{package} {version(package)}"
            except PackageNotFoundError:
                return package
    return None
