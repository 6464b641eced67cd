"""Export of a server's public data, or of everything but secrets, for others to study."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from server.base.artifacts import ArtifactStore
from server.base.code_version import code_version
from server.base.database import moment_text, utc_now
from server.base.services import Services
from server.benchmarks.queries import definition_text
from server.operations.copies import (
    audit_head,
    copy_logs,
    link_from,
    list_logs,
    revision_of,
    snapshot,
    write_log_list,
    write_tables,
)
from server.operations.folders import (
    Progress,
    dated_copy,
    dated_folders,
    now_and_then,
    silent,
    whole_or_not,
)
from server.operations.manifest import (
    EXPORT_FORMAT,
    LOG_LIST,
    FilePart,
    LogsPart,
    Manifest,
    file_part,
    write_manifest,
)
from server.operations.selection import select_export, tables_left_out
from server.operations.table_files import has_parquet
from server.verifications.proofs import current_signer

LOGS = "logs"
BENCHMARKS = "benchmarks"


@dataclass(frozen=True)
class Wanted:
    """Content of an export.

    `public` leaves out all that is not public. `keep_missing` goes on where the store has lost a
    log, and lists it. `earlier` is an export on the same disk; its logs are linked, not copied.
    """

    public: bool = False
    keep_missing: bool = False
    earlier: Path | None = None


def export_everything(
    services: Services, path: Path, wanted: Wanted | None = None, say: Progress = silent
) -> Manifest:
    """Write an export to a folder, or to an archive if the path ends in .tar.

    The tables are of one moment, while the server goes on. Raises ConflictError if the path is
    taken, RuleError naming a log that the store has lost or that has changed.
    """
    wanted = wanted or Wanted()
    signer = current_signer(services)
    with whole_or_not(path) as folder:
        made_at = moment_text(utc_now())
        with snapshot(services.database) as connection:
            revision, head = revision_of(connection), audit_head(connection)
            written = write_tables(
                connection,
                select_export(public=wanted.public),
                folder,
                parquet=has_parquet(),
                progress=now_and_then(say, what="tables"),
            )
            names = list_logs(connection, public=wanted.public)
        logs, listed = _write_logs(services.artifacts, folder, names, wanted, say)
        files = written.files | {LOG_LIST: listed} | _copy_benchmarks(services, folder)
        manifest = Manifest(
            format=EXPORT_FORMAT,
            content="public" if wanted.public else "everything",
            made_at=made_at,
            schema_revision=revision,
            code=code_version(services.settings.code_commit),
            audit_head=head,
            tables=written.tables,
            left_out=tables_left_out(public=wanted.public),
            logs=logs,
            files=files,
        )
        write_manifest(folder, manifest, signer)
    return manifest


def export_nightly(
    services: Services,
    folder: Path,
    *,
    keep: int,
    public: bool = False,
    keep_missing: bool = False,
    say: Progress = silent,
) -> tuple[Path, Manifest]:
    """Export to a dated folder, then remove all but the latest `keep`; logs are shared by links.

    Raises ConflictError while another runs, and whatever an export raises; then none is removed.
    """
    with dated_copy(folder, what="export", keep=keep, say=say) as path:
        earlier = dated_folders(folder)
        wanted = Wanted(public, keep_missing, earlier[-1] if earlier else None)
        manifest = export_everything(services, path, wanted, say)
    return path, manifest


def _write_logs(
    store: ArtifactStore, folder: Path, names: list[str], wanted: Wanted, say: Progress
) -> tuple[LogsPart, FilePart]:
    target = ArtifactStore(folder / LOGS)
    earlier = wanted.earlier / LOGS if wanted.earlier is not None else None
    copied = copy_logs(
        names,
        store.open,
        target,
        known=link_from(earlier, target),
        keep_missing=wanted.keep_missing,
        progress=now_and_then(say, what="logs"),
    )
    target.incoming.rmdir()
    listed = write_log_list(folder, copied)
    return LogsPart(True, len(copied.sizes), copied.size_bytes, copied.missing), listed


def _copy_benchmarks(services: Services, folder: Path) -> dict[str, FilePart]:
    (folder / BENCHMARKS).mkdir()
    files = {}
    source = services.settings.benchmarks_dir
    with services.database.read() as session:
        for benchmark_id, benchmark in sorted(services.benchmarks.items()):
            # A file of the folder that was lost since the start is left out.
            with suppress(FileNotFoundError):
                path = folder / BENCHMARKS / f"{benchmark_id}.toml"
                path.write_bytes(definition_text(session, benchmark, source))
                files[f"{BENCHMARKS}/{path.name}"] = file_part(path)
    return files
