"""Estimate the runs and seconds of a verification from earlier ones of its kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.aggregate import mean
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.control_points import is_calibrated
from finishline.rules.verification.job import Request
from finishline.rules.verification.purposes import PURPOSES
from server.base.models import Submission, Verification
from server.base.standing import names_where, run_limit_seconds

Basis = Literal["replays of the submission", "replays of the benchmark", "run limit"]
LATEST = 20


@dataclass(frozen=True)
class Expected:
    """Runs of a replay, the seconds all of them take on one worker, its accelerators."""

    runs: float
    seconds: float
    accelerators: int
    basis: Basis


@dataclass(frozen=True)
class Past:
    """Seconds per run in earlier replays, and the accelerators of their workers."""

    run_seconds: float
    accelerators: int


def expected_runs(benchmark: Benchmark, claim: Claim) -> float:
    """The mean number of runs that is drawn; 0 for a benchmark without a replay."""
    if benchmark.replay is None:
        return 0.0
    middle = (benchmark.replay.min_runs + benchmark.replay.max_runs) / 2
    return middle if is_calibrated(benchmark, claim) else 2 * middle


class Estimator:
    """Estimates verifications of a kind; reads the past of each benchmark once.

    `wishes` are those of the request that change the number of runs.
    """

    def __init__(
        self, session: Session, kind: str = "replay", wishes: Mapping[str, int] | None = None
    ) -> None:
        self._session = session
        self._kind = kind
        self._wishes = wishes or {}
        self._by_benchmark: dict[str, Past | None] = {}

    def estimate(self, submission: Submission, benchmark: Benchmark, claim: Claim) -> Expected:
        """By replays of the submission, else of its benchmark, else by the limit of a run."""
        sample = Request(benchmark, bytes(32), claims=[claim], wishes=self._wishes)
        trainings = PURPOSES[self._kind].plan(sample)
        runs = float(len(trainings))
        if PURPOSES[self._kind].is_replay:
            runs = expected_runs(benchmark, claim)
        own = self._past(Verification.submission_id == submission.id)
        if own is not None:
            return _expected(runs, own, "replays of the submission")
        others = self._past_of_benchmark(submission.benchmark_id)
        if others is not None:
            return _expected(runs, others, "replays of the benchmark")
        limit = run_limit_seconds(benchmark, trainings)
        accelerators = int(submission.system.get("accelerator_count") or 0)
        return _expected(runs, Past(limit, accelerators), "run limit")

    def _past_of_benchmark(self, benchmark_id: str) -> Past | None:
        if benchmark_id not in self._by_benchmark:
            self._by_benchmark[benchmark_id] = self._past(Submission.benchmark_id == benchmark_id)
        return self._by_benchmark[benchmark_id]

    def _alike(self) -> tuple[str, ...]:
        """Purposes whose runs take as long: a package trains alike for each of its own."""
        if PURPOSES[self._kind].in_box:
            return names_where(lambda purpose: purpose.in_box)
        return (self._kind,)

    def _past(self, which: Any) -> Past | None:
        reports = self._session.scalars(
            select(Verification.report)
            .join(Submission, Submission.id == Verification.submission_id)
            .where(which, Verification.kind.in_(self._alike()), Verification.state == "done")
            .order_by(Verification.created_at.desc())
            .limit(LATEST)
        )
        found = [report for report in reports if report is not None]
        seconds = [sum(run["ledger"].values()) for report in found for run in report["runs"]]
        if not seconds:
            return None
        return Past(mean(seconds), int(found[0]["system"]["accelerator_count"]))


def _expected(runs: float, past: Past, basis: Basis) -> Expected:
    return Expected(runs, runs * past.run_seconds, past.accelerators, basis)
