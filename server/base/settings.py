"""The settings of a server: FINISHLINE_* variables, its mail server, its secret files."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from finishline.rules.verification.report_check import CLOCK_SLACK_SECONDS
from server.base import places

PORTS = {"smtp": 25, "starttls": 587, "smtps": 465}


@dataclass(frozen=True)
class MailServer:
    """A mail server. `scheme` is smtp (STARTTLS if it is offered), starttls or smtps (always)."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None

    @property
    def is_loopback(self) -> bool:
        """Whether an unencrypted password stays on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_smtp_url(url: str) -> MailServer:
    """Parse a mail server's URL. Raises ValueError naming the expected form."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(
            "expected smtp://, starttls:// or smtps://, as in smtps://user:pw@host:465"
        )
    return MailServer(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


def read_secret(variable: str, path: str) -> str:
    """Read a secret from a file. Raises RuntimeError naming the variable if it fails."""
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RuntimeError(f"{variable} names a file that cannot be read: {error}") from error
    if not secret:
        raise RuntimeError(f"{variable} names an empty file, {path}: expected a secret in it.")
    return secret


def with_password(url: str, password: SecretStr) -> str:
    """Put a password into an address, in place of any it has."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    secret = quote(password.get_secret_value(), safe="")
    return parts._replace(netloc=f"{user.partition(':')[0]}:{secret}@{host}").geturl()


MIB = 1024 * 1024
DATABASES = ("sqlite://", "postgresql+psycopg://")
# For example "120/minute".
Rate = Annotated[str, Field(pattern=r"^[1-9]\d{0,8}/(second|minute|hour|day)$")]
Allowance = Annotated[int, Field(ge=0)] | Literal["unlimited"]


class SecretFiles(EnvSettingsSource):
    """Settings read from files: FINISHLINE_X_FILE names the file with the value of FINISHLINE_X."""

    def __call__(self) -> dict[str, Any]:
        """Read the settings with a named file. Raises RuntimeError if a file can't be read."""
        variables = {
            name: f"{self.env_prefix}{name}_file".upper() for name in self.settings_cls.model_fields
        }
        return {
            name: read_secret(variable, path)
            for name, variable in variables.items()
            if (path := self.env_vars.get(variable.lower()))
        }


class Settings(BaseSettings):
    """Where things are and how much of them is allowed. The defaults run on one laptop."""

    model_config = SettingsConfigDict(env_prefix="FINISHLINE_", env_ignore_empty=True)

    database_url: str = "sqlite:///var/finishline.db"
    broker_url: str = "redis://127.0.0.1:6379/0"
    # Put into the two addresses above, which then need no secret.
    database_password: SecretStr | None = None
    broker_password: SecretStr | None = None
    artifacts_dir: Path = Path("var/artifacts")
    # A bucket for kept logs, such as s3://results/logs. They are staged in `artifacts_dir` first.
    artifacts_url: str | None = Field(default=None, pattern="^s3://[^/]+")
    s3_endpoint_url: str | None = None
    benchmarks_dir: Path = places.BENCHMARKS
    docs_dir: Path = places.DOCS
    # The server's address in feeds, by default the address of each request.
    public_url: str | None = None
    # In /.well-known/security.txt: an address for reports of weaknesses.
    security_contact: str | None = Field(default=None, pattern=r"^(mailto:|https://|tel:)\S+$")
    # On /install: where the source of this server is.
    source_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    # The private key to sign proofs, by default in the parent of `artifacts_dir`.
    signing_key: Path | None = None
    # Folders of nightly exports and backups: /metrics says when the last of each ended well.
    exports_dir: Path | None = None
    backups_dir: Path | None = None
    code_commit: str | None = Field(default=None, pattern="^[0-9a-f]{7,64}$")

    # Who reads boards, submissions and everything else: everybody, or people with an account.
    reads: Literal["public", "members"] = "public"
    # Whether the console's cookie is for https only. Unset: as the request came, which is http
    # behind a proxy that ends TLS silently.
    secure_cookies: bool | None = None

    max_log_bytes: int = Field(default=64 * MIB, gt=0)
    max_request_bytes: int = Field(default=512 * MIB, gt=0)
    max_json_bytes: int = Field(default=16 * MIB, gt=0)
    max_log_files: int = Field(default=100, gt=0)

    # Rate limits: for each account, or else for each address. Workers have them for each token.
    rate_limits: bool = True
    rate_reads: Rate = "2400/minute"
    rate_writes: Rate = "300/minute"
    rate_worker_posts: Rate = "12000/minute"
    # Room of one process: requests in flight, and how long another waits before it is answered 503.
    max_requests_in_work: int = Field(default=10, gt=0)
    max_wait_seconds: float = Field(default=1.0, gt=0)
    max_body_bytes_in_flight: int = Field(default=256 * MIB, gt=0)
    max_upload_bytes_in_flight: int = Field(default=2048 * MIB, gt=0)
    max_event_streams: int = Field(default=500, gt=0)
    max_event_streams_each: int = Field(default=20, gt=0)
    # Quotas of each user. An organiser can set others for a user.
    quota_submissions_per_day: Allowance = 200
    quota_gpu_seconds_per_month: Allowance = 360_000

    dispatch_interval_seconds: float = Field(default=0.5, gt=0)
    worker_alive_seconds: float = Field(default=20.0, gt=0)
    # How far a report's seconds may be from the server's. A busy machine needs more.
    clock_slack_seconds: float = Field(default=CLOCK_SLACK_SECONDS, ge=0)
    # How long a stopping process says so before it stops: the time a proxy needs.
    drain_seconds: float = Field(default=0.0, ge=0)

    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    # Bearer token for readers of /metrics. Without it anybody may read them.
    metrics_token: SecretStr | None = Field(default=None, min_length=16)

    # Whether webhooks may lead to http and to addresses of an internal network.
    webhook_private_addresses: bool = False
    # smtp://, starttls:// or smtps://user:password@host:port. Without it no mail is sent.
    smtp_url: SecretStr | None = None
    mail_from: str | None = Field(default=None, pattern=r"^[^\r\n@]*[^\r\n@\s<]@[^\r\n@\s]+$")

    # Sign-in with an OpenID provider. For GitHub's OAuth name https://github.com.
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_name: str = Field(default="OpenID", max_length=40)
    oidc_scopes: str = "openid profile email"
    # Whether somebody whom the provider knows becomes a submitter without an invitation.
    self_registration: bool = False

    @model_validator(mode="after")
    def _put_passwords_into_addresses(self) -> Self:
        if self.database_password is not None:
            self.database_url = with_password(self.database_url, self.database_password)
        if self.broker_password is not None:
            self.broker_url = with_password(self.broker_url, self.broker_password)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Prefer arguments to variables, and variables to the files they name."""
        return init_settings, env_settings, SecretFiles(settings_cls)

    @field_validator("database_url")
    @classmethod
    def _is_database(cls, url: str) -> str:
        if not url.startswith(DATABASES):
            raise ValueError(
                "expected sqlite:///folder/finishline.db or "
                "postgresql+psycopg://user:password@host/name"
            )
        return url

    @field_validator("smtp_url")
    @classmethod
    def _is_smtp_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parse_smtp_url(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _mail_has_a_sender(self) -> Self:
        if self.smtp_url is not None and not (self.mail_from and self.public_url):
            raise ValueError("FINISHLINE_SMTP_URL needs FINISHLINE_MAIL_FROM and _PUBLIC_URL too")
        return self

    @model_validator(mode="after")
    def _openid_is_whole(self) -> Self:
        if self.oidc_issuer is None:
            return self
        parts = urlsplit(self.oidc_issuer)
        local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not (parts.hostname and (parts.scheme == "https" or local)):
            raise ValueError("FINISHLINE_OIDC_ISSUER: expected an https address")
        if not (self.oidc_client_id and self.oidc_client_secret):
            raise ValueError("FINISHLINE_OIDC_ISSUER needs _OIDC_CLIENT_ID and _CLIENT_SECRET too")
        return self

    @property
    def signing_key_path(self) -> Path:
        """Path of the private key. Its file is made when something is first signed."""
        return self.signing_key or self.artifacts_dir.parent / "signing-key.pem"


@lru_cache
def get_settings() -> Settings:
    """Return this process's settings. Raises RuntimeError with a sentence per wrong variable."""
    return read_settings()


def read_settings(**own: Any) -> Settings:
    """Read the environment's settings, replaced by given ones. Raises RuntimeError."""
    try:
        return Settings(**own)
    except ValidationError as error:
        raise RuntimeError(_wrong_variables(error)) from None


def _wrong_variables(error: ValidationError) -> str:
    """Name each wrong variable with its expected form. Its value may be a secret."""
    sentences = []
    for each in error.errors(include_input=False, include_url=False):
        name = "_".join(str(part) for part in each["loc"][:1]).upper()
        message = each["msg"].removeprefix("Value error, ")
        sentences.append(f"FINISHLINE_{name}: {message}" if name else message)
    return "; ".join(dict.fromkeys(sentences)) + "."
