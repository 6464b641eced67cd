"""Drafts: forms with their files, kept for an hour between a preview and the request that sends it.

A draft is one file in the waiting room of the store, so the sweep of that room removes it. A user
has one draft: the next replaces it, which bounds the disk that previews take.
"""

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast
from zipfile import ZipFile

from starlette.datastructures import FormData, UploadFile

from server.base.artifacts import ArtifactStore
from server.base.errors import NotFoundError

KEPT_SECONDS = 3600.0
INDEX = "parts.json"
CODE = re.compile(r"[A-Za-z0-9_-]{22}")


def keep_draft(store: ArtifactStore, user_id: int, form: FormData) -> str:
    """Keep a form in place of the user's earlier draft; returns its code."""
    store.sweep(older_than_seconds=KEPT_SECONDS)
    for earlier in store.incoming.glob(f"draft.{user_id}.*"):
        earlier.unlink(missing_ok=True)
    code = secrets.token_urlsafe(16)
    path = _path(store, user_id, code)
    try:
        with ZipFile(path, "w") as kept:
            _write(kept, form)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return code


def _write(kept: ZipFile, form: FormData) -> None:
    """Write the parts by their number: their names are a stranger's."""
    index = []
    for number, (field, value) in enumerate(form.multi_items()):
        if isinstance(value, str):
            index.append({"field": field, "text": value})
            continue
        index.append({"field": field, "filename": value.filename or ""})
        value.file.seek(0)
        with kept.open(str(number), "w", force_zip64=True) as target:
            shutil.copyfileobj(value.file, target)
    kept.writestr(INDEX, json.dumps(index))


@contextmanager
def open_draft(store: ArtifactStore, user_id: int, code: str) -> Iterator[FormData]:
    """The form of a draft. Raises NotFoundError where it is gone, or older than an hour."""
    try:
        path = _path(store, user_id, code)
        if path.stat().st_mtime < time.time() - KEPT_SECONDS:
            raise FileNotFoundError
        kept = ZipFile(path)
    except FileNotFoundError as error:
        raise NotFoundError(
            "These files are no longer kept: they are for an hour, and until you choose others.",
            hint="Choose them again.",
        ) from error
    with kept:
        parts: list[tuple[str, str | UploadFile]] = []
        for number, part in enumerate(json.loads(kept.read(INDEX))):
            parts.append(
                (part["field"], part["text"] if "text" in part else _file(kept, number, part))
            )
        yield FormData(parts)


def _file(kept: ZipFile, number: int, part: dict[str, str]) -> UploadFile:
    entry = kept.getinfo(str(number))
    return UploadFile(
        cast(BinaryIO, kept.open(entry)), size=entry.file_size, filename=part["filename"]
    )


def drop_draft(store: ArtifactStore, user_id: int, code: str) -> None:
    """Remove a draft that was sent."""
    with suppress(FileNotFoundError):
        _path(store, user_id, code).unlink()


def _path(store: ArtifactStore, user_id: int, code: str) -> Path:
    if not CODE.fullmatch(code):
        raise FileNotFoundError
    return store.incoming / f"draft.{user_id}.{code}"
