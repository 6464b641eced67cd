"""Which revision the database is at, and which one this code was written for.

A server asks both at its start. Alembic would answer too, but importing it takes a twelfth of the
start's time, so only migrations use it (server.base.schema), and a test checks that both agree.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

from server.base.database import Database
from server.base.places import MIGRATIONS

# As migrations/script.py.mako writes them: `revision: str = "0007"`.
_REVISION = re.compile(r"^revision\b[^=\n]*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
_DOWN_REVISION = re.compile(r"^down_revision\b[^=\n]*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


def newest_revision(folder: Path = MIGRATIONS) -> str:
    """Newest revision: the one that no other migration of the folder comes after.

    Raises RuntimeError if there is none, or more than one.
    """
    texts = [path.read_text(encoding="utf-8") for path in (folder / "versions").glob("*.py")]
    heads = set(_found(_REVISION, texts)) - set(_found(_DOWN_REVISION, texts))
    if len(heads) != 1:
        raise RuntimeError(
            f"{folder / 'versions'} must have one newest migration, it has: "
            f"{', '.join(sorted(heads)) or 'none'}."
        )
    return heads.pop()


def _found(pattern: re.Pattern[str], texts: Iterable[str]) -> Iterable[str]:
    return (match[1] for text in texts if (match := pattern.search(text)) is not None)


def current_revision(database: Database) -> str | None:
    """The revision the database is at, None if it is empty."""
    with database.engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found


def require_current_schema(database: Database) -> str:
    """The database's revision, if it is the one this code was written for.

    Raises RuntimeError, which names the remedy, if it is another.
    """
    named = f"the database that FINISHLINE_DATABASE_URL names, {database.name}"
    if database.is_missing():
        raise RuntimeError(
            f"There is no file of {named}. Is it the server's? 'python -m server.admin migrate' "
            "makes one."
        )
    try:
        wanted, found = newest_revision(), current_revision(database)
    except OperationalError as error:
        told = " ".join(str(error.orig).split())
        raise RuntimeError(f"T{named[1:]}, does not answer: {told}") from error
    if found is None or found != wanted:
        raise RuntimeError(
            f"T{named[1:]}, is at revision {found or '(empty)'}, this server needs {wanted}: "
            "run 'python -m server.admin migrate' first."
        )
    return found
