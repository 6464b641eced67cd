"""Content-addressed store of the raw logs, in a folder or a bucket. Its content never changes."""

import hashlib
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib.parse import urlsplit

from server.base.errors import UnavailableError
from server.base.settings import Settings

UPLOADS_AT_ONCE = 8
CONNECT_SECONDS = 3
READ_SECONDS = 30
NO_SUCH_KEY = ("NoSuchKey", "404")
REFUSAL = "The artifact store is unavailable; nothing was stored. Try again."
NOTHING = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Staged:
    """A received file, before it is kept."""

    path: Path
    sha256: str
    size_bytes: int


class Bucket:
    """A bucket and a folder in it, as s3://results/logs. boto3 finds the credentials."""

    def __init__(self, url: str, *, endpoint_url: str | None) -> None:
        self.url = url
        parts = urlsplit(url)
        self._bucket, self._folder = parts.netloc, parts.path.strip("/")
        self._client = _make_client(endpoint_url)
        self._has_refused = False

    def put_all(self, files: Collection[Staged]) -> None:
        """Write files under their hashes, each acknowledged. Raises UnavailableError if refused."""
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as uploads:
            list(uploads.map(self._put, files))

    def open(self, sha256: str) -> BinaryIO:
        """Open the content of a hash as a stream. Raises FileNotFoundError or UnavailableError."""
        found = self._ask("get_object", Key=self._key(sha256))
        return cast(BinaryIO, found["Body"])

    def list_all(self) -> Iterator[tuple[str, float]]:
        """Yield each object's hash and time of writing (Unix time). Raises UnavailableError."""
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

        A full or read-only bucket answers too. So after a refused object each check writes an empty
        one, until the bucket takes it. Earlier it would only cost.
        """
        self._ask("head_bucket")
        if self._has_refused:
            self._ask("put_object", Key=self._key(NOTHING), Body=b"")
            self._has_refused = False

    def _put(self, file: Staged) -> None:
        with file.path.open("rb") as body:
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
        # Imported only for a bucket: boto3 is an extra, and slow to import.
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


CHUNK_BYTES = 1024 * 1024
SYNCS_AT_ONCE = 8


class ArtifactStore:
    """Files by the SHA-256 of their content.

    A file is staged, then settled, and kept when its submission is accepted: a discarded file
    leaves nothing behind. Keeping is a rename, so readers only see whole files. A kept file
    outlasts a loss of power. With a `bucket` the folder only holds staged files, and settling
    writes to the bucket.
    """

    def __init__(self, folder: Path, bucket: Bucket | None = None) -> None:
        self.folder = folder
        self.bucket = bucket
        self._syncs = ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync")
        self.incoming = folder / "incoming"
        make_private(folder)  # Logs may be under an embargo.
        make_private(self.incoming)

    def sweep(self, *, older_than_seconds: float) -> None:
        """Remove staged files of a server that died."""
        limit = time.time() - older_than_seconds
        for path in self.incoming.iterdir():
            # Another process may sweep, or keep its staged files, at the same time.
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()

    def stage(self, source: BinaryIO) -> Staged:
        """Copy a stream into the folder of incoming files."""
        path = self.incoming / secrets.token_hex(16)
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("wb") as target:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return Staged(path, digest.hexdigest(), size)

    def settle(self, staged: Collection[Staged]) -> None:
        """Write staged files to disk or bucket, outside transactions. Raises UnavailableError."""
        if self.bucket is not None:
            self.bucket.put_all(staged)
        else:
            self._sync(each.path for each in staged)

    def keep(self, settled: Collection[Staged]) -> None:
        """Move settled files to their final places. The same content is kept once."""
        if not settled:
            return
        if self.bucket is not None:
            for each in settled:
                self.discard(each)
            return
        for each in settled:
            final = self.path_of(each.sha256)
            final.parent.mkdir(exist_ok=True)
            each.path.replace(final)
        self._sync({self.folder, *(self.path_of(each.sha256).parent for each in settled)})

    def _sync(self, paths: Iterable[Path]) -> None:
        """Sync files or folders in parallel: the disk takes several syncs as one."""
        list(self._syncs.map(sync, paths))

    def discard(self, staged: Staged) -> None:
        """Remove a staged file."""
        staged.path.unlink(missing_ok=True)

    def open(self, sha256: str) -> BinaryIO:
        """Open the content of a hash as a stream to be closed. Raises OSError if it is gone."""
        if self.bucket is not None:
            return self.bucket.open(sha256)
        return self.path_of(sha256).open("rb")

    def path_of(self, sha256: str) -> Path:
        """Return the path of a hash's content in the folder."""
        return self.folder / sha256[:2] / sha256


def make_private(folder: Path) -> None:
    """Make a folder of mode 0700, or keep an existing one as it is. Raises FileExistsError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise


def make_store(settings: Settings) -> ArtifactStore:
    """Make the settings' store. Raises RuntimeError if it needs boto3 and boto3 is missing."""
    url, endpoint_url = settings.artifacts_url, settings.s3_endpoint_url
    bucket = Bucket(url, endpoint_url=endpoint_url) if url is not None else None
    return ArtifactStore(settings.artifacts_dir, bucket)


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    """Yield an open file piece by piece, then close it."""
    with closing(source):
        while piece := source.read(CHUNK_BYTES):
            yield piece


def sync(path: Path) -> None:
    """Write a file or a folder's names to the disk."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
