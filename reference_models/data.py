"""Files that references train on: their places below the data folder, sizes and published hashes.

A training looks whether they are there before it prepares, by their sizes alone: it opens no data
before the clock starts. `finishline data check` compares the hashes too.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reference_models import DataSetError, cifar10_files, imagenet_files, squad_files

State = Literal["as published", "here", "missing", "half there", "another file"]
CHUNK_BYTES = 1 << 20
GLOVE = "glove.6B.100d.txt"
GLOVE_URL = "https://nlp.stanford.edu/data/glove.6B.zip"
# torchvision unpacks the archives and sorts the validation pictures into folders by class.
IMAGENET = (
    "ImageNet may not be passed on: get ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
    "ILSVRC2012_devkit_t12.tar.gz at https://www.image-net.org/download.php, put them into "
    '{folder} and run: python -c "from torchvision.datasets import ImageNet as I; '
    "[I('{folder}', part) for part in ('train', 'val')]\""
)
CORPUS = "any text file of yours, as {folder}/corpus.txt; its hash may lie beside it"


@dataclass(frozen=True)
class DataFile:
    """A file by its name below the data folder; its digest is `sha256:...` or `md5:...`.

    `url` is where it is published, as it is or in a zip. With `setting` it is needed unless that
    hyperparameter is 0.
    """

    name: str
    size_bytes: int | None = None
    digest: str | None = None
    url: str | None = None
    setting: str | None = None


@dataclass(frozen=True)
class Needs:
    """Files of a reference, or the `archive` that it unpacks; folders of 1,000 classes; and words
    on how to get them where they cannot be fetched.
    """

    folder: str
    files: tuple[DataFile, ...] = ()
    archive: DataFile | None = None
    class_folders: tuple[str, ...] = ()
    how: str = ""


@dataclass(frozen=True)
class Found:
    """A file or folder as it lies there."""

    name: str
    state: State
    size_bytes: int = 0
    expected: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether a training can begin with it."""
        return self.state in {"as published", "here"}


def _squad_file(file: squad_files.PublishedFile) -> DataFile:
    name, url = f"squad/{file.name}", f"{squad_files.SOURCE}/{file.name}"
    return DataFile(name, file.size_bytes, f"sha256:{file.sha256}", url)


NEEDS: Mapping[str, Needs] = {
    "cifar10": Needs(
        cifar10_files.FOLDER,
        tuple(
            DataFile(f"{cifar10_files.FOLDER}/{name}", digest=f"md5:{md5}")
            for name, md5 in (cifar10_files.TRAIN_MD5 | cifar10_files.TEST_MD5).items()
        ),
        DataFile(
            cifar10_files.ARCHIVE,
            cifar10_files.ARCHIVE_BYTES,
            f"sha256:{cifar10_files.ARCHIVE_SHA256}",
            cifar10_files.ARCHIVE_URL,
        ),
    ),
    "squad": Needs(
        "squad",
        (
            _squad_file(squad_files.TRAIN_FILE),
            _squad_file(squad_files.TEST_FILE),
            DataFile(f"squad/{GLOVE}", url=GLOVE_URL, setting="pretrained_vectors"),
        ),
    ),
    "imagenet": Needs(
        imagenet_files.FOLDER,
        class_folders=(f"{imagenet_files.FOLDER}/train", f"{imagenet_files.FOLDER}/val"),
        how=IMAGENET,
    ),
    "text": Needs("text", (DataFile("text/corpus.txt"),), how=CORPUS),
}


def look_for(
    needs: Needs, data_dir: Path, *, hashed: bool, settings: Mapping[str, float] | None = None
) -> Iterator[Found]:
    """How each file and folder lies there; with `hashed` its content is read and compared."""
    archive = needs.archive
    if archive is not None and not (data_dir / needs.folder).is_dir():
        yield _look_at(archive, data_dir, hashed=hashed)
        return
    for file in needs.files:
        if file.setting is None or (settings or {}).get(file.setting, 1) != 0:
            yield _look_at(file, data_dir, hashed=hashed)
    for name in needs.class_folders:
        folder = data_dir / name
        classes = sum(each.is_dir() for each in folder.iterdir()) if folder.is_dir() else 0
        wanted = f"{imagenet_files.CLASSES:,} class folders"
        state: State = "missing" if not classes else "half there"
        if classes == imagenet_files.CLASSES:
            state = "here"
        yield Found(name, state, expected=wanted)


def require_data(reference: str, data_dir: Path, settings: Mapping[str, float]) -> None:
    """Raise DataSetError if a file is not there or not whole; none is opened."""
    needs = NEEDS.get(reference)
    if needs is None:
        return
    for found in look_for(needs, data_dir, hashed=False, settings=settings):
        if not found.is_usable:
            raise DataSetError(
                f"{found.name} is {found.state} in {data_dir}: {how_to_get(reference, data_dir)}",
                file=str(data_dir / found.name),
                field="data_set.name",
                expected=found.expected or "a file",
            )


def how_to_get(reference: str, data_dir: Path) -> str:
    """One sentence on how to get the data of a reference."""
    needs = NEEDS[reference]
    if needs.how:
        return needs.how.format(folder=data_dir / needs.folder)
    return f"get it with `finishline data fetch {reference} --data {data_dir}`"


def _look_at(file: DataFile, data_dir: Path, *, hashed: bool) -> Found:
    path = data_dir / file.name
    wanted = "" if file.size_bytes is None else f"{file.size_bytes:,} bytes"
    if not path.is_file():
        return Found(file.name, "missing", expected=wanted)
    size = path.stat().st_size
    if size == 0 or (file.size_bytes is not None and size < file.size_bytes):
        return Found(file.name, "half there", size, wanted)
    if not hashed or file.digest is None:
        return Found(file.name, "here", size)
    if digest_of(path, file.digest) != file.digest:
        return Found(file.name, "another file", size, file.digest)
    return Found(file.name, "as published", size)


def digest_of(path: Path, like: str) -> str:
    """The digest of a file by the algorithm of another one."""
    algorithm, _, _ = like.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"
