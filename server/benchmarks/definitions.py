"""Definitions of benchmarks as rows, and the adopted calibration whose runs complete one.

The row that came in force last is used.
"""

import hashlib
from collections.abc import Mapping

from sqlalchemy import Connection, Row, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark, read_benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.ranking import Round
from finishline.rules.text import did_you_mean
from finishline.rules.verification.calibration import calibrated_by
from finishline.rules.verification.purposes import PURPOSES
from server.base.board_versions import raise_board_version
from server.base.database import Services, insert_missing, state_of, utc_now
from server.base.errors import LostFileError, NotFoundError
from server.base.models import BenchmarkDefinition, Calibration, CalibrationRunRow, Verification

COMPLETE = ("reached", "not_reached")  # A failed run's curve ends early.
IS_IN_FORCE = BenchmarkDefinition.in_force_at.is_not(None)


class KnownDefinitions(dict[str, Benchmark]):
    """Definitions read by this process, by hash. The text of a hash never changes."""


def definition(session: Session, sha256: str) -> Benchmark:
    """Read the benchmark of a stored definition. Raises NotFoundError."""
    known = state_of(session, KnownDefinitions)
    if sha256 not in known:
        row = session.get(BenchmarkDefinition, sha256)
        if row is None:
            raise NotFoundError(f"There is no benchmark definition {sha256}.")
        known[sha256] = read_benchmark(row.content.encode(), file=f"{row.benchmark_id}.toml")
    return known[sha256]


def definition_text(session: Session, benchmark: Benchmark) -> bytes:
    """Read the text of an offered definition, byte for byte as it was hashed."""
    return session.get_one(BenchmarkDefinition, benchmark.sha256).content.encode()


def adopted_calibration(
    session: Session, benchmark_sha256: str, precision: str | None = None
) -> Calibration | None:
    """Find the calibration that judges new verifications of a definition in a precision."""
    return session.scalars(
        select(Calibration)
        .where(
            Calibration.benchmark_sha256 == benchmark_sha256,
            Calibration.adopted_at.is_not(None),
            Calibration.precision == precision,  # SQLAlchemy writes None as IS NULL.
        )
        .order_by(Calibration.adopted_at.desc(), Calibration.version.desc())
        .limit(1)
    ).first()


def judging_benchmark(
    session: Session, benchmark_sha256: str, calibration_id: str | None
) -> Benchmark:
    """Read a definition, with the runs of a calibration in place of its runs if one is named."""
    benchmark = definition(session, benchmark_sha256)
    if calibration_id is None:
        return benchmark
    return calibrated_by(benchmark, reference_runs(finished_runs(session, calibration_id)))


def benchmark_of(session: Session, verification: Verification) -> Benchmark:
    """Read the benchmark behind a verification as planned, before any later adoption."""
    judged_by = verification.calibration_id if PURPOSES[verification.kind].is_replay else None
    return judging_benchmark(session, verification.benchmark_sha256, judged_by)


def finished_runs(session: Session, calibration_id: str) -> list[CalibrationRunRow]:
    """List every ended run of a calibration, by batch size and seed."""
    return list(
        session.scalars(
            select(CalibrationRunRow)
            .where(CalibrationRunRow.calibration_id == calibration_id)
            .order_by(CalibrationRunRow.batch_size, CalibrationRunRow.seed)
        )
    )


def reference_runs(rows: list[CalibrationRunRow]) -> list[ReferenceRun]:
    """Convert complete runs to the form of a benchmark file."""
    return [
        ReferenceRun(batch_size=row.batch_size, seed=row.seed, quality=tuple(row.quality))
        for row in rows
        if row.status in COMPLETE
    ]


def in_force(session: Session) -> dict[str, Row[str, str, int | None]]:
    """Read id, SHA-256 and `added_by` of the definition in force of each benchmark, by id."""
    rows = session.execute(
        select(
            BenchmarkDefinition.benchmark_id,
            BenchmarkDefinition.sha256,
            BenchmarkDefinition.added_by,
        )
        .where(IS_IN_FORCE)
        .order_by(BenchmarkDefinition.in_force_at)
    )
    return {row.benchmark_id: row for row in rows}


