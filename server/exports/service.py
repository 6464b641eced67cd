"""Everything a server knows and may tell, in a folder that another server can be made from."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select

from finishline.rules.proof.hash_chain import FIRST_PREVIOUS, Head
from server.artifacts import ArtifactStore
from server.benchmarks.queries import definition_file
from server.code_version import code_version
from server.database import moment_text, utc_now
from server.dependencies import Parts
from server.exports.csv_tables import CsvFile
from server.exports.folders import whole_or_not
from server.exports.logs import (
    LOG_COLUMNS,
    Copied,
    copy_logs,
    link_from,
    list_logs,
)
from server.exports.manifest import (
    EXPORT_FORMAT,
    LOG_LIST,
    FilePart,
    LogsPart,
    Manifest,
    file_part,
    write_manifest,
)
from server.exports.parquet_tables import has_parquet
from server.exports.progress import Progress, now_and_then, silent
from server.exports.selection import select_export, tables_left_out
from server.exports.snapshot import revision_of, snapshot
from server.exports.tables import Written, write_tables
from server.models import AuditRecord
from server.proofs.service import current_signer

LOGS = "logs"
BENCHMARKS = "benchmarks"
NAMED = ".named"


@dataclass(frozen=True)
class Wanted:
    """What an export is to hold.

    `public` leaves out what is not everybody's. `keep_missing` goes on where the store has lost a
    log, and lists it. `earlier` is an export whose logs are shared, not copied, on the same disk.
    """

    public: bool = False
    keep_missing: bool = False
    earlier: Path | None = None


def export_everything(
    parts: Parts, path: Path, wanted: Wanted | None = None, say: Progress = silent
) -> Manifest:
    """Write an export to a folder, or to an archive if the path ends in .tar.

    The tables are of one moment, while the server goes on. Raises ConflictError if the path is
    taken, RuleError naming a log that the store has lost or that is not what it was.
    """
    wanted = wanted or Wanted()
    signer = current_signer(parts)
    with whole_or_not(path) as folder:
        made_at = moment_text(utc_now())
        with snapshot(parts.database) as connection:
            revision, head = revision_of(connection), audit_head(connection)
            written = write_tables(
                connection,
                select_export(connection.dialect, public=wanted.public),
                folder,
                parquet=has_parquet(),
                progress=now_and_then(say, what="tables"),
            )
            _note_logs(connection, folder, public=wanted.public)
        copied, listed = _write_logs(parts.artifacts, folder, wanted, say)
        manifest = Manifest(
            format=EXPORT_FORMAT,
            content="public" if wanted.public else "everything",
            made_at=made_at,
            schema_revision=revision,
            code=code_version(),
            audit_head=head,
            tables=written.tables,
            left_out=tables_left_out(public=wanted.public),
            logs=LogsPart(True, copied.files, copied.size_bytes, copied.missing),
            files=_files(parts, folder, written, listed),
        )
        write_manifest(folder, manifest, signer)
    return manifest


def audit_head(connection: Connection) -> Head:
    """The last record of the audit log at the moment of a snapshot."""
    query = select(AuditRecord.id, AuditRecord.sha256).order_by(AuditRecord.id.desc()).limit(1)
    last = connection.execute(query).first()
    return Head(last.id, last.sha256) if last is not None else Head(0, FIRST_PREVIOUS)


def _note_logs(connection: Connection, folder: Path, *, public: bool) -> None:
    """Keep the names of the logs, so that the snapshot need not wait until they are copied."""
    with (folder / NAMED).open("w") as file:
        file.writelines(f"{sha256}\n" for sha256 in list_logs(connection, public=public))


def noted_logs(folder: Path) -> Iterator[str]:
    """The names that `_note_logs` kept."""
    with (folder / NAMED).open() as file:
        yield from (line.rstrip("\n") for line in file)


def _write_logs(
    store: ArtifactStore, folder: Path, wanted: Wanted, say: Progress
) -> tuple[Copied, FilePart]:
    target = ArtifactStore(folder / LOGS)
    earlier = wanted.earlier / LOGS if wanted.earlier is not None else None
    with (folder / LOG_LIST).open("wb") as file:
        listed = CsvFile(file, LOG_COLUMNS)
        copied = copy_logs(
            noted_logs(folder),
            store.open,
            target,
            known=link_from(earlier, target),
            keep_missing=wanted.keep_missing,
            on_kept=lambda sha256, size_bytes, _: listed.add([(sha256, size_bytes)]),
            progress=now_and_then(say, what="logs"),
        )
    target.incoming.rmdir()
    (folder / NAMED).unlink()
    return copied, FilePart(listed.sha256, listed.size_bytes)


def _files(parts: Parts, folder: Path, written: Written, listed: FilePart) -> dict[str, FilePart]:
    """Every file but the logs, whose names are their hashes, and the manifest."""
    (folder / BENCHMARKS).mkdir()
    files = written.files | {LOG_LIST: listed}
    for benchmark_id in parts.benchmarks:
        source = definition_file(benchmark_id, parts.settings.benchmarks_dir)
        with suppress(FileNotFoundError):
            shutil.copyfile(source, folder / BENCHMARKS / source.name)
            files[f"{BENCHMARKS}/{source.name}"] = file_part(folder / BENCHMARKS / source.name)
    return files
