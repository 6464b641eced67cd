"""Two verifications of one submission, side by side."""

from dataclasses import asdict, replace

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.untrusted import read_plain
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.rerun_comparison import (
    compare_replays,
    compare_systems,
    figures_of,
)
from server.benchmarks.queries import definition
from server.errors import ContentError
from server.models import Evidence, Verification
from server.reruns.schemas import (
    ComparisonView,
    DifferenceView,
    ReplayView,
    SideView,
    SystemDifferenceView,
)
from server.verifications.publishing import is_published
from server.verifications.queries import find_verification
from server.verifications.schemas import ReasonView


def compare_verifications(session: Session, first_id: str, second_id: str) -> ComparisonView:
    """Verdicts, replays, bands and systems of two verifications, and what differs.

    Raises NotFoundError, ContentError if they are not two of one submission.
    """
    first, second = find_verification(session, first_id), find_verification(session, second_id)
    if first.submission_id != second.submission_id:
        raise ContentError(
            f"Verification {first_id} is of submission {first.submission_id}, {second_id} of "
            f"{second.submission_id}: expected two of one submission."
        )
    if first.submission is None or {first.kind, second.kind} != {"replay"}:
        raise ContentError("These are no replays of a submission; expected two verifications.")
    if first is second:
        raise ContentError("This is one verification; expected two.")
    benchmark = judged_under(session, first)
    left, right = report_of(first), report_of(second)
    differences, systems = [], []
    if left is not None and right is not None:
        differences = compare_replays(benchmark, sealed_of(first, left), sealed_of(second, right))
        systems = compare_systems(left, right)
    return ComparisonView(
        submission_id=first.submission_id,
        benchmark=first.submission.benchmark_id,
        first=_side(session, first, left),
        second=_side(session, second, right),
        same_band=first.control_points == second.control_points,
        differences=[DifferenceView(**asdict(item)) for item in differences],
        systems=[SystemDifferenceView(**asdict(item)) for item in systems],
    )


def judged_under(session: Session, verification: Verification) -> Benchmark:
    """The definition a verification was judged under, or that of its submission before its end."""
    kept = session.get(Evidence, verification.id)
    sha256 = kept.benchmark_sha256 if kept else verification.benchmark_sha256
    return definition(session, sha256)


def report_of(verification: Verification) -> ReplayReport | None:
    """The report of a verification, if it has one."""
    if verification.report is None:
        return None
    return read_plain(ReplayReport, verification.report, path="report")


def sealed_of(verification: Verification, report: ReplayReport) -> ReplayReport:
    """The report's sealed runs alone: the claim's own seeds may be the same in both replays."""
    return replace(report, runs=report.runs[verification.own_runs :])


def _side(session: Session, verification: Verification, report: ReplayReport | None) -> SideView:
    benchmark = judged_under(session, verification)
    runs = figures_of(benchmark, report) if report is not None else []
    return SideView(
        id=verification.id,
        state=verification.state,
        outcome=verification.outcome,
        published=is_published(verification),
        worker=report.system.worker if report is not None else None,
        hardware_class=report.system.hardware_class if report is not None else None,
        reasons=[ReasonView(**reason) for reason in verification.reasons],
        runs=[ReplayView(**asdict(run)) for run in runs],
    )
