"""A proof and its files as one zip: the same bundle is the same bytes."""

import shutil
import zipfile
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import IO

from finishline.rules.proof.proof import LOGS_FOLDER, PROOF_NAME
from server.artifacts import CHUNK_BYTES, ArtifactStore
from server.errors import LostFileError
from server.settings import MIB

# A zip must say when a file was made; the earliest moment it can say is the same every time.
MOMENT = (1980, 1, 1, 0, 0, 0)
IN_MEMORY_BYTES = 8 * MIB


def write_bundle(proof: bytes, files: Iterable[str], artifacts: ArtifactStore) -> IO[bytes]:
    """The zip of a proof and of the stored files of these hashes, to be read from its beginning.

    Raises LostFileError naming a file that the store has lost.
    """
    target = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  the caller closes it
    try:
        with zipfile.ZipFile(target, "w") as bundle:
            bundle.writestr(_entry(PROOF_NAME), proof)
            for sha256 in sorted(set(files)):
                _add(bundle, sha256, artifacts)
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def _add(bundle: zipfile.ZipFile, sha256: str, artifacts: ArtifactStore) -> None:
    try:
        source = artifacts.open(sha256)
    except OSError as error:
        raise LostFileError(sha256) from error
    with source, bundle.open(_entry(LOGS_FOLDER + sha256), "w") as target:
        shutil.copyfileobj(source, target, CHUNK_BYTES)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    entry.create_system = 3
    return entry
