"""Content-addressed store of the raw logs, in a folder or a bucket. Its content never changes."""

import hashlib
import io
import os
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from server.base.bucket import Bucket
from server.base.settings import Settings

CHUNK_BYTES = 1024 * 1024
# A run log of a hundred evaluations has 50 KB; longer content waits in a file.
HELD_BYTES = 256 * 1024
SYNCS_AT_ONCE = 8
# Six logs are on the disk as soon from two threads as from six, and four are spared the hand-over.
WRITTEN_TOGETHER = 3


@dataclass(frozen=True)
class Staged:
    """A file received but not yet kept; a short one is in memory until it is settled."""

    path: Path
    sha256: str
    size_bytes: int
    content: bytes | None = field(default=None, repr=False)

    def read(self) -> bytes:
        """Its whole content."""
        return self.path.read_bytes() if self.content is None else self.content


class ArtifactStore:
    """Files by the SHA-256 of their content.

    A file is staged first, then settled, and kept only when the submission it belongs to is
    accepted: a discarded file leaves nothing behind. Keeping is a rename, so a reader never sees
    half a file. A settled file outlasts a loss of power, at least in the waiting room; even a
    kept one may be found there again (server.submissions.upload).

    With a `bucket`, the folder is the waiting room alone: settling writes to the bucket. A file
    that is then not accepted stays there under its hash, where nothing refers to it.

    A store to read from (`reads_only`) makes no folder.
    """

    def __init__(
        self, folder: Path, bucket: Bucket | None = None, *, reads_only: bool = False
    ) -> None:
        self.folder = folder
        # By the beginning of a hash: there are 256, and to put a path together takes its time.
        self._folders: dict[str, Path] = {}
        self.bucket = bucket
        self._syncs = ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync")
        self._lasting: set[Path] = set()
        self.incoming = folder / "incoming"
        if not reads_only:
            make_private(folder)  # Logs may be under an embargo.
            make_private(self.incoming)

    def sweep(self, *, older_than_seconds: float) -> None:
        """Remove staged files that a server which died left behind."""
        limit = time.time() - older_than_seconds
        for path in self.incoming.iterdir():
            # Another process may sweep, or keep its staged files, at the same time.
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()

    def stage(self, source: BinaryIO) -> Staged:
        """Copy a stream into the store's waiting room, or into memory if it is short."""
        path = self.incoming / secrets.token_hex(16)
        digest, size, chunk = hashlib.sha256(), 0, _beginning(source)
        if len(chunk) <= HELD_BYTES:
            digest.update(chunk)
            return Staged(path, digest.hexdigest(), len(chunk), content=chunk)
        try:
            with path.open("wb") as target:
                while chunk:
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
                    chunk = source.read(CHUNK_BYTES)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return Staged(path=path, sha256=digest.hexdigest(), size_bytes=size)

    def stage_bytes(self, content: bytes) -> Staged:
        """Stage content that is in memory, as `stage` does for a stream."""
        return self.stage(io.BytesIO(content))

    def settle(self, staged: Collection[Staged]) -> Collection[Staged]:
        """Write staged files to the disk; those that are to be kept.

        It is slow, so it comes before the transaction. Content that is already kept under its hash
        is not written again. Raises UnavailableError if the bucket does not take them.
        """
        if self.bucket is not None:
            self.bucket.put_all(staged)
            return staged
        missing = [each for each in staged if not self.path_of(each.sha256).exists()]
        starts = range(0, len(missing), WRITTEN_TOGETHER)
        together = [missing[start : start + WRITTEN_TOGETHER] for start in starts]
        list(self._syncs.map(_write_out, together))
        if missing:
            self._sync_folders({self.incoming})
        return missing

    def keep(self, settled: Collection[Staged]) -> None:
        """Move settled files to their final places; the same content is kept once.

        Others wait for the transaction that this is in, so the disk is asked for nothing else and
        is not waited for: when the power fails, a file is in its final place or still in the
        waiting room. Where another request has kept the same content since, it is replaced.
        """
        for each in settled:
            if self.bucket is None:
                self.move_in(each.path, each.sha256)
            else:
                self.discard(each)

    def move_in(self, path: Path, sha256: str) -> None:
        """Move a file of the waiting room, of this hash, to its final place."""
        final = self.path_of(sha256)
        try:
            path.replace(final)
        except FileNotFoundError:
            final.parent.mkdir(exist_ok=True)
            path.replace(final)

    def write_places(self, staged: Collection[Staged]) -> None:
        """Write to the disk where files are kept, for a folder that nobody looks after later."""
        if self.bucket is None:
            self._sync_folders({self._folder_of(each.sha256) for each in staged})

    def _sync_folders(self, folders: set[Path]) -> None:
        """Write folders to the disk, at the same time: a disk takes several as one.

        That a folder is there at all is written once: folders never go.
        """
        unsure = folders - self._lasting
        wanted = folders | {self.folder} if unsure else folders
        list(map(sync, wanted) if len(wanted) == 1 else self._syncs.map(sync, wanted))
        self._lasting |= unsure

    def discard(self, staged: Staged) -> None:
        """Remove a staged file that is not wanted."""
        staged.path.unlink(missing_ok=True)

    def open(self, sha256: str) -> BinaryIO:
        """Open the content of a hash as a stream to be closed. Raises OSError if it is gone."""
        if self.bucket is not None:
            return self.bucket.open(sha256)
        return self.path_of(sha256).open("rb")

    def path_of(self, sha256: str) -> Path:
        """Path in the folder of the content of a hash."""
        return self._folder_of(sha256) / sha256

    def _folder_of(self, sha256: str) -> Path:
        beginning = sha256[:2]
        folder = self._folders.get(beginning)
        if folder is None:
            folder = self._folders[beginning] = self.folder / beginning
        return folder


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone may look into. One that exists keeps its mode.

    Raises FileExistsError for a file, or a link to nothing, of that name.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise


def make_store(settings: Settings) -> ArtifactStore:
    """The store that the settings name. Raises RuntimeError where boto3 is needed and missing."""
    url, endpoint_url = settings.artifacts_url, settings.s3_endpoint_url
    bucket = Bucket(url, endpoint_url=endpoint_url) if url is not None else None
    return ArtifactStore(settings.artifacts_dir, bucket)


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    """The content of an open file, piece by piece; it is closed at the end."""
    with closing(source):
        while piece := source.read(CHUNK_BYTES):
            yield piece


def _beginning(source: BinaryIO) -> bytes:
    """Read up to HELD_BYTES + 1 bytes: a longer result shows that the stream needs a file."""
    read = b""
    while len(read) <= HELD_BYTES and (more := source.read(HELD_BYTES + 1 - len(read))):
        read += more
    return read


def _write_out(staged: Sequence[Staged]) -> None:
    for each in staged:
        if each.content is None:
            sync(each.path)
            continue
        with each.path.open("wb") as target:
            target.write(each.content)
            target.flush()
            os.fsync(target.fileno())


def sync(path: Path) -> None:
    """Write a file or a folder's names to the disk."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
