"""Running out of memory, in one sentence that names the batch size."""

from collections.abc import Iterator
from contextlib import contextmanager


class TrainingMemoryError(MemoryError):
    """The training needs more than the device's memory."""


@contextmanager
def naming_batch_size(batch_size: float, *, device: str) -> Iterator[None]:
    """Turn every kind of out-of-memory error of a training step into one that names its batch."""
    try:
        yield
    except TrainingMemoryError:
        raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingMemoryError(
            f"{device} ran out of memory at a batch size of {batch_size:g};"
            " choose a smaller batch_size or a device with more memory"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means too little memory, on any device."""
    no_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return no_memory or "can't allocate memory" in str(error)
