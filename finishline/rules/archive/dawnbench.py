"""Compute the record of a DAWNBench entry: every published figure, from its own files."""

from pathlib import PurePosixPath
from typing import Any, Literal

from finishline.rules.archive.definitions import Definitions
from finishline.rules.archive.files import MAX_SMALL_BYTES, Archive, Problems
from finishline.rules.archive.find import EntryFiles
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.logs.dawnbench import DawnbenchEntry, Kind, parse_curve, parse_entry
from finishline.rules.run import Run
from finishline.rules.scoring.latency import IN_PERCENT, score_inference
from finishline.rules.scoring.scoring import score
from finishline.rules.scoring.tta import first_evaluation_at_target, stopwatch
from finishline.rules.submissions.claim_checks import check_published_run

MAX_CURVE_BYTES = 16 * 1024 * 1024
KEYS = (
    "path", "benchmark", "kind", "reached", "tta_seconds", "tta_epoch", "tta_display", "cost_usd",
    "latency_ms", "cost_usd_per_10000", "metric", "best_metric", "eligible", "problems",
    "tta_metric", "tta_row", "evaluations", "cost_usd_per_hour", "author", "model", "hardware",
    "framework", "timestamp", "flags", "definition",
)  # fmt: skip
TASK_OF_METRIC = {b"f1Score": "SQuAD", b"top5Accuracy": "ImageNet", b"top1Accuracy": "CIFAR10"}


def score_entry(entry: EntryFiles, archive: Archive, definitions: Definitions) -> dict[str, Any]:
    """Score one entry into a record. `problems` lists its faults."""
    problems = Problems()
    kind = entry.kind or ("train" if entry.tsv else "inference")
    task = entry.task or _task(entry, archive, kind)
    benchmark = definitions.of_task(task) if task else None
    record: dict[str, Any] = dict.fromkeys(KEYS)
    record |= {"path": entry.path, "benchmark": task, "kind": kind, "reached": False}
    if benchmark is None:
        message = "neither the path nor a column names a DAWNBench task"
        expected = "CIFAR10, ImageNet or SQuAD, then train or inference"
        problems.add("unknown_benchmark", message, entry.path, expected=expected)
    else:
        record["metric"] = benchmark.target.metric
        record["definition"] = {"id": benchmark.benchmark_id, "sha256": benchmark.sha256}
        metric, unit = benchmark.target.metric, benchmark.target.unit
        said = run = None
        with problems.reported():
            if read := _read(entry, "json", archive, problems):
                of_kind: Kind = "train" if kind == "train" else "inference"
                stated = metric if kind == "inference" else None
                said = parse_entry(read[1], name=read[0], kind=of_kind, metric=stated)
        if kind == "train":
            with problems.reported():
                if read := _read(entry, "tsv", archive, problems):
                    run = parse_curve(read[1], name=read[0], metric=metric, unit=unit)
            if run is not None:
                record |= _training_figures(run, said, benchmark, problems)
        elif said is not None:
            inference = score_inference(said, benchmark)
            record |= {"reached": inference.reached, "best_metric": inference.quality,
                       "latency_ms": inference.latency_ms,
                       "cost_usd_per_10000": inference.cost_usd_per_10000}  # fmt: skip
        if said is not None:
            record |= {"author": said.author, "model": said.model, "hardware": said.hardware,
                       "framework": said.framework, "timestamp": said.timestamp}  # fmt: skip
            record["flags"] = list(said.flags)
            if IN_PERCENT in said.flags:
                message = "the F1 score is given in percent"
                problems.warn(IN_PERCENT, message, entry.path, "f1Score", "a fraction")
        best = record["best_metric"]
        if best is not None and not record["reached"]:
            message = f"did not reach the target: best {metric} {best:.12g}"
            expected = f"{benchmark.target.value:g} or better, to be ranked"
            problems.warn("below_threshold", message, entry.path, metric, expected)
    record["eligible"] = bool(record["reached"]) and not problems.has_error
    record["problems"] = problems.records
    return record


def _task(entry: EntryFiles, archive: Archive, kind: str) -> str | None:
    """Find the task of an entry outside TASK/KIND, by the metric in its files."""
    read = _read(entry, "tsv" if kind == "train" else "json", archive, Problems())
    head = b"" if read is None else read[1][: 4096 if kind == "train" else None]
    return next((task for metric, task in TASK_OF_METRIC.items() if metric in head), None)


def _read(
    entry: EntryFiles, suffix: Literal["json", "tsv"], archive: Archive, problems: Problems
) -> tuple[str, bytes] | None:
    file = entry.json if suffix == "json" else entry.tsv
    if file is None:
        message = f"no {PurePosixPath(entry.path).stem}.{suffix} beside it"
        expected = f"a {suffix.upper()} of the same name"
        problems.add(f"missing_{suffix}", message, entry.path, expected=expected)
        return None
    limit = MAX_SMALL_BYTES if suffix == "json" else MAX_CURVE_BYTES
    with problems.reported():
        return file.path, archive.small(file, limit=limit)
    return None


def _training_figures(
    run: Run, said: DawnbenchEntry | None, benchmark: Benchmark, problems: Problems
) -> dict[str, Any]:
    price = said.cost_usd_per_hour if said else None
    result = score(
        [run],
        benchmark,
        division="open",
        price_usd_per_hour=price,
        with_interval=False,
        archive=True,
    )
    for violation in (*result.violations, *check_published_run(run, benchmark)):
        problems.violate(violation, file=run.name)
    at = first_evaluation_at_target(run.evaluations, benchmark.target, benchmark.reach)
    seconds = result.tta_seconds
    return {
        "evaluations": len(run.evaluations),
        "best_metric": result.best_quality,
        "cost_usd_per_hour": price,
        "reached": at is not None,
        "tta_seconds": seconds,
        "tta_epoch": result.epochs_to_target,
        "tta_display": None if seconds is None else stopwatch(seconds),
        "tta_metric": at and at.quality,
        "tta_row": at.line - 1 if at is not None and at.line else None,
        "cost_usd": result.cost_usd,
    }
