"""Add measured runs to pools, measure their times, and derive the evidence of submissions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.ranking import CHECK_OF_STATUS, Check, Evidence
from finishline.rules.scoring.tta import calibrated_spread
from finishline.rules.statistics.aggregate import (
    FEWEST_SEALED_RUNS,
    SHORTEST_SECONDS,
    Spread,
    measured_seconds,
    resolution_of,
)
from finishline.rules.statistics.gaps import Score, interval_of
from finishline.rules.submissions.claim import trained_settings
from finishline.rules.verification.control_points import has_default_settings, is_calibrated
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.replay import is_disturbed, is_excused, why_not_timed
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.events import StatusChanged, emit
from server.base.models import Attempt, Pool, PoolRun, Submission, Verification
from server.base.standing import (
    OPEN,
    PUBLISH,
    checks_claim,
    claim_of,
    configuration_of,
    published_verification,
    purpose_of,
    reference_model,
    report_of,
)
from server.benchmarks.definitions import benchmark_of, definition, rules_that_differ
from server.submissions.rows import new_id
from server.submissions.standing_changes import link

# Reasons of a verdict after which its runs measure no time.
UNTIMED = ("hardware_differs", "worker_drifted")


def measured_runs(benchmark: Benchmark, report: ReplayReport) -> list[PoolRun]:
    """Build a pool's rows for the runs of a report. A run below the target has no seconds."""
    found = []
    for run in report.runs:
        if is_excused(run):
            continue
        counted, reached = PoolRun(index=run.index, seed=run.seed), None
        if run.tta_seconds is not None:
            reached = evaluation_at_target(benchmark, run)
        if benchmark.score.by == "time" and run.evaluations:
            counted.quality = benchmark.target.best(each.quality for each in run.evaluations)
        if run.tta_seconds is not None and reached is not None:
            counted.seconds = max(run.tta_seconds, SHORTEST_SECONDS)
            counted.epochs = reached.epoch
            if benchmark.score.by == "quality":
                counted.quality = reached.quality
        found.append(counted)
    return found


def timed_runs(
    verification: Verification, benchmark: Benchmark, report: ReplayReport, *, hardware_class: str
) -> list[PoolRun]:
    """Return the runs that measure a time. Checks, other classes and drift are left out."""
    if why_not_timed(report, hardware_class=hardware_class) is not None:
        return []
    untimed = verification.control_runs | verification.repeat_runs
    return [run for run in measured_runs(benchmark, report) if run.index not in untimed]


class Spreads:
    """Spread of each hardware class, or the calibrated epochs' while a class has too few times."""

    def __init__(self, session: Session, benchmark: Benchmark) -> None:
        score = benchmark.score
        self._calibrated = calibrated_spread(benchmark) if score.by == "time" else None
        statement = (
            select(Pool.hardware_class, Pool.id, PoolRun.seconds, PoolRun.quality)
            .join(PoolRun, PoolRun.pool_id == Pool.id)
            .where(Pool.benchmark_id == benchmark.benchmark_id, PoolRun.seconds.is_not(None))
        )
        pools: defaultdict[str, defaultdict[str, list[float]]]
        pools = defaultdict(lambda: defaultdict(list))
        for run in session.execute(statement):
            if (figure := score.figure(run)) is not None:
                pools[run.hardware_class][run.id].append(figure)
        self._of_class = {name: score.spread(those.values()) for name, those in pools.items()}

    def of(self, hardware_class: str) -> Spread | None:
        """Return the spread of one run's log time, or quality, on a class, if enough is known."""
        return self._of_class.get(hardware_class) or self._calibrated


