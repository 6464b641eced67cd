"""Trees of files that lie in memory, and the published ones on disk."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from finishline.rules.archive.claims import find_identical
from finishline.rules.archive.dawnbench import score_entry
from finishline.rules.archive.definitions import Definitions, tell_rounds
from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.mlperf import Reader, score_log, score_set
from finishline.rules.archive.submissions import EntryFiles, ResultSet, find_submissions
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.descriptions import REQUIRED_FIELDS

Files = Mapping[str, bytes | str]
Record = dict[str, Any]


def archive_of(files: Files, *, root: tuple[str, ...] = ("/", "tree")) -> Archive:
    contents = {
        (*root, *path.split("/")): content.encode() if isinstance(content, str) else content
        for path, content in files.items()
    }
    listed = [
        ArchiveFile("/".join(place[len(root) :]), place, len(content))
        for place, content in sorted(contents.items())
    ]

    def read(file: ArchiveFile, size: int) -> Iterator[bytes]:
        content = contents[file.place]
        return (content[i : i + size] for i in range(0, len(content), size))

    return Archive(listed, read)


@pytest.fixture(scope="session")
def benchmarks(shipped_benchmarks: dict[str, Benchmark]) -> dict[str, Benchmark]:
    """Every definition that is shipped."""
    return shipped_benchmarks


@pytest.fixture
def score_tree(benchmarks: dict[str, Benchmark]) -> Callable[..., list[Record]]:
    """The records of the submissions in a tree of files, given by path."""

    def score(
        files: Files, *, root: tuple[str, ...] = ("/", "tree"), **options: Any
    ) -> list[Record]:
        archive = archive_of(files, root=root)
        one_file = len(files) == 1 and "/" not in next(iter(files))
        found = find_submissions(archive, asked_for_file=one_file)
        runs = [file for each in found if isinstance(each, ResultSet) for file in each.runs]
        definitions = Definitions(benchmarks)
        reader = Reader(
            archive,
            definitions,
            identical=find_identical(archive, runs),
            rounds=tell_rounds(found, definitions),
            **options,
        )
        return [
            score_entry(each, archive, reader.definitions)
            if isinstance(each, EntryFiles)
            else score_set(each, reader)
            if isinstance(each, ResultSet)
            else score_log(each, reader)
            for each in found
        ]

    return score


@pytest.fixture(scope="session")
def expected(archives: Path) -> Callable[[str], Any]:
    """An expected.json of the published archives, by its path."""
    return lambda path: json.loads((archives / path).read_text())


@pytest.fixture(scope="session")
def published(archives: Path) -> Callable[[str], dict[str, bytes]]:
    """The files below a folder of the published archives, by path."""

    def read(folder: str) -> dict[str, bytes]:
        root = archives / folder
        return {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    return read


MINUTE = 60_000


def mllog(key: str, time_ms: object, value: object = None, **metadata: object) -> str:
    """One line in the spelling of MLPerf's own logger."""
    kinds = {"run_start": "INTERVAL_START", "run_stop": "INTERVAL_END"}
    line = {"namespace": "", "time_ms": time_ms, "event_type": kinds.get(key, "POINT_IN_TIME"),
            "key": key, "value": value, "metadata": metadata}  # fmt: skip
    return f":::MLLOG {json.dumps(line)}\n"


@pytest.fixture
def make_line() -> Callable[..., str]:
    """One line of a log, by key, time, value and metadata."""
    return mllog


@pytest.fixture
def make_log() -> Callable[..., str]:
    """A retinanet log: so many minutes from start to stop, 0.35 mAP at epoch 4."""

    def build(
        minutes: float = 10.0,
        *,
        seed: int = 1,
        status: str | None = "success",
        batch_size: int = 256,
        division: str = "closed",
        benchmark: str = "retinanet",
        quality: float = 0.35,
        epochs: float = 4,
        extra: str = "",
    ) -> str:
        start = 1_700_000_000_000
        stop = start + int(minutes * MINUTE)
        outcome = {} if status is None else {"status": status}
        return (
            mllog("submission_benchmark", start, benchmark)
            + mllog("submission_division", start, division)
            + mllog("submission_org", start, "ACME")
            + mllog("submission_platform", start, "big")
            + mllog("seed", start, seed)
            + mllog("global_batch_size", start, batch_size)
            + mllog("run_start", start)
            + mllog("tracked_stats", start + 1, {"throughput": 1.5}, step=1)
            + mllog("eval_accuracy", start + 1000, 0.1, epoch_num=1)
            + mllog("eval_accuracy", stop, quality, epoch_num=epochs)
            + extra
            + mllog("run_stop", stop, **outcome)
        )

    return build


@pytest.fixture
def make_package(make_log: Callable[..., str]) -> Callable[..., dict[str, bytes | str]]:
    """A package of one retinanet set: five runs of 10 to 14 minutes, unless told otherwise."""

    def build(logs: list[str] | None = None, **system: object) -> dict[str, bytes | str]:
        logs = logs or [make_log(10.0 + i, seed=i) for i in range(5)]
        filled = {"submitter": "ACME", "division": "closed", "system_name": "big",
                  "status": "Available cloud", "number_of_nodes": 1, "framework": "F"}  # fmt: skip
        description = dict.fromkeys(REQUIRED_FIELDS, "") | filled | system
        runs = {f"ACME/results/big/retinanet/result_{i}.txt": log for i, log in enumerate(logs)}
        return {**runs, "ACME/systems/big.json": json.dumps(description)}

    return build
