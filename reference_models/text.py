"""The text reference: the small GPT of reference_models.grammar on an organiser's own file.

The corpus is `text/corpus.txt` in the worker's data folder: any bytes, the last tenth validates
(text8, a shard of FineWeb as plain text). If `text/corpus.txt.sha256` exists, in the format of
sha256sum, the corpus must have that hash. The entropy of such a text is unknown, so the organiser
writes the benchmark's file and names this reference in it.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from finishline.rules.run import Phase
from reference_models import DataSetError, Measurement
from reference_models.grammar import PRECISIONS as PRECISIONS
from reference_models.grammar import GrammarConfig, train_on
from reference_models.grammar import configure as configure
from reference_models.grammar import synthetic as synthetic

DATA_SET_SHA256 = None
FEWEST_BYTES = 100_000


def train(
    config: GrammarConfig, *, seed: int, device: str, data_dir: Path
) -> Iterator[Phase | Measurement]:
    """Train on the corpus file, one measurement after each epoch. Raises DataSetError."""
    return train_on(lambda: read_corpus_file(data_dir), config, seed=seed, device=device)


def read_corpus_file(data_dir: Path) -> bytes:
    """Return the bytes of the corpus file, checked by its .sha256 file if there is one."""
    file = data_dir / "text" / "corpus.txt"
    try:
        text = file.read_bytes()
    except OSError as error:
        raise DataSetError(
            f"the corpus cannot be read: {error.strerror}",
            file=str(file),
            expected="a text file; put one there, or set FINISHLINE_DATA_DIR to where it lies",
        ) from error
    if len(text) < FEWEST_BYTES:
        raise DataSetError(
            f"the corpus has {len(text):,} bytes",
            file=str(file),
            expected=f"at least {FEWEST_BYTES:,}; download the file again",
        )
    _check_hash(text, file)
    return text


def _check_hash(text: bytes, file: Path) -> None:
    beside = file.with_name(file.name + ".sha256")
    if not beside.is_file():
        return
    wanted = beside.read_text(encoding="utf-8", errors="replace").split()[:1]
    sha256 = hashlib.sha256(text).hexdigest()
    if wanted != [sha256]:
        raise DataSetError(
            f"the corpus has the SHA-256 {sha256}; download it again",
            file=str(file),
            expected=f"{' '.join(wanted) or 'a hash'}, as {beside.name} says",
        )
