"""Describe a code submission on its page: its measured runs, and its files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import REFERENCE
from finishline.rules.trainings.manifest import FILE
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayRun
from finishline.rules.verification.purposes import ABLATION, ENTRY, HEAD_TO_HEAD
from server.base.models import Submission, TrainingPackage, Verification
from server.base.standing import report_of
from server.base.visibility import Viewer, sees_source
from server.benchmarks.definitions import definition
from server.boards.lineage import IdeaView, find_idea
from server.boards.rows import reported_runs
from server.pages.declared import Context
from server.submissions.code import find_package, parent_of
from server.submissions.rows import package_view
from server.verifications.views import factor_views
from web.formats import time_format, visible
from web.progress import kind_word

MOST_MEASUREMENTS = 4


def entry_context(session: Session, viewer: Viewer, submission: Submission) -> Context:
    """Describe the code of a submission, with the files for a viewer."""
    benchmark = definition(session, submission.benchmark_sha256)
    package = find_package(session, submission.id)
    shows = sees_source(viewer, submission)
    idea = find_idea(session, benchmark, submission)
    return {
        "package": package_view(package, with_files=shows).model_dump(mode="json"),
        "source": [_file(name, text) for name, text in sorted(package.files.items())]
        if shows
        else [],
        "parent": _parent(session, viewer, package, idea, benchmark.target.unit),
        "halves": has_halves(benchmark),
        "trainings": trainings_table(benchmark),
        "ablation": _ablation(session, benchmark, submission.id),
    }


def _parent(
    session: Session, viewer: Viewer, package: TrainingPackage, idea: IdeaView | None, unit: str
) -> Context | None:
    parent = parent_of(session, viewer, package)
    if parent is None:
        return None
    times = time_format([] if idea is None else [idea.seconds])
    return {
        "submission_id": parent.submission_id,
        "sha256": parent.package_sha256,
        "title": parent.manifest["title"],
        "gain": None if idea is None or idea.gain is None else idea.gain.model_dump(),
        "times": replace(times, quality_unit=unit if idea and idea.quality is not None else None),
    }


def trainings_table(benchmark: Benchmark) -> Context | None:
    """Describe how a benchmark trains code submissions. None if it trains none."""
    policy = benchmark.trainings
    if policy is None:
        return None
    return asdict(policy) | {"has_reference": f"{REFERENCE}{FILE}" in policy.files}


def has_halves(benchmark: Benchmark) -> bool:
    """Check whether a second half of the test items judges a benchmark's code submissions."""
    policy = benchmark.trainings
    return policy is not None and policy.halves and benchmark.reach.is_at_quality


def _file(name: str, text: str) -> Context:
    shown = visible(text)
    lines = shown.removesuffix("\n").count("\n") + 1
    return {"name": name, "size_bytes": len(text.encode()), "text": shown, "lines": lines}


def _ablation(session: Session, benchmark: Benchmark, submission_id: str) -> Context | None:
    for each in measurements_of(session, submission_id, kind=ABLATION.name, most=MOST_MEASUREMENTS):
        effects = factor_views(each, benchmark, report_of(each))
        if effects and each.state == "done":
            return {"id": each.id, "factors": [effect.model_dump() for effect in effects]}
    return None


def measurements_of(
    session: Session, submission_id: str, *, most: int, kind: str = ENTRY.name
) -> Sequence[Verification]:
    """Read the latest measurements of a code submission with their reports, newest first."""
    statement = (
        select(Verification)
        .where(Verification.submission_id == submission_id, Verification.kind == kind)
        .order_by(Verification.created_at.desc())
        .limit(most)
        .options(undefer(Verification.report))
    )
    return session.scalars(statement).all()


def untimed_runs(verification: Verification) -> dict[int, str]:
    """Name the runs that measure no time, by their index: a control, a repeat of the first."""
    controls = dict.fromkeys(verification.control_runs, "shortcut test")
    return controls | dict.fromkeys(verification.repeat_runs, "repeat of run 1")


MOST_GROUPS = 12


def run_groups(
    session: Session, submission: Submission, uses: Mapping[tuple[str, int], str]
) -> list[Context]:
    """List the reported runs by verification, newest last. `uses` says how each counts."""
    wanted = {verification_id for verification_id, _ in uses}
    wanted |= {each.id for each in measurements_of(session, submission.id, most=1)}
    statement = select(Verification).where(Verification.id.in_(wanted))
    newest = statement.order_by(Verification.created_at.desc()).limit(MOST_GROUPS)
    halves = has_halves(definition(session, submission.benchmark_sha256))
    found: list[Context] = []
    pairs: Counter[str] = Counter()  # of each head-to-head so far
    for each in reversed(session.scalars(newest.options(undefer(Verification.report))).all()):
        report, names = report_of(each), untimed_runs(each)
        of_this = {index: use for (name, index), use in uses.items() if name == each.id}
        words = (of_this or dict.fromkeys(range(each.runs), "does not count")) | names
        runs = [run for run in report.runs if run.index in words] if report else []
        other = each.against if each.submission_id == submission.id else each.submission
        first, word = 1, "Run"
        if each.kind == HEAD_TO_HEAD.name:
            whole = [*each.earlier_stages, each][0].id
            first, word = pairs[whole] + 1, "Pair"
            pairs[whole] += len(runs)
        found.append(
            {
                "id": each.id,
                "kind": kind_word({"kind": each.kind}),
                "other": other and other.model,
                "pairs": (first, pairs[whole]) if word == "Pair" and runs else None,
                "day": each.created_at,
                "runs": [
                    _shown_run(run, words[run.index], halves=halves)
                    | {
                        "name": f"{word} {place if word == 'Pair' else run.index + 1}",
                        "is_timed": run.index not in names,
                    }
                    for place, run in enumerate(runs, start=first)
                ],
            }
        )
    return found


def _shown_run(run: ReplayRun, use: str, *, halves: bool) -> Context:
    last = run.evaluations[-1] if run.evaluations else None
    return {
        "use": use,
        "seed": run.seed,
        "evaluations": len(run.evaluations),
        "quality": last and last.quality,
        "second_half": last.second_half if last and halves else None,
        "seconds": run.tta_seconds,
    }


def measured_curves(session: Session, submission: Submission) -> list[Context]:
    """List the curves of the ranking runs, or of the latest report. Code tells no epochs."""
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
