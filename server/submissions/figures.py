"""Figures of a submission, stored and derived, and the differences between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.submission import ScoredSubmission
from server.base.models import RunRow, Submission
from server.submissions.rows import FIGURE_COLUMNS, result_figures, run_figures

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
