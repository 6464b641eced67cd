"""An export each night: dated names, the oldest removed, and a word of when the last ended well."""

import re
import shutil
from datetime import datetime
from pathlib import Path

from server.database import utc_now
from server.dependencies import Parts
from server.exports.folders import only_one, remove_partial
from server.exports.manifest import MANIFEST, Manifest
from server.exports.progress import Progress, silent
from server.exports.service import Wanted, export_everything
from server.observability.kept_copies import note_success

DATED = re.compile(r"finishline-\d{8}T\d{6}Z")


def dated_name(moment: datetime) -> str:
    """finishline-20300102T030405Z: sorted by name is sorted by time."""
    return f"finishline-{moment:%Y%m%dT%H%M%SZ}"


def dated_folders(folder: Path) -> list[Path]:
    """What has a dated name and was ended, the oldest first; nothing else there is looked at."""
    return sorted(
        each
        for each in folder.iterdir()
        if DATED.fullmatch(each.name) and (each / MANIFEST).is_file()
    )


def prune(folder: Path, *, keep: int) -> list[Path]:
    """Remove all dated folders but the latest few; what was removed."""
    old = dated_folders(folder)[:-keep]
    for each in old:
        # Renamed first: what is half removed has no name that anybody would trust.
        gone = each.with_name(f".{each.name}.partial-removed")
        each.rename(gone)
        shutil.rmtree(gone)
    return old


def export_nightly(
    parts: Parts, folder: Path, *, keep: int, public: bool = False, keep_missing: bool = False,
    say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Export to a dated folder, then remove all but the latest `keep`; logs are shared by links.

    Raises ConflictError while another runs, and whatever an export raises; then none is removed.
    """
    with only_one(folder, what="export"):
        remove_partial(folder)
        started = utc_now()
        earlier = dated_folders(folder)
        path = folder / dated_name(started)
        wanted = Wanted(public, keep_missing, earlier[-1] if earlier else None)
        manifest = export_everything(parts, path, wanted, say)
        for each in prune(folder, keep=keep):
            say(f"removed {each.name}")
        note_success(folder, path.name, started=started, ended=utc_now())
    return path, manifest
