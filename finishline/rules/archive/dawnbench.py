"""The record of a DAWNBench entry: every figure it was published with, from its own files."""

from pathlib import PurePosixPath
from typing import Any

from finishline.rules.archive.definitions import Definitions
from finishline.rules.archive.files import Archive
from finishline.rules.archive.problems import Problems
from finishline.rules.archive.submissions import EntryFiles
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import DawnbenchEntry, read_curve, read_entry
from finishline.rules.run import Run
from finishline.rules.scoring.inference import IN_PERCENT, score_inference
from finishline.rules.scoring.scoring import score
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.submissions.claim_checks import check_published_run

MAX_CURVE_BYTES = 16 * 1024 * 1024


def score_entry(entry: EntryFiles, archive: Archive, definitions: Definitions) -> dict[str, Any]:
    """Score one entry into a record; `problems` lists its faults."""
    problems = Problems()
    kind = entry.kind or ("train" if entry.tsv else "inference")
    task = entry.task or _task(entry, archive, kind)
    benchmark = definitions.of_task(task) if task else None
    record: dict[str, Any] = dict.fromkeys(KEYS)
    record |= {"path": entry.path, "benchmark": task, "kind": kind, "reached": False}
    if benchmark is None:
        problems.add(
            "unknown_benchmark",
            "neither the path nor a column names a DAWNBench task",
            file=entry.path,
            expected="CIFAR10, ImageNet or SQuAD, then train or inference",
        )
    else:
        record["metric"] = benchmark.target.metric
        record["definition"] = {"id": benchmark.benchmark_id, "sha256": benchmark.sha256}
        said = _read_entry(entry, archive, kind, benchmark, problems)
        if kind == "train":
            run = _read_curve(entry, archive, benchmark, problems)
            record |= _training_figures(run, said, benchmark, problems)
        else:
            record |= _inference_figures(said, benchmark)
        if said is not None:
            record |= {"author": said.author, "model": said.model, "hardware": said.hardware,
                       "framework": said.framework, "timestamp": said.timestamp}  # fmt: skip
            record["flags"] = list(said.flags)
        _add_odd(record, said, benchmark, problems)
    record["eligible"] = bool(record["reached"]) and not problems.has_error
    record["problems"] = [dict(vars(problem)) for problem in problems]
    return record


KEYS = (
    "path", "benchmark", "kind", "reached", "tta_seconds", "tta_epoch", "tta_display", "cost_usd",
    "latency_ms", "cost_usd_per_10000", "metric", "best_metric", "eligible", "problems",
    "tta_metric", "tta_row", "evaluations", "cost_usd_per_hour", "author", "model", "hardware",
    "framework", "timestamp", "flags", "definition",
)  # fmt: skip


def _task(entry: EntryFiles, archive: Archive, kind: str) -> str | None:
    """The task of an entry outside TASK/KIND, by the metric its files name."""
    file = entry.tsv if kind == "train" else entry.json
    if file is None:
        return None
    try:
        content = archive.small(file, limit=MAX_CURVE_BYTES)
    except LogFormatError:
        return None
    metrics = {b"f1Score": "SQuAD", b"top5Accuracy": "ImageNet", b"top1Accuracy": "CIFAR10"}
    head = content[:4096] if kind == "train" else content
    return next((task for metric, task in metrics.items() if metric in head), None)


def _read_entry(
    entry: EntryFiles, archive: Archive, kind: str, benchmark: Benchmark, problems: Problems
) -> DawnbenchEntry | None:
    if entry.json is None:
        problems.add(
            "missing_json",
            f"no {PurePosixPath(entry.path).stem}.json beside it",
            file=entry.path,
            expected="a JSON of the same name",
        )
        return None
    try:
        content = archive.small(entry.json)
    except LogFormatError as error:
        problems.report(error)
        return None
    return read_entry(
        content,
        name=entry.json.path,
        kind="train" if kind == "train" else "inference",
        metric=benchmark.target.metric if kind == "inference" else None,
        report=problems.report,
    )


def _read_curve(
    entry: EntryFiles, archive: Archive, benchmark: Benchmark, problems: Problems
) -> Run | None:
    if entry.tsv is None:
        problems.add(
            "missing_tsv",
            f"no {PurePosixPath(entry.path).stem}.tsv beside it",
            file=entry.path,
            expected="a TSV of the same name",
        )
        return None
    try:
        content = archive.small(entry.tsv, limit=MAX_CURVE_BYTES)
    except LogFormatError as error:
        problems.report(error)
        return None
    target = benchmark.target
    return read_curve(
        content,
        name=entry.tsv.path,
        metric=target.metric,
        unit=target.unit,
        report=problems.report,
    )


def _training_figures(
    run: Run | None, said: DawnbenchEntry | None, benchmark: Benchmark, problems: Problems
) -> dict[str, Any]:
    """The figures of a run by the rules of any other result."""
    if run is None:
        return {}
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
    return {
        "evaluations": len(run.evaluations),
        "best_metric": result.best_quality,
        "cost_usd_per_hour": price,
        "reached": at is not None,
        "tta_seconds": result.tta_seconds,
        "tta_epoch": result.epochs_to_target,
        "tta_display": result.tta_display,
        "tta_metric": at and at.quality,
        "tta_row": at.line - 1 if at is not None and at.line else None,
        "cost_usd": result.cost_usd,
    }


def _inference_figures(said: DawnbenchEntry | None, benchmark: Benchmark) -> dict[str, Any]:
    if said is None:
        return {}
    result = score_inference(said, benchmark)
    return {
        "reached": result.reached,
        "best_metric": result.quality,
        "latency_ms": result.latency_ms,
        "cost_usd_per_10000": result.cost_usd_per_10000,
    }


def _add_odd(
    record: dict[str, Any], said: DawnbenchEntry | None, benchmark: Benchmark, problems: Problems
) -> None:
    """Note oddities of an entry that are no errors."""
    best = record["best_metric"]
    if best is not None and not record["reached"]:
        problems.add(
            "below_threshold",
            f"did not reach the target: best {benchmark.target.metric} {best:.12g}",
            file=record["path"],
            field=benchmark.target.metric,
            expected=f"{benchmark.target.value:g} or better, to be ranked",
            severity="warning",
        )
    if said is not None and IN_PERCENT in said.flags:
        problems.add(
            IN_PERCENT,
            "the F1 score is given in percent",
            file=record["path"],
            field="f1Score",
            expected="a fraction",
            severity="warning",
        )