def keep_measured_runs(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Add a replay's runs to its configuration's pool. A new duplicate's original has the time."""
    submission = verification.submission
    if submission is None or not purpose_of(verification).fills_pool:
        return
    if submission.trained_with == "own" or submission.published is not None:
        return
    benchmark = benchmark_of(session, verification)
    hardware_class = submission.system["hardware_class"]
    found = timed_runs(verification, benchmark, report, hardware_class=hardware_class)
    if not found:
        return
    pool = session.get(Pool, verification.pool_id) if verification.pool_id is not None else None
    pool = pool or open_pool(session, submission, benchmark)
    if pool.closed_at is not None:
        return
    with _measured_again(session, benchmark, pool):
        _add(session, pool, verification, found)
        original = session.get(Submission, submission.duplicate_of or submission.id) or submission
        original.pool_id = verification.pool_id = pool.id
        pool.is_busy = is_disturbed(report)
        _keep_one(session, pool)


def add_to_pool(
    session: Session,
    benchmark: Benchmark,
    pool: Pool,
    verification: Verification,
    runs: Iterable[PoolRun],
) -> None:
    """Add runs of a head-to-head to a pool, and measure it again."""
    with _measured_again(session, benchmark, pool):
        _add(session, pool, verification, runs)


def _keep_one(session: Session, pool: Pool) -> None:
    """Link later submissions of a pool to the earliest. A reference has one in each division.

    A pool of a submission under embargo has no other submission.
    """
    session.flush()
    found = session.scalars(
        select(Submission)
        .where(
            Submission.pool_id == pool.id,
            Submission.division == pool.division,
            Submission.withdrawn_at.is_(None),
        )
        .order_by(Submission.submitted_at, Submission.id)
    )
    rows = found.unique().all()
    for later in rows[1:]:
        link(session, later, rows[0])


def open_pool(session: Session, submission: Submission, benchmark: Benchmark) -> Pool:
    """Return a configuration's open pool. Changed rules close it and open another."""
    package = submission.package
    configuration = configuration_of(
        benchmark,
        claim_of(submission),
        environment=None if package is None else package.environment_sha256,
        program=None if package is None else package.program_sha256,
    )
    sha256 = sha256_of(configuration)
    own = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    # The reference has one for all divisions.
    is_open = own is not None and own.closed_at is None
    pool = own if is_open else latest_pool(session, sha256, submission)
    if pool is not None:
        if not rules_that_differ(definition(session, pool.benchmark_sha256), benchmark):
            return pool
        pool.closed_at = utc_now()  # Its runs stay. Its submissions wait for the next one.
    pool = Pool(
        id=new_id(),
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        division=configuration["division"],
        hardware_class=configuration["hardware_class"],
        configuration_sha256=sha256,
        settings=configuration["settings"],
        opened_at=utc_now(),
        runs=0,
    )
    session.add(pool)
    session.flush()
    return pool


def latest_pool(session: Session, configuration_sha256: str, submission: Submission) -> Pool | None:
    """Find a configuration's pool: the submission's or the latest. An embargo has its own pool."""
    named = select(Submission.id).where(Submission.pool_id == Pool.id)
    if submission.embargoed:
        usable: ColumnElement[bool] = named.where(Submission.id == submission.id).exists()
    else:
        usable = ~named.where(Submission.embargoed).exists()
    statement = (
        select(Pool)
        .where(Pool.configuration_sha256 == configuration_sha256, Pool.closed_at.is_(None), usable)
        .order_by((Pool.id == submission.pool_id).desc(), Pool.opened_at.desc())
        .limit(1)
    )
    return session.scalars(statement).first()


def _add(
    session: Session,
    pool: Pool,
    verification: Verification,
    runs: Iterable[PoolRun],
) -> None:
    known = set(
        session.scalars(select(PoolRun.index).where(PoolRun.verification_id == verification.id))
    )
    for run in runs:
        if run.index not in known:
            run.verification_id, run.pool_id = verification.id, pool.id
            run.attempt_id = verification.attempts[-1].id
            session.add(run)


def take_out_runs(session: Session, worker: str) -> None:
    """Remove a contradicted worker's runs from their pools, and measure the pools again."""
    trained = PoolRun.attempt_id.in_(select(Attempt.id).where(Attempt.worker == worker))
    of_pools = select(PoolRun.pool_id).where(trained)
    for pool in session.scalars(select(Pool).where(Pool.id.in_(of_pools))).all():
        benchmark = definition(session, pool.benchmark_sha256)
        with _measured_again(session, benchmark, pool):
            session.execute(delete(PoolRun).where(PoolRun.pool_id == pool.id, trained))


@contextmanager
def _measured_again(session: Session, benchmark: Benchmark, changed: Pool) -> Iterator[None]:
    """Measure a pool after the block, and every interval of its class if the spread changes."""
    before = Spreads(session, benchmark).of(changed.hardware_class)
    yield
    session.flush()
    spread, pools = Spreads(session, benchmark).of(changed.hardware_class), {changed}
    if spread != before:
        pools |= set(
            session.scalars(
                select(Pool).where(
                    Pool.benchmark_id == changed.benchmark_id,
                    Pool.hardware_class == changed.hardware_class,
                    Pool.closed_at.is_(None),
                )
            )
        )
        raise_board_version(session, changed.benchmark_id)
    runs: defaultdict[str, list[Any]] = defaultdict(list)
    query = select(PoolRun.pool_id, PoolRun.seconds, PoolRun.epochs, PoolRun.quality)
    for row in session.execute(query.where(PoolRun.pool_id.in_({pool.id for pool in pools}))):
        runs[row.pool_id].append(row)
    for pool in pools:
        _measure(pool, runs[pool.id], spread, benchmark.score)
    named = select(Submission).where(Submission.pool_id == changed.id)
    for submission in session.scalars(named).unique().all():
        follow_evidence(session, submission)


def _measure(pool: Pool, runs: Sequence[Any], spread: Spread | None, score: Score) -> None:
    seconds = measured_seconds([run.seconds for run in runs])
    if seconds is not None and pool.measured_at is None:
        pool.measured_at = utc_now()
    pool.runs, pool.measured_seconds = len(runs), seconds
    pool.low_seconds = pool.high_seconds = None
    if score.by == "quality":
        quality = score.measured([run.quality for run in runs])
        pool.measured_quality, pool.low_quality, pool.high_quality = quality, None, None
        around = None if quality is None else score.interval(quality, runs=pool.runs, spread=spread)
        if around is not None:
            pool.low_quality, pool.high_quality = around.low, around.high
    elif spread is not None and seconds is not None:
        # References are evaluated once an epoch.
        steps = [run.seconds / run.epochs for run in runs if run.seconds and run.epochs]
        step = sum(steps) / len(steps) if steps else None
        spread = spread.at_least(resolution_of(step_seconds=step, seconds=seconds))
        interval = interval_of(seconds, runs=pool.runs, spread=spread)
        if interval is not None:
            pool.low_seconds, pool.high_seconds = interval.low, interval.high


def follow_evidence(session: Session, submission: Submission) -> None:
    """Derive the row of a submission from its verifications and its measured runs."""
    published = verdict_that_holds(session, submission)
    before, submission.status = submission.status, _status_of(session, submission, published)
    emit(session, StatusChanged(submission, submission.status, before=before))
    found = _row_by(session, submission, submission.status, published)
    submission.evidence, submission.check_word = found
    _name_model(session, submission, published)
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


def _status_of(session: Session, submission: Submission, published: Verification | None) -> str:
    """Return the own verdict, or "verified" for the shared time of a verified replay."""
    if published is not None and published.submission_id == submission.id:
        return str(published.outcome)
    checks = (each for each in submission.verifications if checks_claim(each, submission))
    if any(each.state in OPEN for each in checks):
        return "verifying"
    pool = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    has_time = pool is not None and pool.measured_seconds is not None
    is_verified = published is not None and published.outcome == "verified"
    return "verified" if has_time and is_verified else "claimed"


def _name_model(session: Session, submission: Submission, published: Verification | None) -> None:
    is_ours = submission.evidence == "measured" and submission.trained_with == "reference"
    if is_ours and submission.claimed_model is None:
        benchmark = definition(session, submission.benchmark_sha256)
        settings = trained_settings(benchmark, claim_of(submission))
        report = None if published is None else report_of(published)
        torch = None if report is None else report.system.software.get("torch")
        submission.claimed_model, submission.model = (
            submission.model,
            reference_model(benchmark, settings),
        )
        submission.claimed_framework, submission.framework = (
            submission.framework,
            f"PyTorch {torch}" if torch else "PyTorch",
        )
    elif not is_ours and submission.claimed_model is not None:
        submission.model = submission.claimed_model
        submission.framework = submission.claimed_framework or submission.framework
        submission.claimed_model = submission.claimed_framework = None


def verdict_that_holds(session: Session, submission: Submission) -> Verification | None:
    """Find a submission's published verification, or else its pool's latest."""
    own = published_verification(submission)
    if own is not None or submission.pool_id is None:
        return own
    query = select(Verification).where(
        Verification.pool_id == submission.pool_id, Verification.decision == PUBLISH
    )
    return session.scalars(query.order_by(Verification.decided_at.desc()).limit(1)).first()


def row_if_published(
    session: Session, submission: Submission, verification: Verification
) -> dict[str, Any]:
    """Return a row's evidence as if a pending verdict were published."""
    evidence, check = _row_by(session, submission, str(verification.outcome), verification)
    return {"evidence": evidence, "check": check, "trained_with": submission.trained_with}


def _row_by(
    session: Session, submission: Submission, status: str, published: Verification | None
) -> tuple[Evidence, Check | None]:
    uncalibrated = published is not None and _is_between_calibrated(session, submission, published)
    if submission.published is not None:
        return "published", None
    if not uncalibrated and _is_measured(session, submission, status, published):
        return "measured", None
    under_way = (each for each in submission.verifications if each.state in ("running", "checking"))
    if status == "verifying" and any(checks_claim(each, submission) for each in under_way):
        return "claimed", "running"
    if status == "verified" and uncalibrated:
        return "claimed", "undecided"
    return "claimed", CHECK_OF_STATUS[status]


def _is_measured(
    session: Session, submission: Submission, status: str, published: Verification | None
) -> bool:
    if status != "verified":
        return False
    if submission.kind == "inference":
        return submission.measured_latency_ms is not None
    pool = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    return (
        pool is not None
        and published is not None
        and submission.trained_with != "own"
        and pool.measured_seconds is not None
        and pool.runs >= FEWEST_SEALED_RUNS
        and pool.hardware_class == submission.system["hardware_class"]
        and not any(reason["code"] in UNTIMED for reason in published.reasons)
    )


def _is_between_calibrated(
    session: Session, submission: Submission, published: Verification
) -> bool:
    """Check whether a closed submission's batch size lacks a calibrated band."""
    if submission.division != "closed" or submission.kind != "train":
        return False
    benchmark, claim = benchmark_of(session, published), claim_of(submission)
    has_band = not has_default_settings(benchmark, claim) or is_calibrated(benchmark, claim)
    return bool(benchmark.reference_runs) and not has_band
