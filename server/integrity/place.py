"""Are these the settings of the server whose database this is?

`check`, `export` and `backup` sign, or list a key: with another server's database and a folder of
their own they would make one, list it among the server's for good, and call every log lost.
"""

import argparse

from sqlalchemy import select

from server.dependencies import Parts
from server.models import RunRow
from server.viewer import ORGANISER

WHO_LOOK = ("check", "export", "backup")
# Whoever asks for one of these knows that logs are lost, or leaves them to the bucket.
DO_WITHOUT = ("no_files", "keep_missing", "without_logs")
LOOKED_AT = 20


def look_first(parts: Parts, arguments: argparse.Namespace) -> None:
    """What an administrator's command asks before it begins. Raises RuntimeError."""
    asked = any(getattr(arguments, option, False) for option in DO_WITHOUT)
    if arguments.command in WHO_LOOK and not asked:
        require_its_logs(parts)


def require_its_logs(parts: Parts) -> None:
    """Raises RuntimeError where a folder of logs has none of the first that the database names."""
    store = parts.artifacts
    if store.bucket is not None:
        return
    with parts.database.read(ORGANISER) as session:
        names = session.scalars(select(RunRow.log_sha256).limit(LOOKED_AT)).all()
    if names and not any(store.path_of(name).exists() for name in names):
        raise RuntimeError(
            f"No log that {parts.database.name} names is in {store.folder}: "
            "is FINISHLINE_ARTIFACTS_DIR the server's? Nothing was done. Where they are lost, "
            "restore a backup; `check --no-files` and `--keep-missing` of the others do without."
        )
