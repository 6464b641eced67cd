"""`python -m worker.data_sets check

fetch REFERENCE`: the files of a reference on this machine.

Each event is a line of JSON on standard output, and the last one is the answer. The next run
continues an interrupted download. A file gets its name when it is complete and has its published
hash.
"""

import argparse
import http.client
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from finishline.rules.errors import RuleError
from reference_models import DataSetError
from reference_models.cifar10_files import unpack
from reference_models.data import (
    CHUNK_BYTES,
    NEEDS,
    DataFile,
    digest_of,
    how_to_get,
    look_for,
)
from worker.events import tell

# A host fails to respond within half a minute. The next run continues the download.
TIMEOUT_SECONDS = 10.0


def check(reference: str, data_dir: Path) -> bool:
    """Tell of every file and folder. Whether a training can begin."""
    needs = NEEDS.get(reference)
    if needs is None:
        tell("answer", whole=True, how="it reads no files: its data are made or installed")
        return True
    whole = True
    for found in look_for(needs, data_dir, hashed=True):
        whole = whole and found.is_usable
        tell("file", expected=found.expected, **asdict(found))
    tell("answer", whole=whole, how="" if whole else how_to_get(reference, data_dir))
    return whole


def fetch(reference: str, data_dir: Path) -> None:
    """Download the missing files. Raises DataSetError, OSError."""
    needs = NEEDS.get(reference)
    if needs is None:
        return
    if needs.how:
        raise DataSetError(how_to_get(reference, data_dir))
    wanted = {each.name: each for each in (*needs.files, needs.archive) if each is not None}
    for found in list(look_for(needs, data_dir, hashed=True)):
        file = wanted[found.name]
        if found.state == "another file" or (not found.is_usable and file.url is None):
            wrong = needs.folder if file.url is None else file.name
            place = needs.place(data_dir)
            state = ", ".join(filter(None, (found.state, found.digest)))
            raise DataSetError(
                f"{found.name} is {state}; remove {place / wrong} and fetch again",
                file=found.path,
                expected=found.expected or None,
            )
        if not found.is_usable:
            download(file, data_dir)
    if needs.archive is not None and not (data_dir / needs.folder).is_dir():
        unpack(data_dir)


def download(file: DataFile, data_dir: Path) -> None:
    """Download a file, from where an earlier try stopped. Raises DataSetError if it is another."""
    assert file.url is not None  # noqa: S101
    path = data_dir / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    zipped = file.url.endswith(".zip")
    part = path.with_name(file.url.rpartition("/")[2] + ".part" if zipped else path.name + ".part")
    if path.is_file() and not zipped:
        path.replace(part)  # Continue a half-written file from its end.
    try:
        _receive(file.url, part)
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise DataSetError(
            f"{file.url} cannot be read: {why}; fetch again, or get it by hand: "
            f"{file.command(data_dir)}"
        ) from error
    if zipped:
        _take_out(part, path)
    elif (found := digest_of(part, file)) != file.digest:
        part.unlink()
        raise DataSetError(f"{file.url} has {found}", file=str(path), expected=file.digest)
    else:
        part.replace(path)


def _receive(url: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # The file is complete.
            return
        raise
    with answer, part.open("ab" if answer.status == 206 else "wb") as out:
        have = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        while chunk := answer.read(CHUNK_BYTES):
            out.write(chunk)
            have += len(chunk)
            tell("progress", name=part.name.removesuffix(".part"), have=have, total=total)
    if total is not None and have < total:
        raise OSError(f"it stopped at {have:,} of {total:,} bytes")


def _take_out(archive: Path, path: Path) -> None:
    fresh = path.with_name(path.name + ".part")
    try:
        with (
            zipfile.ZipFile(archive) as zipped,
            zipped.open(path.name) as inner,
            fresh.open("wb") as out,
        ):
            shutil.copyfileobj(inner, out)
    except (zipfile.BadZipFile, KeyError) as error:
        archive.unlink()
        raise DataSetError(f"{archive.name} has no whole {path.name}; fetch again") from error
    fresh.replace(path)
    archive.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or fetch; 0 if the data are whole."""
    parser = argparse.ArgumentParser(prog="python -m worker.data_sets")
    parser.add_argument("command", choices=("check", "fetch"))
    parser.add_argument("reference")
    parser.add_argument("--data-dir", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        if given.command == "fetch":
            fetch(given.reference, given.data_dir)
        return 0 if check(given.reference, given.data_dir) else 1
    except (RuleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
