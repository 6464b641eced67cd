"""Files that references train on: their places below the data folder, sizes and published hashes.

A training checks only their sizes before it prepares, because it must open data after the clock
starts. `finishline benchmark fetch --check` compares the hashes too.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

from reference_models import DataSetError, imagenet_files

State = Literal["as published", "here", "missing", "half there", "another file"]
CHUNK_BYTES = 1 << 20
NOT_GZIPPED = (gzip.BadGzipFile, EOFError, zlib.error)
BROKEN = "not a whole gzip file"
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
# SHA-256 of the unpacked files. Debian packs the same content, without names: 23 or 24 bytes less.
FASHION_FOLDER = "fashion-mnist"
FASHION = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": (
        26_421_856,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    "train-labels-idx1-ubyte.gz": (
        29_491,
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "t10k-images-idx3-ubyte.gz": (
        4_422_079,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "t10k-labels-idx1-ubyte.gz": (
        5_125,
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
# Sizes that loaders of SQuAD v1.1 check, and the SHA-256 of parlai/tasks/squad/build.py in ParlAI.
# Its publisher omits hashes.
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
    hyperparameter is 0. The digest of a `gzipped` file is of its unpacked content.
    """

    name: str
    size_bytes: int | None = None
    digest: str | None = None
    url: str | None = None
    setting: str | None = None
    gzipped: bool = False

    def command(self, data_dir: Path) -> str | None:
        """Return a shell command that gets the file, None if it is unpublished."""
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
    """Files of a reference, or the `archive` that it unpacks, or folders of 1,000 classes.

    Folders come with their number of pictures, and unpublished files with words on how to get them.
    If the data folder lacks `folder`, it may be in the `system`'s.
    """

    folder: str
    files: tuple[DataFile, ...] = ()
    archive: DataFile | None = None
    class_folders: Mapping[str, int] = field(default_factory=dict)
    how: str = ""
    system: Path | None = None

    def place(self, data_dir: Path) -> Path:
        """Find the folder that has the reference's folder: the data folder, or the system's."""
        if self.system is not None and not (data_dir / self.folder).is_dir():
            return self.system if (self.system / self.folder).is_dir() else data_dir
        return data_dir


@dataclass(frozen=True)
class Found:
    """A file or folder on this machine, and how it should be.

    A digest needs a read of the content. `pictures` counts a folder of classes. `command` gets the
    file.
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
        """Describe the size or number of pictures, and the hash. Empty if they are unknown."""
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
    "fashion": Needs(
        FASHION_FOLDER,
        tuple(
            DataFile(
                f"{FASHION_FOLDER}/{name}",
                size_bytes,
                f"sha256:{sha256}",
                f"{FASHION}/{name}",
                gzipped=True,
            )
            for name, (size_bytes, sha256) in FASHION_FILES.items()
        ),
        system=Path("/usr/share/datasets"),  # Debian's package dataset-fashion-mnist
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
    """Describe each file and folder here. With `hashed` its content is read and compared."""
    data_dir = needs.place(data_dir)
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
) -> list[Path]:
    """Return a reference's files and folders, closed unless `hashed`. Raises DataSetError."""
    needs = NEEDS.get(reference)
    if needs is None:
        return []
    paths = []
    for found in look_for(needs, data_dir, hashed=hashed, settings=settings):
        _require(found, reference, data_dir)
        paths.append(Path(found.path))
    return paths


def sha256_of_list(needs: Needs, *, count: int | None = None) -> str:
    """Return the hash of the list of the first files, unpacked, as `sha256sum` writes it."""
    listed = (
        f"{str(file.digest).removeprefix('sha256:')}  {Path(file.name.removesuffix('.gz')).name}\n"
        for file in needs.files[:count]
    )
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def read_whole(reference: str, file: DataFile, data_dir: Path) -> bytes:
    """Read a file, unpacked. Raises DataSetError if it is missing or changed."""
    place = NEEDS[reference].place(data_dir)
    path = place / file.name
    try:
        packed = path.read_bytes() if path.is_file() else b""
        content = gzip.decompress(packed) if file.gzipped else packed
        digest = file.digest and _digest_of([content], file.digest)
    except NOT_GZIPPED:
        content, digest = b"", BROKEN
    _require(_found(file, place, digest), reference, data_dir)
    return content


def _require(found: Found, reference: str, data_dir: Path) -> None:
    if found.is_usable:
        return
    is_other = found.state == "another file"
    raise DataSetError(
        f"{found.name} is {found.state}"
        + (f", {found.digest}; remove {found.path}" if is_other else f" in {data_dir}")
        + f": {how_to_get(reference, data_dir)}",
        file=found.path,
        field="data_set.name",
        expected=found.expected or "a file",
    )


def _look_into(name: str, expected: int, data_dir: Path, *, counted: bool) -> Found:
    """Check a folder of classes. Its pictures are `counted`, or only its classes."""
    folder = data_dir / name
    classes = [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
    pictures = sum(1 for each in classes for _ in each.iterdir()) if counted else None
    state: State = "missing" if not classes else "half there"
    if len(classes) == imagenet_files.CLASSES and pictures in (None, expected):
        state = "here"
    return Found(name, state, str(folder), pictures=pictures, expected_pictures=expected)


def how_to_get(reference: str, data_dir: Path) -> str:
    """Return one sentence on how to get the data of a reference."""
    needs = NEEDS[reference]
    if needs.how:
        return needs.how.format(folder=data_dir / needs.folder)
    return f"get it with `finishline benchmark fetch {reference} --data {data_dir}`"


def _look_at(file: DataFile, data_dir: Path, *, hashed: bool) -> Found:
    path = data_dir / file.name
    return _found(file, data_dir, digest_of(path, file) if hashed and path.is_file() else None)


def _found(file: DataFile, data_dir: Path, digest: str | None) -> Found:
    """Describe a file. `digest` is of its content, None if it is unread."""
    path = data_dir / file.name
    there = path.is_file()
    size = path.stat().st_size if there else 0
    # A packed file may be smaller than the published one and have the same content.
    is_short = size < (file.size_bytes or 1) and (not file.gzipped or digest == BROKEN)
    state: State = "here" if digest is None else "as published"
    if not there:
        state = "missing"
    elif size == 0 or is_short:
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


def digest_of(path: Path, file: DataFile) -> str | None:
    """Hash a path's content by the algorithm of a file's digest, None without one."""
    if file.digest is None:
        return None
    try:
        with gzip.open(path) if file.gzipped else path.open("rb") as stream:
            return _digest_of(iter(lambda: stream.read(CHUNK_BYTES), b""), file.digest)
    except NOT_GZIPPED:
        return BROKEN


def _digest_of(chunks: Iterable[bytes], like: str) -> str:
    algorithm, _, _ = like.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"
