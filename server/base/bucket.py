"""Raw logs in an S3-compatible bucket, by the SHA-256 of their content."""

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit

from server.base.errors import UnavailableError

UPLOADS_AT_ONCE = 8
CONNECT_SECONDS = 3
READ_SECONDS = 30
NO_SUCH_KEY = ("NoSuchKey", "404")
REFUSAL = "The artifact store is unavailable; nothing was stored. Try again."
NOTHING = hashlib.sha256(b"").hexdigest()


class Content(Protocol):
    """Content to write: its bytes, or the path of a file that has them."""

    @property
    def path(self) -> Path: ...

    @property
    def sha256(self) -> str: ...

    @property
    def content(self) -> bytes | None: ...


class Bucket:
    """A bucket, and the folder in it, that an address such as s3://results/logs names.

    Credentials come from where boto3 looks for them: AWS_* variables, a shared credentials file, or
    the role of the machine. An object is written whole or not at all, and never changed.
    """

    def __init__(self, url: str, *, endpoint_url: str | None) -> None:
        self.url = url
        parts = urlsplit(url)
        self._bucket, self._folder = parts.netloc, parts.path.strip("/")
        self._client = _make_client(endpoint_url)
        self._has_refused = False

    def put_all(self, files: Collection[Content]) -> None:
        """Write files under their hashes; when it returns the bucket has acknowledged them all.

        Raises UnavailableError if the bucket does not take them.
        """
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as uploads:
            list(uploads.map(self._put, files))

    def open(self, sha256: str) -> BinaryIO:
        """The content of a hash as a stream. Raises FileNotFoundError or UnavailableError."""
        found = self._ask("get_object", Key=self._key(sha256))
        return cast(BinaryIO, found["Body"])

    def list_all(self) -> Iterator[tuple[str, float]]:
        """The hash of every object and when it was written (Unix time), in order of the hashes.

        Raises UnavailableError. It takes the right to list the bucket.
        """
        more: dict[str, str] = {}
        prefix = f"{self._folder}/" if self._folder else ""
        while True:
            found = self._ask("list_objects_v2", Prefix=prefix, **more)
            for each in found.get("Contents", ()):
                yield each["Key"].rsplit("/", 1)[-1], each["LastModified"].timestamp()
            if not found.get("IsTruncated"):
                return
            more = {"ContinuationToken": found["NextContinuationToken"]}

    def check(self) -> None:
        """Raise UnavailableError unless the bucket answers and may be used.

        One without room, or without the right to write, answers all the same. Since it refused an
        object it is given one each time, of no bytes, until it takes it; before, that would only
        cost.
        """
        self._ask("head_bucket")
        if self._has_refused:
            self._ask("put_object", Key=self._key(NOTHING), Body=b"")
            self._has_refused = False

    def _put(self, file: Content) -> None:
        with contextlib.ExitStack() as opened:
            held = file.content
            body = held if held is not None else opened.enter_context(file.path.open("rb"))
            try:
                self._ask("put_object", Key=self._key(file.sha256), Body=body)
            except UnavailableError:
                self._has_refused = True
                raise

    def _key(self, sha256: str) -> str:
        return "/".join(part for part in (self._folder, sha256[:2], sha256) if part)

    def _ask(self, operation: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        except ClientError as error:
            if operation == "get_object" and error.response["Error"]["Code"] in NO_SUCH_KEY:
                raise FileNotFoundError(2, f"not in {self.url}", arguments["Key"]) from error
            raise UnavailableError(REFUSAL, cause=f"{self.url}: {error}") from error
        except BotoCoreError as error:
            raise UnavailableError(REFUSAL, cause=f"{self.url}: {error}") from error


def _make_client(endpoint_url: str | None) -> Any:
    try:
        # Loaded only where a bucket is used: it is an extra of its own and takes its time.
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise RuntimeError(
            "FINISHLINE_ARTIFACTS_URL names a bucket, which takes boto3: "
            "pip install 'finishline-server[s3]'."
        ) from error
    settings = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "max_attempts": 3},
        max_pool_connections=2 * UPLOADS_AT_ONCE,
    )
    return boto3.client("s3", endpoint_url=endpoint_url, config=settings)
