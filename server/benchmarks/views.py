"""Views of benchmarks with the number of their submissions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from finishline.api.benchmarks import BenchmarkView, PhasesView, RunsView
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.board_versions import board_versions, cached_for_board
from server.base.models import Submission
from server.base.visibility import ranks


@dataclass(frozen=True)
class Counts:
    """Number of submissions of one benchmark by kind and evidence, and of contradicted claims.

    `best_claims` has the fastest claim of each division that may count and was not contradicted,
    `slowest_published` the longest published time of each. `published` has the number of
    submissions published elsewhere by kind and division.
    """

    train: int = 0
    inference: int = 0
    claimed: int = 0
    measured: int = 0
    contradicted: int = 0
    best_claims: Mapping[str, float] = field(default_factory=dict)
    slowest_published: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[tuple[str, str], int] = field(default_factory=dict)


NO_SUBMISSIONS = Counts()


def count_submissions(session: Session, benchmark_ids: Iterable[str]) -> dict[str, Counts]:
    """Count submissions of some benchmarks, without withdrawn ones; those with none are left out.

    Cached for each version of a board: counting a million takes its time. The session must only
    read.
    """
    versions = board_versions(session)
    return {
        benchmark_id: cached_for_board(
            session,
            benchmark_id,
            "counts",
            partial(_count, session, benchmark_id),
            version=versions[benchmark_id],
        )
        for benchmark_id in benchmark_ids
        if benchmark_id in versions
    }


def _count(session: Session, benchmark_id: str) -> Counts:
    by = (Submission.kind, Submission.evidence, Submission.check_word, Submission.division)
    seconds_if_eligible = case((Submission.eligible.is_(True), Submission.tta_seconds))
    fastest, longest = func.min(seconds_if_eligible), func.max(seconds_if_eligible)
    of_it = (Submission.benchmark_id == benchmark_id, ranks())
    rows = session.execute(
        select(*by, func.count(), fastest, longest).where(*of_it).group_by(*by)
    ).all()
    count: Counter[str] = Counter()
    best: dict[str, float] = {}
    slowest_published: dict[str, float] = {}
    published: Counter[tuple[str, str]] = Counter()
    for kind, evidence, check, division, number, seconds, most in rows:
        told = "contradicted" if check == "contradicted" else evidence
        count.update({kind: number, told: number})
        if evidence == "published":
            published[kind, division] += number
        if told == "claimed" and seconds is not None:
            best[division] = min(seconds, best.get(division, seconds))
        elif told == "published" and most is not None:
            slowest_published[division] = max(most, slowest_published.get(division, most))
    names = ("train", "inference", "claimed", "measured", "contradicted")
    return Counts(
        **{name: count[name] for name in names},
        best_claims=best,
        slowest_published=slowest_published,
        published=published,
    )


def benchmark_view(
    benchmark: Benchmark, counts: Counts = NO_SUBMISSIONS, *, phases: PhasesView | None = None
) -> BenchmarkView:
    """View of a benchmark with the number of its submissions."""
    return BenchmarkView.of(
        benchmark,
        id=benchmark.benchmark_id,
        clock=benchmark.clock.name,
        runs=RunsView.of(benchmark.runs, started=benchmark.runs.wanted),
        replayable=benchmark.replay is not None,
        convergence_unit="samples" if benchmark.convergence_unit == "samples_count" else "epochs",
        submissions=counts.train + counts.inference,
        inference_submissions=counts.inference,
        phases=phases,
    )
