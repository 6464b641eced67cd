"""Add an organiser's own benchmark: check its files, store them, offer it in every server."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import SubmissionError
from finishline.rules.trainings.own_benchmark import OwnBenchmark, read_own_benchmark
from server.base.artifacts import Staged
from server.base.board_versions import raise_board_version
from server.base.database import insert_missing, utc_now
from server.base.errors import ConflictError
from server.base.models import BenchmarkDefinition, BenchmarkFile
from server.base.services import Services
from server.benchmarks.phase_queries import current_phases, is_frozen
from server.benchmarks.phase_watch import PhaseWatch
from server.benchmarks.queries import added_definitions, definition_on_disk, insert_definition
from server.benchmarks.views import phases_of
from server.people.audit import Subject, record
from server.people.dependencies import Caller


def add_benchmark(
    services: Services, caller: Caller, files: Mapping[str, bytes], *, reason: str | None
) -> tuple[Benchmark, bool]:
    """Add a benchmark, or a later version of one that was added; returns whether it changed.

    Raises SubmissionError with every problem of the files, ConflictError for a benchmark of the
    server's own folder and for one with frozen rules.
    """
    own, problems = read_own_benchmark(files)
    if own is None:
        raise SubmissionError(problems)
    store = services.artifacts
    staged = {name: store.stage_bytes(content) for name, content in own.files.items()}
    try:
        settled = store.settle(list({each.sha256: each for each in staged.values()}.values()))
        with services.database.write() as session:
            changed = _store(services, session, caller, own, staged, reason)
            store.keep(settled)
    finally:
        for each in staged.values():
            store.discard(each)
    services.of(PhaseWatch).look_once()
    return own.benchmark, changed


def _store(
    services: Services,
    session: Session,
    caller: Caller,
    own: OwnBenchmark,
    staged: Mapping[str, Staged],
    reason: str | None,
) -> bool:
    benchmark, now = own.benchmark, utc_now()
    if _current(services, session, benchmark.benchmark_id) == benchmark.sha256:
        return False
    # Requests that add one benchmark take turns by its board.
    raise_board_version(session, benchmark.benchmark_id)
    before = _current(services, session, benchmark.benchmark_id)
    _refuse_frozen(session, benchmark.benchmark_id, now)
    insert_definition(session, benchmark, own.content)
    for name, file in sorted(staged.items()):
        insert_missing(
            session,
            BenchmarkFile,
            definition_sha256=benchmark.sha256,
            name=name,
            file_sha256=file.sha256,
            size_bytes=file.size_bytes,
        )
    added = session.get_one(BenchmarkDefinition, benchmark.sha256, populate_existing=True)
    added.added_by, added.added_at = caller.user_id, now
    record(
        session,
        caller,
        "benchmark.add",
        Subject("benchmark", benchmark.benchmark_id),
        reason=reason,
        before={"sha256": before} if before is not None else None,
        after={
            "sha256": benchmark.sha256,
            "version": benchmark.version,
            "files": {name: file.sha256 for name, file in sorted(staged.items())},
        },
    )
    return True


def _current(services: Services, session: Session, benchmark_id: str) -> str | None:
    """SHA-256 of the definition that was added last. Raises ConflictError for one that ships."""
    found = added_definitions(session).get(benchmark_id)
    is_other = found is None and benchmark_id in services.benchmarks
    if is_other or definition_on_disk(benchmark_id, services.settings.benchmarks_dir) is not None:
        raise ConflictError(
            f"This server has a benchmark {benchmark_id} that was not added. Choose another id."
        )
    return found


def _refuse_frozen(session: Session, benchmark_id: str, now: datetime) -> None:
    phases = current_phases(session, benchmark_id)
    if phases is not None and is_frozen(phases_of(phases), now):
        raise ConflictError(
            f"The rules of {benchmark_id} are frozen. Unfreeze them first: "
            f"finishline benchmark phase {benchmark_id} --freezes none --unfreeze --reason WHY"
        )
