"""The raw logs: a content-addressed store in a folder. What is in it never changes."""

import hashlib
import io
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Staged:
    """A file received but not yet kept."""

    path: Path
    sha256: str
    size_bytes: int

    def read(self) -> bytes:
        """Its whole content."""
        return self.path.read_bytes()


class ArtifactStore:
    """Files by the SHA-256 of their content.

    A file is staged first, and kept only when the submission it belongs to is accepted: what is
    discarded leaves nothing behind. Keeping is a rename, so a reader never sees half a file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.incoming = folder / "incoming"
        self.incoming.mkdir(parents=True, exist_ok=True)

    def sweep(self, *, older_than_seconds: float) -> None:
        """Remove staged files that a server which died left behind."""
        limit = time.time() - older_than_seconds
        for path in self.incoming.iterdir():
            if path.stat().st_mtime < limit:
                path.unlink(missing_ok=True)

    def stage(self, source: BinaryIO) -> Staged:
        """Copy a stream into the store's waiting room."""
        path = self.incoming / secrets.token_hex(16)
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("wb") as target:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return Staged(path=path, sha256=digest.hexdigest(), size_bytes=size)

    def stage_bytes(self, content: bytes) -> Staged:
        """As `stage`, for content that is in memory."""
        return self.stage(io.BytesIO(content))

    def keep(self, staged: Staged) -> bool:
        """Move a staged file to its final place; False if the same content is there already."""
        final = self.path_of(staged.sha256)
        if final.exists():
            staged.path.unlink(missing_ok=True)
            return False
        final.parent.mkdir(parents=True, exist_ok=True)
        staged.path.replace(final)
        return True

    def discard(self, staged: Staged) -> None:
        """Remove a staged file that is not wanted."""
        staged.path.unlink(missing_ok=True)

    def path_of(self, sha256: str) -> Path:
        """Where content of this hash lies."""
        return self.folder / sha256[:2] / sha256
