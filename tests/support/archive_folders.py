"""Small archives of published results, in memory and on disk: DAWNBench entries, MLPerf sets."""

import json
from functools import cache

from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.score import Reader, find_scorable, score_submission
from finishline.rules.benchmarks.benchmark import load_benchmarks
from finishline.rules.submissions.descriptions import REQUIRED_FIELDS
from tests.support.submission_folder import BENCHMARKS

START, MINUTE = 1_700_000_000_000, 60_000
ENTRY = {"version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
         "model": "M", "hardware": "H", "timestamp": "2018-04-20"}  # fmt: skip
CURVE = "epoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n"


@cache
def definitions():
    return shipped_definitions() | load_benchmarks(BENCHMARKS)


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


def score_tree(files, *, root=("/", "tree")):
    archive = archive_of(files, root=root)
    one_file = len(files) == 1 and "/" not in next(iter(files))
    found = find_scorable(archive, asked_for_file=one_file)
    reader = Reader(found, definitions())
    return [score_submission(each, reader) for each in found.submissions]


def make_line(key, time_ms, value=None, **metadata):
    kinds = {"run_start": "INTERVAL_START", "run_stop": "INTERVAL_END"}
    line = {"namespace": "", "time_ms": time_ms, "event_type": kinds.get(key, "POINT_IN_TIME"),
            "key": key, "value": value, "metadata": metadata}  # fmt: skip
    return f":::MLLOG {json.dumps(line)}\n"


def make_log(
    minutes=10.0,
    *,
    seed=1,
    organisation="ACME",
    status="success",
    batch_size=256,
    division="closed",
    benchmark="retinanet",
    quality=0.35,
    epochs=4,
):
    """A retinanet log: so many minutes from start to stop, 0.35 mAP at epoch 4."""
    stop = START + int(minutes * MINUTE)
    outcome = {} if status is None else {"status": status}
    return (
        make_line("submission_benchmark", START, benchmark)
        + make_line("submission_division", START, division)
        + make_line("submission_org", START, organisation)
        + make_line("submission_platform", START, "big")
        + make_line("seed", START, seed)
        + make_line("global_batch_size", START, batch_size)
        + make_line("run_start", START)
        + make_line("tracked_stats", START + 1, {"throughput": 1.5}, step=1)
        + make_line("eval_accuracy", START + 1000, 0.1, epoch_num=1)
        + make_line("eval_accuracy", stop, quality, epoch_num=epochs)
        + make_line("run_stop", stop, **outcome)
    )


def make_package(logs=None, **system):
    """The files of one retinanet set: five runs of 10 to 14 minutes, unless told otherwise."""
    logs = logs or [make_log(10.0 + i, seed=i) for i in range(5)]
    filled = {"submitter": "ACME", "division": "closed", "system_name": "big",
              "status": "Available cloud", "number_of_nodes": 1, "framework": "F"}  # fmt: skip
    description = dict.fromkeys(REQUIRED_FIELDS, "") | filled | system
    runs = {f"ACME/results/big/retinanet/result_{i}.txt": log for i, log in enumerate(logs)}
    return {**runs, "ACME/systems/big.json": json.dumps(description)}


def write_package(folder, organisation="ACME", *, system=None):
    results = folder / organisation / "results" / "big" / "retinanet"
    results.mkdir(parents=True)
    for number in range(5):
        log = make_log(10 + number, seed=number, organisation=organisation)
        (results / f"result_{number}.txt").write_text(log)
    systems = folder / organisation / "systems"
    systems.mkdir()
    (systems / "big.json").write_text(json.dumps({"division": "closed"} | (system or {})))
    return folder


def write_entries(folder):
    train = folder / "CIFAR10" / "train"
    train.mkdir(parents=True)
    for name in ("good", "half"):
        (train / f"{name}.json").write_text(json.dumps(ENTRY, indent=3))
    (train / "good.tsv").write_text(CURVE)
    return folder
