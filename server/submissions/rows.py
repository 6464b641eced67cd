"""Rows of a submission: the values of its columns and of its runs, and which of them differ."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.archive.files import Source, known_sources
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.run import Run, curve_row
from finishline.rules.scoring.latency import IN_PERCENT, InferenceResult
from finishline.rules.scoring.scoring import Result, RunScore
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.submissions.submission import ScoredSubmission
from server.base.artifacts import Staged
from server.base.database import utc_now
from server.base.models import PublishedResult, RunRow, Submission
from server.base.standing import evidence_of
from server.people.dependencies import Caller
from server.submissions.upload import Upload

Row = dict[str, Any]
# A training has the first two figures, an inference the others.
FIGURE_COLUMNS = ("tta_seconds", "cost_usd", "latency_ms", "cost_usd_per_10000")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """Generate a short random id for a URL: 60 bits, 12 letters and digits."""
    return "".join(_ALPHABET[byte % 32] for byte in secrets.token_bytes(12))


def system_of_worker(hardware_class: str, system: Mapping[str, Any]) -> System:
    """The system of what a worker trains: its class by name, and its machine."""
    names = ("processor", "processor_count", "memory_gib", "accelerator", "accelerator_count")
    own = {name: system[name] for name in names}
    return System(name=hardware_class, hardware_class=hardware_class, **own)


def submission_row(
    caller: Caller,
    upload: Upload,
    claim: Claim,
    result: Result | InferenceResult,
    benchmark: Benchmark,
    *,
    key: str | None,
) -> Row:
    """Values of a submission's columns, except whether it is under embargo."""
    return dict(
        id=new_id(),
        user_id=caller.user_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        division=claim.division,
        model=claim.model,
        framework=claim.framework,
        system=table_of(claim.system),
        hyperparameters=dict(claim.hyperparameters),
        code_url=claim.code_url,
        notes=claim.notes,
        claim_sha256=upload.document.sha256,
        dawnbench=dict(claim.dawnbench) if claim.dawnbench is not None else None,
        status="claimed",
        kind=claim.kind,
        precision=claim.precision,
        trained_with=claim.trained_with,
        tuning=table_of(claim.tuning) if claim.tuning is not None else None,
        **result_figures(result),
        idempotency_key=key,
        request_sha256=upload.sha256,
        submitted_at=utc_now(),
        evidence=evidence_of(archive=upload.archive, measured=False),
        check_word=None if upload.archive else "none",
    )


def published_row(submission: Row, claim: Claim, commit: str | None) -> Row:
    """Values of a published result's further columns, which a claim does not have."""
    return {
        "organisation": claim.organisation,
        "published_on": claim.submitted_on,
        "source": source_row(submission["benchmark_id"], commit),
    }


# Columns in which a published result is what its claim says.
_SAID = (
    "benchmark_id", "division", "model", "framework", "kind", "code_url", "notes", "precision",
)  # fmt: skip


def find_published(session: Session, row: Row, runs: Sequence[Row], published: Row) -> str | None:
    """Id of the stored published result with these logs that says the same, as far as it says it.

    A release that knew fewer facts of a system imported it under another key.
    """
    stored = session.execute(
        select(Submission.id, Submission.system)
        .join(PublishedResult, PublishedResult.submission_id == Submission.id)
        .where(
            Submission.withdrawn_at.is_(None),
            PublishedResult.organisation == published["organisation"],
            PublishedResult.published_on == published["published_on"],
            *(getattr(Submission, name) == row[name] for name in _SAID),
        )
    )
    alike = [name for name, system in stored if _is_part(system, row["system"])]
    logs = [(run["file"], run["log_sha256"]) for run in runs]
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


def source_row(benchmark_id: str, commit: str | None) -> Row | None:
    """Known archive of a result, in the stored form; None without one."""
    source = find_source(benchmark_id, commit)
    return None if source is None else {"name": source.name, "url": source.url, "commit": commit}


def result_figures(result: Result | InferenceResult) -> Row:
    """Figures of a result, by column."""
    figures = dict.fromkeys(FIGURE_COLUMNS)
    if isinstance(result, InferenceResult):
        own = {
            "latency_ms": result.latency_ms,
            "cost_usd_per_10000": result.cost_usd_per_10000,
        }
    else:
        own = {"tta_seconds": result.tta_seconds, "cost_usd": result.cost_usd}
    return figures | own | {"eligible": result.eligible, "result": stored_result(result)}


def run_rows(scored: ScoredSubmission, logs: Mapping[str, Staged]) -> list[Row]:
    """Values of the columns of a submission's runs, in their order."""
    return [
        {
            "index": index,
            "file": run.name,
            "log_sha256": logs[run.name].sha256,
            "log_bytes": logs[run.name].size_bytes,
            **run_figures(run, score),
        }
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


# A list in a report is worth its length: curves and steps are long.
LONG_LIST = 4
RUN_COLUMNS = (
    "seed",
    "reached",
    "tta_seconds",
    "epochs_to_target",
    "best_quality",
    "batch_size",
    "convergence",
    "ledger",
    "settings",
    "curve",
)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A stored figure that differs from the derived one."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field} {self.before} -> {self.after}"


def stored_figures(submission: Submission, runs: Sequence[RunRow]) -> Figures:
    """Stored figures of a submission and its runs, by the names of the columns."""
    figures = {
        "benchmark_sha256": submission.benchmark_sha256,
        "eligible": submission.eligible,
        "submitted_on": submission.published_on,
        **{name: getattr(submission, name) for name in FIGURE_COLUMNS},
        "result": submission.result,
        "runs": [
            {name: getattr(run, name) for name in RUN_COLUMNS} | {"file": run.file} for run in runs
        ],
    }
    return _as_stored(figures)


def derived_figures(
    scored: ScoredSubmission, benchmark: Benchmark, *, is_published: bool
) -> Figures:
    """The same figures derived from the raw logs; also the day of a published result."""
    figures = {
        "benchmark_sha256": benchmark.sha256,
        **result_figures(scored.result),
        "submitted_on": scored.claim.submitted_on if is_published else None,
        "runs": [run_figures(run, score) | {"file": run.name} for run, score in scored.scored_runs],
    }
    return _as_stored(figures)


def _as_stored(figures: Figures) -> Figures:
    """Convert figures to the form of a database read: tuples become lists."""
    stored: Figures = orjson.loads(orjson.dumps(figures))
    return stored


def differences(before: Figures, after: Figures) -> list[Change]:
    """Every figure that differs, under names such as "tta_seconds" or "runs[0].seed"."""
    old, new = _flat(before), _flat(after)
    names = [*new, *(name for name in old if name not in new)]
    return [
        Change(name, _shown(old.get(name)), _shown(new.get(name)))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _flat(figures: Figures) -> Figures:
    flat = {name: value for name, value in figures.items() if name not in ("result", "runs")}
    flat |= {f"result.{name}": value for name, value in figures["result"].items()}
    for place, run in enumerate(figures["runs"]):
        flat |= {f"runs[{place}].{name}": value for name, value in run.items()}
    return flat


def _shown(value: Any) -> Any:
    if isinstance(value, list) and len(value) > LONG_LIST:
        return f"{len(value)} items"
    return value


def find_source(benchmark_id: str, commit: str | None) -> Source | None:
    """The known archive that has a commit and results of a benchmark; None where there is none."""
    fitting = (each for each in known_sources() if re.fullmatch(each.benchmarks, benchmark_id))
    return next((source for source in fitting if commit in source.commits), None)
