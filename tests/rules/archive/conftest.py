"""Trees of files that lie in memory."""

import json

import pytest

from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.score import Reader, find_scorable, score_submission
from finishline.rules.submissions.descriptions import REQUIRED_FIELDS


def archive_of(files, *, root=("/", "tree")):
    contents = {
        (*root, *path.split("/")): content.encode() if isinstance(content, str) else content
        for path, content in files.items()
    }
    listed = [
        ArchiveFile("/".join(place[len(root) :]), place, len(content))
        for place, content in sorted(contents.items())
    ]

    def read(file, size):
        content = contents[file.place]
        return (content[i : i + size] for i in range(0, len(content), size))

    return Archive(listed, read)


@pytest.fixture(scope="session")
def benchmarks(shipped_benchmarks):
    return shipped_benchmarks


@pytest.fixture
def score_tree(benchmarks):
    """The records of the submissions in a tree of files, given by path."""

    def score(files, *, root=("/", "tree"), **options):
        archive = archive_of(files, root=root)
        one_file = len(files) == 1 and "/" not in next(iter(files))
        found = find_scorable(archive, asked_for_file=one_file)
        reader = Reader(found, benchmarks, **options)
        return [score_submission(each, reader) for each in found.submissions]

    return score


MINUTE = 60_000


def mllog(key, time_ms, value=None, **metadata):
    """One line in the spelling of MLPerf's own logger."""
    kinds = {"run_start": "INTERVAL_START", "run_stop": "INTERVAL_END"}
    line = {"namespace": "", "time_ms": time_ms, "event_type": kinds.get(key, "POINT_IN_TIME"),
            "key": key, "value": value, "metadata": metadata}  # fmt: skip
    return f":::MLLOG {json.dumps(line)}\n"


@pytest.fixture
def make_line():
    return mllog


@pytest.fixture
def make_log():
    """A retinanet log: so many minutes from start to stop, 0.35 mAP at epoch 4."""

    def build(
        minutes=10.0,
        *,
        seed=1,
        status="success",
        batch_size=256,
        division="closed",
        benchmark="retinanet",
        quality=0.35,
        epochs=4,
        extra="",
    ):
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
def make_package(make_log):
    """A package of one retinanet set: five runs of 10 to 14 minutes, unless told otherwise."""

    def build(logs=None, **system):
        logs = logs or [make_log(10.0 + i, seed=i) for i in range(5)]
        filled = {"submitter": "ACME", "division": "closed", "system_name": "big",
                  "status": "Available cloud", "number_of_nodes": 1, "framework": "F"}  # fmt: skip
        description = dict.fromkeys(REQUIRED_FIELDS, "") | filled | system
        runs = {f"ACME/results/big/retinanet/result_{i}.txt": log for i, log in enumerate(logs)}
        return {**runs, "ACME/systems/big.json": json.dumps(description)}

    return build
