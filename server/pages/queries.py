"""What the pages show: the views of the API, as the plain tables that templates take."""

from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark, RunsRule
from rules.replay_plan import band_for
from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions, definition
from server.benchmarks.schemas import benchmark_view
from server.dependencies import Parts
from server.leaderboard.queries import read_board
from server.leaderboard.schemas import BoardQuery
from server.submissions.queries import (
    benchmark_versions,
    find_submission,
    runs_with_curves,
)
from server.submissions.schemas import curve_view, submission_view
from server.verifications.queries import claim_of, find_verification, view

Context = dict[str, Any]


def board_context(session: Session, benchmark: Benchmark, query: BoardQuery) -> Context:
    """A benchmark, the part of its board that is asked for, and how it is scored."""
    counts = count_submissions(session).get(benchmark.benchmark_id, NO_SUBMISSIONS)
    shown = benchmark_view(benchmark, counts)
    board = read_board(session, benchmark, query)
    return {
        "benchmark": shown.model_dump(mode="json"),
        "board": board.model_dump(mode="json"),
        "filters": query.model_dump(mode="json", exclude_defaults=True),
        "explanation": EXPLAIN[query.kind](benchmark),
    }


def submission_context(session: Session, parts: Parts, submission_id: str) -> Context:
    """A submission, the benchmark it was scored under, and the reference band of its settings."""
    submission = find_submission(session, submission_id)
    versions = benchmark_versions(session, {submission.benchmark_sha256})
    benchmark = definition(session, submission.benchmark_sha256)
    shown = submission_view(submission, benchmark_version=versions[submission.benchmark_sha256])
    # An inference has no runs that a band could be drawn for.
    runs = len(submission.runs)
    points = band_for(benchmark, claim_of(submission), runs=runs) if runs else []
    return {
        "submission": shown.model_dump(mode="json"),
        "benchmark": benchmark_view(benchmark).model_dump(mode="json"),
        "control_points": [asdict(point) for point in points],
    }


def submission_with_curves(session: Session, submission_id: str) -> list[Context]:
    """The runs of a submission with every evaluation."""
    return [
        {
            "index": run.index,
            "file": run.file,
            "curve": curve_view(run).model_dump(mode="json")["evaluations"],
        }
        for run in runs_with_curves(session, submission_id)
    ]


def verification_context(session: Session, parts: Parts, verification_id: str) -> Context:
    """A verification with the submission it checks and that of a duel's holder, or None."""
    verification = find_verification(session, verification_id)
    shown = view(session, verification, alive_seconds=parts.settings.worker_alive_seconds)
    submission, against = (
        submission_context(session, parts, submission_id)["submission"] if submission_id else None
        for submission_id in (verification.submission_id, verification.against_id)
    )
    return {
        "verification": shown.model_dump(mode="json"),
        "submission": submission,
        "against": against,
    }


def explain_scoring(benchmark: Benchmark) -> str:
    """How runs become a result here, in sentences."""
    runs = benchmark.runs
    goals = [
        f"{goal.metric} is {'at least' if goal.direction == 'higher' else 'at most'} "
        f"{goal.value:g} {goal.unit}"
        for goal in (benchmark.target, *benchmark.target.also)
    ]
    lines = [
        f"The time to accuracy of a run counts on the {benchmark.clock.name} clock until "
        f"{' and '.join(goals)}."
    ]
    if runs.dropped:
        ends = "the fastest and the slowest" if runs.dropped == 1 else f"{runs.dropped} at each end"
        lines.append(
            f"A submission has at least {runs.wanted} runs, each with a seed of its own; "
            f"{_first_that_count(runs)}{ends} are dropped and the rest are averaged. "
            f"A run that does not reach the target {_of_a_failed_run(runs)}."
        )
    if benchmark.replay is not None:
        lines.append(
            f"A verification trains the reference again {benchmark.replay.min_runs} to "
            f"{benchmark.replay.max_runs} times with seeds the server draws and seals first. "
            "It holds every evaluation against the band of calibrated runs and the claimed epochs "
            f"against both; all tests together reject an honest claim at most "
            f"{benchmark.replay.alpha:.0%} of the time."
        )
    return "\n\n".join(lines)


def _first_that_count(runs: RunsRule) -> str:
    if runs.started is None:
        return ""
    return f"the first {runs.count} that reach the target count; of them "


def _of_a_failed_run(runs: RunsRule) -> str:
    return "counts as slowest" if runs.started is None else "is left out"


def explain_inference(benchmark: Benchmark) -> str:
    """What an inference entry is ranked by, in sentences."""
    target = benchmark.target
    sign = "at least" if target.direction == "higher" else "at most"
    return "\n\n".join(
        [
            "Latency is the time a trained model takes for one item at batch size 1; cost is the "
            "price of 10,000 items. An entry is ranked if its model has "
            f"{target.metric} of {sign} {target.value:g} {target.unit}.",
            "All three are as the submitter states them: an inference entry has no log that they "
            "could be derived from. A verification trains the reference to the target and times "
            "its model one item at a time; that latency stands beside the stated one.",
        ]
    )


EXPLAIN = {"train": explain_scoring, "inference": explain_inference}
