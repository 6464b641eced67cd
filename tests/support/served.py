"""The application of a folder with an admin's token: the one place where sweeps name the server."""

from contextlib import contextmanager

from fastapi.testclient import TestClient

from server.app import create_app
from server.base.database import Database
from server.base.schema import migrate
from server.base.settings import MIB, Settings
from server.people.accounts import create_token


@contextmanager
def served(folder, **changes):
    """A server with its threads and small limits: its client, and the token of an admin, ada."""
    limits = {"max_log_bytes": MIB, "max_request_bytes": 4 * MIB, "max_json_bytes": MIB}
    settings = Settings(
        database_url=f"sqlite:///{folder / 'finishline.db'}",
        artifacts_dir=folder / "artifacts",
        max_log_files=5,
        rate_limits=False,
        **limits,
        **changes,
    )
    database = Database(settings.database_url)
    migrate(database)
    with database.write() as session:
        made = create_token(session, user_name="ada", role="admin", expires_in=None)
    database.close()
    with TestClient(create_app(settings)) as client:
        yield client, made.secret
