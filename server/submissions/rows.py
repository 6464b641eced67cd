"""Rows of a submission: the figures of a result and of its runs, as their columns have them."""

import re
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.archive.files import Source, known_sources
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.run import Run, curve_row
from finishline.rules.scoring.latency import IN_PERCENT, InferenceResult
from finishline.rules.scoring.scoring import Result, RunScore
from finishline.rules.submissions.claim import System
from finishline.rules.submissions.submission import ScoredSubmission
from server.base.artifacts import Staged
from server.base.models import PublishedResult, RunRow, Submission

Row = dict[str, Any]
# A training has the first two figures, an inference the others.
FIGURE_COLUMNS = ("tta_seconds", "cost_usd", "latency_ms", "cost_usd_per_10000")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """Generate a short random id for a URL: 60 bits, 12 letters and digits."""
    return "".join(_ALPHABET[byte % 32] for byte in secrets.token_bytes(12))


def system_of_worker(hardware_class: str, system: Mapping[str, Any]) -> System:
    """The system of a training by a worker: its class by name, and its machine."""
    names = ("processor", "processor_count", "memory_gib", "accelerator", "accelerator_count")
    own = {name: system[name] for name in names}
    return System(name=hardware_class, hardware_class=hardware_class, **own)


def result_figures(result: Result | InferenceResult) -> Row:
    """Figures of a result, by column."""
    figures = {name: getattr(result, name, None) for name in FIGURE_COLUMNS}
    return figures | {"eligible": result.eligible, "result": stored_result(result)}


def run_rows(scored: ScoredSubmission, logs: Mapping[str, Staged]) -> list[RunRow]:
    """The runs of a submission, in their order."""
    return [
        RunRow(
            index=index,
            file=run.name,
            log_sha256=logs[run.name].sha256,
            log_bytes=logs[run.name].size_bytes,
            **run_figures(run, score),
        )
        for index, (run, score) in enumerate(scored.scored_runs)
    ]


def run_figures(run: Run, score: RunScore) -> Row:
    """Figures derived from a run's log, by column."""
    return {
        "seed": run.seed,
        "reached": score.reached,
        "tta_seconds": score.tta_seconds,
        "epochs_to_target": score.epochs_to_target,
        "best_quality": score.best_quality,
        "batch_size": run.batch_size,
        "convergence": score.convergence,
        "ledger": table_of(run.ledger) if run.ledger is not None else None,
        "settings": dict(run.hyperparameters),
        "curve": [curve_row(evaluation) for evaluation in run.evaluations],
    }


def no_result(benchmark: Benchmark) -> Result:
    """The result of a submission that claims no runs."""
    absent = dict.fromkeys(
        (
            *("tta_seconds", "tta_display", "tta_low_seconds", "tta_high_seconds", "cv_percent"),
            *("epochs_to_target", "cost_usd", "best_quality", "evaluation_interval_seconds"),
        )
    )
    return Result(
        benchmark_sha256=benchmark.sha256,
        clock=benchmark.clock.name,
        runs=(),
        started=0,
        reached=0,
        violations=(),
        **absent,  # type: ignore[arg-type]  # each may be None
    )


def stored_result(result: Result | InferenceResult) -> dict[str, Any]:
    """Stored JSON of a result of the rules, without the parts that have a table of their own."""
    table = table_of(result, without=("runs", "benchmark_sha256"))
    if isinstance(result, InferenceResult):
        table["given_in_percent"] = IN_PERCENT in result.flags
    return table


def table_of(record: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Convert a record of the rules, and those in it, to tables.

    Like `asdict`, which also copies their values: that takes longer than all the rest, and nobody
    changes them.
    """
    names = record.__dataclass_fields__
    return {name: _value_of(getattr(record, name)) for name in names if name not in without}


def _value_of(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return table_of(value)
    return tuple(map(_value_of, value)) if isinstance(value, tuple) else value


def source_row(benchmark_id: str, commit: str | None) -> Row | None:
    """Known archive of a result, in the stored form. None without one."""
    source = find_source(benchmark_id, commit)
    return None if source is None else {"name": source.name, "url": source.url, "commit": commit}


def find_source(benchmark_id: str, commit: str | None) -> Source | None:
    """The known archive that has a commit and results of a benchmark. None where there is none."""
    fitting = (each for each in known_sources() if re.fullmatch(each.benchmarks, benchmark_id))
    return next((source for source in fitting if commit in source.commits), None)


# Columns of a submission that its claim states as they are.
SAID = (
    "benchmark_id", "division", "model", "framework", "kind", "code_url", "notes", "precision",
)  # fmt: skip


def find_published(session: Session, new: Submission) -> str | None:
    """Id of the stored published result with these logs that says the same, as far as it says it.

    The command writes the claim of a set of an MLPerf round, and a later release writes more facts,
    so the same set comes under another key. An entry of DAWNBench is its own bytes: another key
    means another entry.
    """
    if new.published is None or new.dawnbench is not None or not new.runs:
        return None
    stored = session.execute(
        select(Submission.id, Submission.system)
        .join(PublishedResult, PublishedResult.submission_id == Submission.id)
        .where(
            Submission.withdrawn_at.is_(None),
            PublishedResult.organisation == new.published.organisation,
            PublishedResult.published_on == new.published.published_on,
            *(getattr(Submission, name) == getattr(new, name) for name in SAID),
        )
    )
    alike = [name for name, system in stored if _is_part(system, new.system)]
    logs = [(run.file, run.log_sha256) for run in new.runs]
    return next((name for name in alike if _logs_of(session, name) == logs), None)


def _is_part(stored: Row, said: Row) -> bool:
    return all(value in (None, said.get(name)) for name, value in stored.items())


def _logs_of(session: Session, submission_id: str) -> list[tuple[str, str]]:
    found = session.execute(
        select(RunRow.file, RunRow.log_sha256)
        .where(RunRow.submission_id == submission_id)
        .order_by(RunRow.index)
    )
    return [(file, sha256) for file, sha256 in found]
