"""Read benchmarks: those this server offers, and those that results were scored under."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from sqlalchemy import Table, bindparam, case, func, select
from sqlalchemy.orm import Session

from finishline.rules.archive.definitions import (
    shipped_definition,
    shipped_definitions,
    shipped_texts,
)
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmarks, read_benchmark
from finishline.rules.ranking import Round
from finishline.rules.text import did_you_mean
from server.base.board_versions import board_versions, cached_for_board
from server.base.database import Database, insert_missing, state_of, utc_now
from server.base.errors import ConflictError, NotFoundError
from server.base.models import BenchmarkDefinition, Board, Submission
from server.base.models.visibility import ranks
from server.base.services import OfferedBenchmarks

_KEPT = cast(Table, BenchmarkDefinition.__table__).c
_KEPT_SHA256 = select(_KEPT.sha256).where(_KEPT.sha256 == bindparam("sha256"))


@dataclass
class KnownDefinitions:
    """Definitions by hash: benchmarks that were read from stored texts, and texts of files."""

    benchmarks: dict[str, Benchmark] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)


def load_definitions(folder: Path, database: Database) -> OfferedBenchmarks:
    """Load every benchmark of a folder; later changes of its files have no effect.

    Raises BenchmarkError if the folder holds none.
    """
    benchmarks = load_benchmarks(folder)
    texts = database.state.of(KnownDefinitions).texts
    for benchmark in benchmarks.values():
        texts[benchmark.sha256] = stored_text(benchmark.benchmark_id, folder)
    return OfferedBenchmarks(benchmarks.values())


def install_archives(offered: OfferedBenchmarks, session: Session) -> None:
    """Offer the shipped definition of each archive's benchmark that has a board in the database."""
    missing = shipped_texts().keys() - offered.keys()
    if not missing:
        return
    for benchmark_id in session.scalars(
        select(Board.benchmark_id).where(Board.benchmark_id.in_(missing))
    ):
        offered.offer(shipped_definition(benchmark_id))


def added_definitions(session: Session, *, without: Collection[str] = ()) -> dict[str, str]:
    """SHA-256 of the definition of each benchmark that an organiser added, but for some ids."""
    rows = session.execute(
        select(BenchmarkDefinition.benchmark_id, BenchmarkDefinition.sha256)
        .where(BenchmarkDefinition.added_at.is_not(None))
        .order_by(BenchmarkDefinition.added_at)
    )
    return {row.benchmark_id: row.sha256 for row in rows if row.benchmark_id not in without}


def offer_added(offered: OfferedBenchmarks, session: Session) -> None:
    """Offer the benchmarks that organisers added; those of the folder go before them."""
    for sha256 in added_definitions(session, without=tuple(offered)).values():
        offered.offer(definition(session, sha256))


def importable_benchmarks(offered: OfferedBenchmarks) -> dict[str, Benchmark]:
    """Benchmarks that an archive's result may be of: those shipped, and those offered."""
    return shipped_definitions() | dict(offered)


def definition_on_disk(benchmark_id: str, folder: Path) -> str | None:
    """SHA-256 of a benchmark's file on disk; None if it cannot be read."""
    try:
        return hashlib.sha256(stored_text(benchmark_id, folder)).hexdigest()
    except OSError:
        return None


def stored_text(benchmark_id: str, folder: Path) -> bytes:
    """Text of a benchmark's file in the folder, else of the one shipped for an archive."""
    own = folder / f"{benchmark_id}.toml"
    is_shipped = benchmark_id in shipped_texts() and not own.exists()
    return shipped_texts()[benchmark_id] if is_shipped else own.read_bytes()


def find_benchmark(benchmarks: Mapping[str, Benchmark], benchmark_id: str) -> Benchmark:
    """Find a benchmark by id. Raises NotFoundError with the ids there are."""
    if benchmark_id not in benchmarks:
        known = sorted(benchmarks)
        meant = did_you_mean(benchmark_id, known)
        raise NotFoundError(
            f"There is no benchmark {benchmark_id!r}{meant}; there are: {', '.join(known)}."
        )
    return benchmarks[benchmark_id]


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


def keep_definition(session: Session, benchmark: Benchmark, folder: Path) -> None:
    """Store the text of a definition, to judge later the results that were scored under it.

    Raises ConflictError if its file was changed before its text was read.
    """
    if session.connection().scalar(_KEPT_SHA256, {"sha256": benchmark.sha256}) is not None:
        return
    insert_definition(session, benchmark, _text_of(session, benchmark, folder))


def insert_definition(session: Session, benchmark: Benchmark, content: bytes) -> None:
    """Store the text of a definition unless it is stored."""
    insert_missing(
        session,
        BenchmarkDefinition,
        sha256=benchmark.sha256,
        benchmark_id=benchmark.benchmark_id,
        version=benchmark.version,
        content=content.decode(),
        created_at=utc_now(),
    )


def definition_text(session: Session, benchmark: Benchmark, folder: Path) -> bytes:
    """Text of the definition in force, whose hash every result under it names.

    Raises ConflictError if its file was changed before its text was read.
    """
    kept = session.get(BenchmarkDefinition, benchmark.sha256)
    return kept.content.encode() if kept is not None else _text_of(session, benchmark, folder)


def _text_of(session: Session, benchmark: Benchmark, folder: Path) -> bytes:
    content = state_of(session, KnownDefinitions).texts.get(benchmark.sha256)
    if content is None or hashlib.sha256(content).hexdigest() != benchmark.sha256:
        content = stored_text(benchmark.benchmark_id, folder)
    if hashlib.sha256(content).hexdigest() != benchmark.sha256:
        raise ConflictError(
            f"{benchmark.benchmark_id}.toml was changed while this server runs, which offers "
            f"{benchmark.sha256[:12]}; start the server again."
        )
    return content


def definition(session: Session, sha256: str) -> Benchmark:
    """Benchmark that a result was scored under, from its stored text.

    Cached for the process: the text of a hash never changes, and a live page asks four times a
    second.
    """
    known = state_of(session, KnownDefinitions).benchmarks
    if sha256 not in known:
        row = session.get(BenchmarkDefinition, sha256)
        if row is None:
            raise NotFoundError(f"There is no benchmark definition {sha256}.")
        content = row.content.encode()
        known[sha256] = read_benchmark(content, file=f"{row.benchmark_id}.toml")
    return known[sha256]


ROUNDS: tuple[Round, ...] = ("open", "archive")


def rounds_of(benchmark: Benchmark) -> tuple[Round | None, ...]:
    """The rounds that a benchmark's rows are numbered in; one without a name on an archive's."""
    is_trained_here = benchmark.replay is not None or benchmark.trainings is not None
    return ROUNDS if is_trained_here else (None,)


def round_of(benchmark: Benchmark, evidence: str) -> Round | None:
    """The round that a row of this evidence is numbered in."""
    if rounds_of(benchmark) != ROUNDS:
        return None
    return "archive" if evidence == "published" else "open"