def sha256_in_force(session: Session, benchmark_id: str) -> str | None:
    """Read the SHA-256 of a benchmark's definition in force, if there is one."""
    return session.scalar(
        select(BenchmarkDefinition.sha256)
        .where(BenchmarkDefinition.benchmark_id == benchmark_id, IS_IN_FORCE)
        .order_by(BenchmarkDefinition.in_force_at.desc())
        .limit(1)
    )


def those_in_force(session: Session) -> list[Benchmark]:
    """Read the definitions in force, whichever server process put them there."""
    return [definition(session, row.sha256) for row in in_force(session).values()]


def put_in_force(
    session: Session, benchmark: Benchmark, content: bytes, *, added_by: int | None = None
) -> None:
    """Store a definition unless it is stored, and use it from now on."""
    earlier, now = sha256_in_force(session, benchmark.benchmark_id), utc_now()
    if earlier == benchmark.sha256:
        return
    if earlier is not None:
        raise_board_version(session, benchmark.benchmark_id)
    insert_missing(
        session,
        BenchmarkDefinition,
        sha256=benchmark.sha256,
        benchmark_id=benchmark.benchmark_id,
        version=benchmark.version,
        content=content.decode(),
        created_at=now,
    )
    row = session.get_one(BenchmarkDefinition, benchmark.sha256, populate_existing=True)
    row.in_force_at, row.added_by = now, added_by
    session.flush()


def added_benchmarks(session: Session) -> set[str]:
    """List the benchmarks with a definition that an organiser added."""
    return {name for name, row in in_force(session).items() if row.added_by is not None}


def files_of_added(connection: Connection) -> dict[str, tuple[str, str]]:
    """List the files pinned by added definitions, by hash, with benchmark id and file name."""
    rows = connection.execute(
        select(BenchmarkDefinition.benchmark_id, BenchmarkDefinition.content).where(
            BenchmarkDefinition.added_by.is_not(None)
        )
    )
    return {
        sha256: (benchmark_id, name)
        for benchmark_id, content in rows
        for name, sha256 in pinned_files(
            read_benchmark(content.encode(), file=f"{benchmark_id}.toml")
        ).items()
    }


def pinned_files(benchmark: Benchmark) -> Mapping[str, str]:
    """Return the SHA-256 of each file pinned by a definition, by name."""
    return benchmark.trainings.files if benchmark.trainings is not None else {}


def read_benchmark_file(services: Services, benchmark: Benchmark, name: str, sha256: str) -> bytes:
    """Read a pinned file from the definitions' folder, else the store. Raises LostFileError."""
    path = services.settings.benchmarks_dir / benchmark.benchmark_id / name
    if path.is_file():
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
    try:
        with services.artifacts.open(sha256) as file:
            return file.read()
    except OSError as error:
        raise LostFileError(sha256) from error


def find_benchmark(benchmarks: Mapping[str, Benchmark], benchmark_id: str) -> Benchmark:
    """Find a benchmark by id. Raises NotFoundError with the known ids."""
    if benchmark_id not in benchmarks:
        known = sorted(benchmarks)
        meant = did_you_mean(benchmark_id, known)
        raise NotFoundError(
            f"There is no benchmark {benchmark_id!r}{meant}; there are: {', '.join(known)}."
        )
    return benchmarks[benchmark_id]


# Fields deciding whether a run reached its target, its time, and the result of the runs.
SCORED_BY = {
    "target": "target",
    "reach": "target.reach",
    "clock": "clock",
    "runs": "runs",
    "data_set": "data_set",
    "hyperparameters": "hyperparameters",
    "convergence_unit": "convergence",
    "rcp": "rcp",
}


def rules_that_differ(earlier: Benchmark, current: Benchmark) -> tuple[str, ...]:
    """Name the differing parts that scoring reads. Without any, figures may be compared."""
    return tuple(
        name
        for attribute, name in SCORED_BY.items()
        if getattr(earlier, attribute) != getattr(current, attribute)
    )


ROUNDS: tuple[Round, ...] = ("open", "archive")


def rounds_of(benchmark: Benchmark) -> tuple[Round | None, ...]:
    """Return the rounds of a benchmark's ranking. An archive's has a single unnamed one."""
    is_trained_here = benchmark.replay is not None or benchmark.trainings is not None
    return ROUNDS if is_trained_here else (None,)


def round_of(benchmark: Benchmark, evidence: str) -> Round | None:
    """Return the round of a row with this evidence."""
    if rounds_of(benchmark) != ROUNDS:
        return None
    return "archive" if evidence == "published" else "open"
