"""ImageNet's pictures in folders by class, as torchvision's ImageFolder wants them.

torchvision is imported only when pictures are opened, because only this reference needs it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_models import DataSetError

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "imagenet"
CLASSES = 1000
TRAINING_PICTURES = 1_281_167
VALIDATION_PICTURES = 50_000
EVALUATION_CROP = 0.875  # of the shorter side, as is usual
HOW_TO = "see https://www.image-net.org/download.php"


@dataclass(frozen=True)
class Pictures:
    """Files with their classes. A picture is read when it is asked for."""

    files: tuple[tuple[str, int], ...]

    def __len__(self) -> int:
        return len(self.files)

    def seen(self, *, crop_pixels: int | None, whole_pixels: int) -> "SeenPictures":
        """Crop pictures at random to a square. With None keep them whole and centred."""
        from torchvision.transforms import v2

        if crop_pixels is None:
            steps = [v2.Resize(round(whole_pixels / EVALUATION_CROP)), v2.CenterCrop(whole_pixels)]
        else:
            steps = [v2.RandomResizedCrop(crop_pixels), v2.RandomHorizontalFlip()]
        return SeenPictures(self.files, v2.Compose([*steps, v2.PILToTensor()]))


@dataclass(frozen=True)
class SeenPictures:
    """Pictures through a transform: an item is bytes (3, H, W) and a class."""

    files: tuple[tuple[str, int], ...]
    transform: "Callable[[Any], Tensor]"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> "tuple[Tensor, int]":
        from PIL import Image

        path, label = self.files[index]
        try:
            with Image.open(path) as picture:
                return self.transform(picture.convert("RGB")), label
        except (OSError, SyntaxError) as error:  # Pillow cannot decode it.
            raise DataSetError(
                f"{path} cannot be read as a picture ({error}); unpack ImageNet again, {HOW_TO}"
            ) from None


def without_traceback(loader: Iterable[Any]) -> Iterator[Any]:
    """One item of a loader. Its processes put a traceback before the message of an error."""
    try:
        yield from loader
    except DataSetError as error:
        raise DataSetError(error.message.rpartition("DataSetError: ")[2].strip()) from None


def open_pictures(data_dir: Path) -> tuple[Pictures, Pictures]:
    """Training and validation pictures. Raises DataSetError unless all of them are there."""
    root = data_dir / FOLDER
    training, names = _listed(root / "train")
    validation, same_names = _listed(root / "val")
    if names != same_names:
        odd = sorted(set(names) ^ set(same_names))[0]
        raise DataSetError(
            f"the class {odd} is in one of train and val only",
            file=str(root),
            field="data_set.name",
            expected="the same class folders in both",
        )
    for pictures, wanted, name in (
        (training, TRAINING_PICTURES, "train"),
        (validation, VALIDATION_PICTURES, "val"),
    ):
        if len(pictures) != wanted or len(names) != CLASSES:
            raise DataSetError(
                f"there are {len(pictures):,} pictures of {len(names):,} classes; unpack what is"
                f" missing, {HOW_TO}",
                file=str(root / name),
                field="data_set.name",
                expected=f"{wanted:,} pictures of {CLASSES:,} classes",
            )
    return training, validation


def _listed(folder: Path) -> tuple[Pictures, list[str]]:
    """Return the pictures under a folder and the names of its classes."""
    try:
        from torchvision.datasets import ImageFolder
    except (ImportError, RuntimeError) as error:  # A mismatched pair fails with a RuntimeError.
        raise no_torchvision(error) from error
    try:
        found = ImageFolder(str(folder))
    except FileNotFoundError as error:
        raise DataSetError(
            f"there are no pictures in folders by class; unpack ImageNet there, {HOW_TO}",
            file=str(folder),
            field="data_set.name",
            expected=f"{FOLDER}/train/CLASS/*.JPEG and {FOLDER}/val/CLASS/*.JPEG",
        ) from error
    return Pictures(tuple(found.samples)), list(found.classes)


def no_torchvision(error: Exception) -> DataSetError:
    """Return the error for a torchvision that is missing or belongs to another torch."""
    return DataSetError(
        f"torchvision cannot be used here ({error}); install a torch and a torchvision that"
        " belong together with `pip install 'finishline-server[vision]'`",
        field="reference",
        expected="a working torchvision",
    )
