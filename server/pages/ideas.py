"""The ideas of a board: its packages as a tree of who is based on whom, with the seconds gained."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from finishline.api.boards import BoardQuery
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.pairs import PairedGap
from finishline.rules.trainings.lineage import Gain, Line, gain_of_pairs, gain_of_runs, lines_of
from finishline.rules.verification.ablation import factor_effects
from finishline.rules.verification.duel import judge_duel, pair_runs
from finishline.rules.verification.messages import PACKAGE_PREFIX
from finishline.rules.verification.purposes import ABLATION, DUEL
from server.base.models import Pool, PoolRun, Submission, TrainingPackage, Verification
from server.base.services import ServicesDep
from server.base.standing import report_of
from server.benchmarks.queries import definition, find_benchmark
from server.boards.service import list_records
from server.pages.board_context import board_context
from server.verifications.jobs import trainings_of
from web.ideas import idea_lines
from web.render import render

router = APIRouter(include_in_schema=False)
Context = dict[str, Any]
Times = Mapping[str, Sequence[float | None]]
MOST_PACKAGES = 500


@router.get("/benchmarks/{benchmark_id}/ideas", response_class=HTMLResponse)
def ideas_page(benchmark_id: str, services: ServicesDep) -> str:
    """Published packages of a benchmark as a tree, by hardware class."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        context = board_context(session, benchmark, BoardQuery(limit=1))
        classes = [
            {"name": name, "lines": idea_lines(found)}
            for name, found in _trees(session, benchmark).items()
        ]
    return render("ideas.html", **context, classes=classes, most=MOST_PACKAGES)


def _trees(session: Session, benchmark: Benchmark) -> dict[str, list[list[Context]]]:
    """The lines of each hardware class; times are compared within one alone."""
    packages: defaultdict[str, dict[str, Context]] = defaultdict(dict)
    for found in _packages(session, benchmark):
        packages[found["hardware_class"]][found["sha256"]] = found
    nodes = [node for each in packages.values() for node in each.values()]
    times = _run_times(session, [node["pool_id"] for node in nodes if node["seconds"]])
    families = [
        (node, each[node["parent"]])
        for each in packages.values()
        for node in each.values()
        if node["parent"] in each
    ]
    gaps = _pairs(session, {c["submission_id"]: p["submission_id"] for c, p in families})
    for child, parent in families:
        child["gain"] = _gain(child, parent, times, gaps)
    return {
        name: [_nested(line, each) for line in lines_of({k: v["parent"] for k, v in each.items()})]
        for name, each in packages.items()
    }


def _nested(line: Line[str], packages: Mapping[str, Context]) -> list[Context]:
    return [
        packages[name]
        | {"branches": [_nested(each, packages) for each in line.branches.get(name, [])]}
        for name in line.names
    ]


def _packages(session: Session, benchmark: Benchmark) -> Iterable[Context]:
    """Published packages with their measured times, oldest first; the latest of very many."""
    statement = (
        select(Submission, TrainingPackage, Pool)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .outerjoin(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == benchmark.benchmark_id,
            Submission.withdrawn_at.is_(None),
            TrainingPackage.published_at.is_not(None),
        )
        .order_by(Submission.submitted_at.desc(), Submission.id.desc())
        .limit(MOST_PACKAGES)
    )
    records = {
        record.submission_id: record.date
        for division in list_records(session, benchmark).divisions
        for record in division.records
        if record.evidence == "measured"
    }
    for submission, package, pool in reversed(session.execute(statement).unique().all()):
        measured = submission.evidence == "measured" and pool is not None
        based_on = package.manifest["based_on"]
        yield {
            "submission_id": submission.id,
            "hardware_class": package.hardware_class,
            "sha256": package.package_sha256,
            "parent": None if based_on is None else based_on.removeprefix(PACKAGE_PREFIX),
            "title": package.manifest["title"],
            "factors": package.manifest["factors"] or {},
            "submitter": submission.submitter,
            "pool_id": submission.pool_id,
            "seconds": pool.measured_seconds if measured else None,
            "low": pool.low_seconds if measured else None,
            "high": pool.high_seconds if measured else None,
            "runs": pool.runs if measured else 0,
            "record": records.get(submission.id),
            "gain": None,
        }


def _run_times(session: Session, pools: Iterable[str]) -> Times:
    found: defaultdict[str, list[float | None]] = defaultdict(list)
    counted = select(PoolRun.pool_id, PoolRun.seconds).where(
        PoolRun.pool_id.in_(pools), PoolRun.counted.is_(True)
    )
    for pool_id, seconds in session.execute(counted):
        found[pool_id].append(seconds)
    return found


def _pairs(session: Session, parents: Mapping[str, str]) -> dict[str, PairedGap]:
    """Time of the parent over that of its child in pairs, by the child's submission.

    `parents` has the parent's submission of each. Of its duels with the parent, and of its runs
    with and without its one factor, those with most pairs; none where a run missed the target.
    """
    statement = (
        select(Verification)
        .where(
            Verification.submission_id.in_(parents),
            Verification.kind.in_((ABLATION.name, DUEL.name)),
            Verification.state == "done",
            Verification.outcome != "inconclusive",
        )
        .order_by(Verification.created_at)
        .options(undefer(Verification.report))
    )
    found: dict[str, PairedGap] = {}
    for each in session.scalars(statement).unique():
        child = str(each.submission_id)
        gap = _gap(session, each, parents[child])
        if gap is not None and (child not in found or gap.pairs >= found[child].pairs):
            found[child] = gap
    return found


def _gap(session: Session, verification: Verification, parent: str) -> PairedGap | None:
    report = report_of(verification)
    if report is None:
        return None
    benchmark = definition(session, verification.benchmark_sha256)
    if verification.kind == DUEL.name:
        duel = judge_duel(pair_runs(benchmark, report))
        if duel.time is None or verification.against_id != parent:
            return None
        return duel.time.turned() if duel.time.pairs == len(duel.pairs) else None
    effects = factor_effects(benchmark, trainings_of(verification), report)
    # Without the one factor of a package it is its parent; of several, none alone is.
    if len(effects) != 1 or effects[0].time is None:
        return None
    return effects[0].time if effects[0].time.pairs == effects[0].started else None


def _gain(
    node: Context, parent: Context, times: Times, gaps: Mapping[str, PairedGap]
) -> Context | None:
    """Seconds gained on a parent of the same class, in pairs if there are any."""
    if node["seconds"] is None or parent["seconds"] is None:
        return None
    gap = gaps.get(node["submission_id"])
    found: Gain | None
    if gap is not None:
        found = gain_of_pairs(parent["seconds"], gap)
    else:
        own, other = times.get(node["pool_id"], ()), times.get(parent["pool_id"], ())
        found = gain_of_runs(parent["seconds"], own, other)
    if found is None:
        return None
    return asdict(found) | {"runs": (node["runs"], parent["runs"])}
