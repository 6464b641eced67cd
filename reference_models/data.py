"""Files that references train on: their places below the data folder, sizes and published hashes.

A training looks whether they are there before it prepares, by their sizes alone: it opens no data
before the clock starts. `finishline benchmark fetch --check` compares the hashes too.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

from reference_models import DataSetError, imagenet_files

State = Literal["as published", "here", "missing", "half there", "another file"]
CHUNK_BYTES = 1 << 20
# MD5 of the archive's files in torchvision.datasets.CIFAR10. Its SHA-256 in keras.datasets.cifar10.
CIFAR10_FOLDER = "cifar-10-batches-py"
CIFAR10_ARCHIVE = "cifar-10-python.tar.gz"
CIFAR10_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CIFAR10_BATCHES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
# Sizes that loaders of SQuAD v1.1 check, and the SHA-256 of parlai/tasks/squad/build.py in ParlAI.
# Its publisher states no hash.
SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
GLOVE = "https://nlp.stanford.edu/data/glove.6B.zip"
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
    """A file by its name below the data folder. Its digest is `sha256:...` or `md5:...`.

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
    """Files of a reference, or the `archive` that it unpacks. Folders of 1,000 classes with their
    number of pictures. And words on how to get them where they cannot be fetched.
    """

    folder: str
    files: tuple[DataFile, ...] = ()
    archive: DataFile | None = None
    class_folders: Mapping[str, int] = field(default_factory=dict)
    how: str = ""


@dataclass(frozen=True)
class Found:
    """A file or folder as it lies there, and as it should be.

    A digest is found where the content was read. `pictures` are those in a folder of classes.
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
        """The size or number of pictures, and the hash, in words. Empty where none is known."""
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


NEEDS: Mapping[str, Needs] = {
    "cifar10": Needs(
        CIFAR10_FOLDER,
        tuple(
            DataFile(f"{CIFAR10_FOLDER}/{name}", digest=f"md5:{md5}")
            for name, md5 in CIFAR10_BATCHES.items()
        ),
        DataFile(
            CIFAR10_ARCHIVE,
            170_498_071,
            f"sha256:{CIFAR10_SHA256}",
            f"https://www.cs.toronto.edu/~kriz/{CIFAR10_ARCHIVE}",
        ),
    ),
    "squad": Needs(
        "squad",
        (
            DataFile(
                "squad/train-v1.1.json",
                30_288_272,
                "sha256:3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
                f"{SQUAD}/train-v1.1.json",
            ),
            DataFile(
                "squad/dev-v1.1.json",
                4_854_279,
                "sha256:95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
                f"{SQUAD}/dev-v1.1.json",
            ),
            DataFile("squad/glove.6B.100d.txt", url=GLOVE, setting="pretrained_vectors"),
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
    """How each file and folder lies there. With `hashed` its content is read and compared."""
    archive = needs.archive
    if archive is not None and not (data_dir / needs.folder).is_dir():
        yield _look_at(archive, data_dir, hashed=hashed)
        return
    for file in needs.files:
        if file.setting is None or (settings or {}).get(file.setting, 1) != 0:
            yield _look_at(file, data_dir, hashed=hashed)
    for name, pictures in needs.class_folders.items():
        yield _look_into(name, pictures, data_dir, counted=hashed)


def require_data(
    reference: str, data_dir: Path, settings: Mapping[str, float], *, hashed: bool = False
) -> None:
    """Raise DataSetError if a file is not there or not whole. None is opened unless `hashed`."""
    needs = NEEDS.get(reference)
    if needs is None:
        return
    for found in look_for(needs, data_dir, hashed=hashed, settings=settings):
        _require(found, reference, data_dir)


def read_whole(reference: str, file: DataFile, data_dir: Path) -> bytes:
    """The content of a file. Raises DataSetError if it is missing or not as published."""
    path = data_dir / file.name
    content = path.read_bytes() if path.is_file() else b""
    digest = file.digest and _digest_of([content], file.digest)
    _require(_found(file, data_dir, digest), reference, data_dir)
    return content


def _require(found: Found, reference: str, data_dir: Path) -> None:
    if found.is_usable:
        return
    wrong = f"; remove {found.path}" if found.state == "another file" else ""
    raise DataSetError(
        f"{found.name} is {found.state} in {data_dir}{wrong}: {how_to_get(reference, data_dir)}",
        file=str(data_dir / found.name),
        field="data_set.name",
        expected=found.expected or "a file",
    )


def _look_into(name: str, expected: int, data_dir: Path, *, counted: bool) -> Found:
    """A folder of classes. Its pictures are `counted`, or only its classes."""
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
    there = hashed and file.digest and path.is_file()
    return _found(file, data_dir, digest_of(path, file.digest) if there and file.digest else None)


def _found(file: DataFile, data_dir: Path, digest: str | None) -> Found:
    """A file as it lies there. Its content has this digest, None where it was not read."""
    path = data_dir / file.name
    there = path.is_file()
    size = path.stat().st_size if there else 0
    state: State = "here" if digest is None else "as published"
    if not there:
        state = "missing"
    elif size == 0 or (file.size_bytes is not None and size < file.size_bytes):
        state = "half there"
    elif digest is not None and digest != file.digest:
        state = "another file"
    return Found(
        name=file.name,
        state=state,
        path=str(path),
        size_bytes=size,
        expected_bytes=file.size_bytes,
        digest=digest,
        expected_digest=file.digest,
        command=file.command(data_dir),
    )


def digest_of(path: Path, like: str) -> str:
    """The digest of a file by the algorithm of another one."""
    with path.open("rb") as stream:
        return _digest_of(iter(lambda: stream.read(CHUNK_BYTES), b""), like)


def _digest_of(chunks: Iterable[bytes], like: str) -> str:
    algorithm, _, _ = like.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"
