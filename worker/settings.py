"""Settings of a worker from its environment: `FINISHLINE_*`, read once. And its log lines.

Log lines are for people or JSON, and name the ids of the attempt under way.
"""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from finishline.rules.verification.messages import ReplayJob
from finishline.service_log import JsonFormatter, TextFormatter, log_to_stderr


class Settings(BaseSettings):
    """The settings of one worker process.

    `hardware_class` and `device` are probed if unset. `threads` is how many processor threads a
    training may use (on a CPU only one thread is steady). `processes` is over how many processes it
    is spread, each with its own GPU. `measure` selects the worker's measurements of itself: all of
    them, the roofs in the background, or none.

    `image_digest` names the worker's container image. `stop_grace_seconds` is how long an attempt
    may go on after SIGTERM. With `entries` "auto" a worker trains code submissions if its sandbox
    holds: bubblewrap, or with `box` "oci" a container. With `compiler` "gcc" each environment comes
    once more with gcc.
    """

    model_config = SettingsConfigDict(env_prefix="FINISHLINE_", frozen=True)

    broker_url: str | None = None
    broker_password_file: Path | None = None
    server_url: str = "http://127.0.0.1:8000"
    worker_token: SecretStr | None = None
    worker_token_file: Path | None = None
    worker_name: str = socket.gethostname()
    hardware_class: str | None = None
    data_dir: Path = Path("var/data")
    device: str | None = None
    threads: int = 1
    processes: int = Field(default=1, ge=1)
    measure: Literal["all", "roofs", "off"] = "all"
    image_digest: str | None = None
    stop_grace_seconds: float = Field(default=0.0, ge=0)
    entries: Literal["auto", "off"] = "auto"
    box: Literal["bwrap", "oci"] = "bwrap"
    compiler: Literal["off", "gcc"] = "off"
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("server_url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return url.rstrip("/")

    def broker_address(self) -> str:
        """Return the broker's address with the password from its file, or stop with a sentence."""
        if not self.broker_url:
            sys.exit(
                "FINISHLINE_BROKER_URL is missing: expected the broker's address, which an "
                "organiser gets by `python -m server.admin worker-account NAME`; or start the "
                "worker with --pull, and it asks the server itself for work"
            )
        if self.broker_password_file is None:
            return self.broker_url
        try:
            password = quote(self.broker_password_file.read_text().strip(), safe="")
        except OSError as error:
            sys.exit(f"FINISHLINE_BROKER_PASSWORD_FILE cannot be read: {error}")
        parts = urlsplit(self.broker_url)
        user, _, host = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{host}").geturl()

    def token(self) -> str:
        """Return the worker's bearer token. Stops the program with a sentence if it is missing."""
        if self.worker_token is not None:
            return self.worker_token.get_secret_value()
        if self.worker_token_file is None:
            sys.exit(
                "no worker token: set FINISHLINE_WORKER_TOKEN, or FINISHLINE_WORKER_TOKEN_FILE to "
                "a file that holds it; an organiser makes one with "
                "`python -m server.admin token --user NAME --role worker`"
            )
        try:
            return self.worker_token_file.read_text().strip()
        except OSError as error:
            sys.exit(f"FINISHLINE_WORKER_TOKEN_FILE cannot be read: {error}")


def load_settings() -> Settings:
    """Read the settings of this process. Stops it with a sentence about a missing variable."""
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(
            f"FINISHLINE_{'_'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}"
            for problem in error.errors()
        )
        sys.exit(f"the worker's settings are incomplete: {problems}")


# One attempt is made at a time, and every thread of the process writes about it.
_under_way: dict[str, str] = {}


@contextmanager
def attempt_in_logs(job: ReplayJob) -> Iterator[None]:
    """Name a job's ids in every line until the block ends."""
    ids = {"attempt_id": job.attempt_id, "verification_id": job.verification_id}
    _under_way.update(ids)
    if job.submission_id is not None:
        _under_way["submission_id"] = job.submission_id
    try:
        yield
    finally:
        _under_way.clear()


FORMATTERS: dict[str, Callable[[], TextFormatter]] = {
    "text": partial(TextFormatter, lambda _: _under_way),
    "json": partial(JsonFormatter, lambda _: _under_way),
}


def configure_logging(settings: Settings) -> None:
    """Send every line to stderr in the format and from the level of the settings."""
    formatter = FORMATTERS[settings.log_format]()
    log_to_stderr(formatter, settings.log_level, own=("worker",), talkative=("httpx2",))
