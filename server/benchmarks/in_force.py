"""How definitions come in force. While the rules of a benchmark are frozen, it stays."""

import hashlib
import logging
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from threading import Lock

from sqlalchemy import update
from sqlalchemy.orm import Session

from finishline.periodic import PeriodicThread
from finishline.rules.archive.definitions import shipped_texts
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmarks, read_benchmark
from finishline.rules.errors import SubmissionError
from finishline.rules.trainings.own_benchmark import OwnBenchmark, read_own_benchmark
from server.base.board_versions import raise_board_version
from server.base.database import OUTAGES, Services, utc_now
from server.base.errors import ConflictError
from server.base.models import BenchmarkDefinition
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import (
    in_force,
    pinned_files,
    put_in_force,
    those_in_force,
)
from server.benchmarks.phases import (
    due_embargoes,
    frozen_benchmarks,
    lift_embargo,
)
from server.people.audit import Subject, record
from server.people.callers import Caller

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 1.0


def install_definitions(session: Session, folder: Path) -> None:
    """Put the files of a folder in force at the start of a server.

    The shipped definitions of imported archives follow the release. A benchmark without its file is
    no longer offered, unless an organiser added it. Frozen definitions stay.
    """
    frozen, present = frozen_benchmarks(session), in_force(session)
    names = load_benchmarks(folder).keys() | (shipped_texts().keys() & present.keys())
    for name in sorted(names - frozen):
        content = _text_on_disk(name, folder) or b""
        put_in_force(session, read_benchmark(content, file=f"{name}.toml"), content)
    gone = present.keys() - names - frozen
    session.execute(
        update(BenchmarkDefinition)
        .where(BenchmarkDefinition.benchmark_id.in_(gone), BenchmarkDefinition.added_by.is_(None))
        .values(in_force_at=None)
    )
    for warning in frozen_differences(session, folder):
        log.warning("%s", warning)


def frozen_differences(session: Session, folder: Path) -> list[str]:
    """Warn of frozen benchmarks with another text in their file on disk."""
    current, warnings = in_force(session), []
    for name in sorted(frozen_benchmarks(session) & current.keys()):
        text, frozen = _text_on_disk(name, folder), current[name]
        found = None if text is None else hashlib.sha256(text).hexdigest()
        if frozen.added_by is None and found != frozen.sha256:
            is_what = "is missing" if found is None else f"is {found[:12]}"
            warnings.append(
                f"{name}.toml {is_what}, but the rules are frozen as {frozen.sha256[:12]}, which "
                "every submission is scored under. Put the frozen text back, or unfreeze the "
                "benchmark and start the server again."
            )
    return warnings


def _text_on_disk(benchmark_id: str, folder: Path) -> bytes | None:
    """Read a benchmark's file in the folder, else the file shipped for an archive."""
    try:
        return (folder / f"{benchmark_id}.toml").read_bytes()
    except OSError:
        return shipped_texts().get(benchmark_id)


def add_benchmark(
    services: Services, caller: Caller, files: Mapping[str, bytes], *, reason: str | None
) -> tuple[Benchmark, bool]:
    """Add a benchmark, or a later version of an added one. Returns whether it changed.

    Raises SubmissionError for the files, ConflictError for the server's benchmarks or frozen rules.
    """
    own, problems = read_own_benchmark(files)
    if own is None:
        raise SubmissionError(problems)
    store = services.artifacts
    staged = [store.stage(BytesIO(content)) for content in own.files.values()]
    try:
        store.settle(staged)
        with services.database.write() as session:
            changed = _add(services, session, caller, own, reason)
            store.keep(staged)
    finally:
        for each in staged:
            store.discard(each)
    services.of(PhaseWatch).look_once()
    return own.benchmark, changed


def _add(
    services: Services, session: Session, caller: Caller, own: OwnBenchmark, reason: str | None
) -> bool:
    benchmark = own.benchmark
    name, before = benchmark.benchmark_id, in_force(session).get(benchmark.benchmark_id)
    is_own = before is not None and before.added_by is None
    if is_own or _text_on_disk(name, services.settings.benchmarks_dir) is not None:
        raise ConflictError(
            f"This server has a benchmark {name} that was not added. Choose another id."
        )
    if before is not None and before.sha256 == benchmark.sha256:
        return False
    if name in frozen_benchmarks(session):
        raise ConflictError(
            f"The rules of {name} are frozen. Unfreeze them first: "
            f"finishline benchmark phase {name} --freezes none --unfreeze --reason WHY"
        )
    put_in_force(session, benchmark, own.content, added_by=caller.user_id)
    subject = Subject("benchmark", name)
    earlier = {"sha256": before.sha256} if before is not None else None
    after = {
        "sha256": benchmark.sha256,
        "version": benchmark.version,
        "files": dict(sorted(pinned_files(benchmark).items())),
    }
    record(session, caller, "benchmark.add", subject, reason=reason, before=earlier, after=after)
    return True


class PhaseWatch:
    """Offers new definitions and ends embargoes each second. Several servers may watch."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = Lock()
        self.thread = PeriodicThread("phases", INTERVAL_SECONDS, self.look_once, outages=OUTAGES)

    def look_once(self) -> None:
        """Offer and show all due changes. Raises SQLAlchemyError if the database is away."""
        database, offered, now = self._services.database, self._services.benchmarks, utc_now()
        with self._lock:
            with database.read(ORGANISER) as session:
                to_show = due_embargoes(session, now)
                offered.replace(those_in_force(session))
            for name in sorted(offered.redefined):
                # A board read in between is cached under the earlier definition.
                with database.write() as session:
                    raise_board_version(session, name)
                offered.redefined.discard(name)
                log.info("%s is served under definition %s", name, offered[name].sha256[:12])
            for name in to_show:
                with database.write() as session:
                    shown = lift_embargo(session, name, now)
                log.info("the embargo of %s is over: %d submissions are shown", name, shown)
