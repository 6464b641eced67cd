"""Files that references train on: their places below the data folder, sizes and published hashes.

A training looks whether they are there before it prepares, by their sizes alone: it opens no data
before the clock starts. `finishline benchmark fetch --check` compares the hashes too.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

from reference_models import DataSetError, cifar10_files, imagenet_files, squad_files

State = Literal["as published", "here", "missing", "half there", "another file"]
CHUNK_BYTES = 1 << 20
GLOVE = "glove.6B.100d.txt"
GLOVE_URL = "https://nlp.stanford.edu/data/glove.6B.zip"
IMAGENET = (
    "ImageNet may not be passed on: get ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
    "ILSVRC2012_devkit_t12.tar.gz at https://www.image-net.org/download.php and put them into "
    "{folder}. This unpacks them and sorts the 50,000 pictures of the validation archive into "
    'folders by class: python -c "from torchvision.datasets import ImageNet as I; '
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

    def command(self, data_dir: Path) -> str | None:
        """The command of a shell that gets the file, None where it is published nowhere."""
        if self.url is None:
            return None
        path = data_dir / self.name
        zipped = self.url.endswith(".zip")
        to = path.with_name(self.url.rpartition("/")[2]) if zipped else path
        got = f"curl --create-dirs -fL -o {quote(str(to))} {self.url}"
        out = quote(str(path.parent))
        return f"{got} && unzip -j {quote(str(to))} {path.name} -d {out}" if zipped else got


@dataclass(frozen=True)
class Needs:
    """Files of a reference, or the `archive` that it unpacks; folders of 1,000 classes with their
    number of pictures; and words on how to get them where they cannot be fetched.
    """

    folder: str
    files: tuple[DataFile, ...] = ()
    archive: DataFile | None = None
    class_folders: Mapping[str, int] = field(default_factory=dict)
    how: str = ""


@dataclass(frozen=True)
class Found:
    """A file or folder as it lies there, and as it should be.

    A digest is found where the content was read; `pictures` are those in a folder of classes.
    `command` gets the file.
    """

    name: str
    state: State
    path: str
    size_bytes: int = 0
    expected_bytes: int | None = None
    digest: str | None = None
    expected_digest: str | None = None
    pictures: int | None = None
    expected_pictures: int | None = None
    command: str | None = None

    @property
    def expected(self) -> str:
        """The size or number of pictures, and the hash, in words; empty where none is known."""
        classes = f"{imagenet_files.CLASSES:,} class folders"
        words = (
            None if self.expected_bytes is None else f"{self.expected_bytes:,} bytes",
            self.expected_digest,
            None
            if self.expected_pictures is None
            else f"{self.expected_pictures:,} pictures in {classes}",
        )
        return ", ".join(filter(None, words))

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
        class_folders={
            f"{imagenet_files.FOLDER}/train": imagenet_files.TRAINING_PICTURES,
            f"{imagenet_files.FOLDER}/val": imagenet_files.VALIDATION_PICTURES,
        },
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
    for name, pictures in needs.class_folders.items():
        yield _look_into(name, pictures, data_dir, counted=hashed)


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


def _look_into(name: str, expected: int, data_dir: Path, *, counted: bool) -> Found:
    """A folder of classes; its pictures are `counted`, or only its classes."""
    folder = data_dir / name
    classes = [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
    pictures = sum(1 for each in classes for _ in each.iterdir()) if counted else None
    state: State = "missing" if not classes else "half there"
    if len(classes) == imagenet_files.CLASSES and pictures in (None, expected):
        state = "here"
    return Found(name, state, str(folder), pictures=pictures, expected_pictures=expected)


def how_to_get(reference: str, data_dir: Path) -> str:
    """One sentence on how to get the data of a reference."""
    needs = NEEDS[reference]
    if needs.how:
        return needs.how.format(folder=data_dir / needs.folder)
    return f"get it with `finishline benchmark fetch {reference} --data {data_dir}`"


def _look_at(file: DataFile, data_dir: Path, *, hashed: bool) -> Found:
    path = data_dir / file.name
    there = path.is_file()
    size = path.stat().st_size if there else 0
    found = digest_of(path, file.digest) if there and hashed and file.digest else None
    state: State = "here" if found is None else "as published"
    if not there:
        state = "missing"
    elif size == 0 or (file.size_bytes is not None and size < file.size_bytes):
        state = "half there"
    elif found != file.digest and found is not None:
        state = "another file"
    return Found(
        name=file.name,
        state=state,
        path=str(path),
        size_bytes=size,
        expected_bytes=file.size_bytes,
        digest=found,
        expected_digest=file.digest,
        command=file.command(data_dir),
    )


def digest_of(path: Path, like: str) -> str:
    """The digest of a file by the algorithm of another one."""
    algorithm, _, _ = like.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"
