"""Additions of an entry to its page: its measured runs, and its files."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import REFERENCE
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent
from finishline.rules.trainings.manifest import FILE
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayRun
from finishline.rules.verification.purposes import ABLATION, ENTRY
from server.base.models import Submission, TrainingPackage, Verification
from server.base.standing import report_of
from server.base.visibility import Viewer, sees_source
from server.benchmarks.definitions import definition
from server.boards.lineage import IdeaView, find_idea
from server.boards.rows import reported_runs
from server.pages.declared import Context, plain
from server.submissions.code import find_package, parent_of
from server.submissions.rows import package_view
from server.verifications.views import factor_views, view
from web.formats import time_format, visible

MOST_MEASUREMENTS = 4


def entry_context(session: Session, viewer: Viewer, submission: Submission) -> Context:
    """The code of a submission, with the files that a viewer may read, and its measurements."""
    benchmark = definition(session, submission.benchmark_sha256)
    package = find_package(session, submission.id)
    shows = sees_source(viewer, submission)
    measurements = [
        {"verification": plain(view(session, each)), "untimed": untimed_runs(each)}
        for each in measurements_of(session, submission.id, most=MOST_MEASUREMENTS)
        if each.state != "queued"
    ]
    return {
        "package": package_view(package, with_files=shows).model_dump(mode="json"),
        "source": [_file(name, text) for name, text in sorted(package.files.items())]
        if shows
        else [],
        "parent": _parent(session, viewer, package, find_idea(session, benchmark, submission)),
        "halves": has_halves(benchmark),
        "trainings": trainings_table(benchmark),
        "measurements": measurements,
        "ablation": _ablation(session, benchmark, submission.id),
        "runs_in_short": _in_short(measurements),
    }


def _parent(
    session: Session, viewer: Viewer, package: TrainingPackage, idea: IdeaView | None
) -> Context | None:
    """The parent's entry and title. None without one that a viewer may read."""
    parent = parent_of(session, viewer, package)
    if parent is None:
        return None
    return {
        "submission_id": parent.submission_id,
        "sha256": parent.package_sha256,
        "title": parent.manifest["title"],
        "gain": None if idea is None or idea.gain is None else idea.gain.model_dump(),
        "times": time_format([] if idea is None else [idea.seconds]),
    }


def trainings_table(benchmark: Benchmark) -> Context | None:
    """How a benchmark trains code submissions. None for one that trains none."""
    policy = benchmark.trainings
    if policy is None:
        return None
    return asdict(policy) | {"has_reference": f"{REFERENCE}{FILE}" in policy.files}


def has_halves(benchmark: Benchmark) -> bool:
    """Whether a benchmark's second half of the test items judges its entries."""
    policy = benchmark.trainings
    return policy is not None and policy.halves and benchmark.reach.is_at_quality


def _file(name: str, text: str) -> Context:
    shown = visible(text)
    lines = shown.removesuffix("\n").count("\n") + 1
    return {"name": name, "size_bytes": len(text.encode()), "text": shown, "lines": lines}


def _ablation(session: Session, benchmark: Benchmark, submission_id: str) -> Context | None:
    """The latest effects of a code submission's factors, with the id of their verification."""
    for each in measurements_of(session, submission_id, kind=ABLATION.name, most=MOST_MEASUREMENTS):
        effects = factor_views(each, benchmark, report_of(each))
        if effects and each.state == "done":
            return {"id": each.id, "factors": [effect.model_dump() for effect in effects]}
    return None


def measurements_of(
    session: Session, submission_id: str, *, most: int, kind: str = ENTRY.name
) -> Sequence[Verification]:
    """The latest measurements of an entry with their reports, the newest first."""
    statement = (
        select(Verification)
        .where(Verification.submission_id == submission_id, Verification.kind == kind)
        .order_by(Verification.created_at.desc())
        .limit(most)
        .options(undefer(Verification.report))
    )
    return session.scalars(statement).all()


def untimed_runs(verification: Verification) -> dict[int, str]:
    """Names of the runs that measure no time, by their index: a control, a repeat of the first."""
    controls = dict.fromkeys(verification.control_runs, "control")
    return controls | dict.fromkeys(verification.repeat_runs, "repeat of run 1")


def _in_short(measurements: Iterable[Context]) -> Context:
    """How many runs reached the target of those shown, and how far their times vary."""
    started = [
        run["tta_seconds"]
        for each in measurements
        for run in (each["verification"]["report"] or {"runs": ()})["runs"]
        if run["index"] not in each["untimed"]
    ]
    times = [seconds for seconds in started if seconds is not None]
    cv_percent = coefficient_of_variation_percent(times)
    return {"reached": len(times), "started": len(started), "cv_percent": cv_percent}


def measured_curves(session: Session, submission: Submission) -> list[Context]:
    """The curves of the measured runs that rank. Of an unmeasured entry, of its latest report.

    Each is like a run of a submission. A code submission tells no epochs: its evaluations are
    counted.
    """
    benchmark = definition(session, submission.benchmark_sha256)
    is_code = submission.trained_with == "package"
    ranking = reported_runs(session, submission.id)
    if ranking:
        return [_curve(benchmark, run, at, is_code) for at, (_, run) in enumerate(ranking)]
    for verification in measurements_of(session, submission.id, most=MOST_MEASUREMENTS):
        report = report_of(verification)
        if report is not None:
            untimed = untimed_runs(verification)
            runs = [run for run in report.runs if run.index not in untimed]
            return [_curve(benchmark, run, run.index, is_code) for run in runs]
    return []


def _curve(benchmark: Benchmark, run: ReplayRun, place: int, is_code: bool) -> Context:
    found = evaluation_at_target(benchmark, run)
    better = max if benchmark.target.direction == "higher" else min
    return {
        "index": place,
        "file": f"run {place + 1}",
        "seconds": None if found is None else found.seconds,
        "best_quality": better((e.quality for e in run.evaluations), default=None),
        "evaluations": len(run.evaluations),
        "curve": [
            {
                "index": number,
                "epoch": None if is_code else each.epoch,
                "samples": None,
                "seconds": each.seconds,
                "quality": each.quality,
            }
            for number, each in enumerate(run.evaluations, start=1)
        ],
    }
