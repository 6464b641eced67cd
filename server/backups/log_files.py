"""Check the files of a backup before a restore reads them: plain, whole and unchanged."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.errors import ContentError
from server.exports.csv_tables import read_csv
from server.exports.logs import LOG_COLUMNS
from server.exports.manifest import LOG_LIST, Manifest, file_part
from server.exports.progress import Progress, silent

LOGS = "logs"
MOST_PROBLEMS = 20


def listed_logs(folder: Path) -> Iterator[tuple[str, int]]:
    """Hash and bytes of every log that the list of a folder names. Raises RuleError."""
    for line in read_csv(folder / LOG_LIST, LOG_COLUMNS, name=LOG_LIST):
        sha256, size_bytes = line.values
        if not is_sha256(sha256) or size_bytes is None:
            raise RuleError(f"got {str(sha256)[:80]!r}", file=LOG_LIST, line=line.number,
                            expected="a SHA-256 in hex, and bytes")  # fmt: skip
        yield sha256, size_bytes


def is_sha256(text: object) -> bool:
    """Whether a text is 64 small hex digits."""
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def refuse(problems: Iterable[RuleError], folder: Path) -> None:
    """Raise ContentError with the first few problems, if there is any."""
    found = list(islice(problems, MOST_PROBLEMS))
    if found:
        lines = "".join(f"\n  {problem}" for problem in found)
        raise ContentError(f"{folder} is not whole, and nothing was changed:{lines}")


def check_plain(folder: Path) -> Iterator[RuleError]:
    """Name each link, device or pipe in a backup: a restore reads plain files and folders only."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            yield RuleError(
                "a link, a device or a pipe",
                file=str(path.relative_to(folder)),
                expected="plain files and folders, as a backup has them",
            )


def check_log_files(
    folder: Path, manifest: Manifest, place: Path, say: Progress = silent
) -> Iterator[RuleError]:
    """What is wrong with the listed logs: one that is missing from a place, or changed."""
    count = size = 0
    try:
        for sha256, size_bytes in listed_logs(folder):
            count, size = count + 1, size + size_bytes
            problem = _check_log(place / sha256[:2] / sha256, sha256)
            if problem is not None:
                yield problem
            say(f"{count_text(count, 'log')}, {size / 1e6:.0f} MB")
    except RuleError as error:
        yield error
        return
    if (count, size) != (manifest.logs.files, manifest.logs.size_bytes):
        yield RuleError(
            _logs(count, size),
            file=LOG_LIST,
            expected=_logs(manifest.logs.files, manifest.logs.size_bytes),
        )


def _logs(count: int, size_bytes: int) -> str:
    return f"{count_text(count, 'log')}, {count_text(size_bytes, 'byte')}"


def _check_log(path: Path, sha256: str) -> RuleError | None:
    name = f"{LOGS}/{sha256[:2]}/{sha256}"
    try:
        if path.is_symlink():
            return RuleError("a link", file=name, expected="a plain file")
        found = file_part(path).sha256
    except OSError as error:
        return RuleError(f"not there ({error.strerror})", file=name, expected="a log")
    if found != sha256:
        return RuleError(f"its content has hash {found}", file=name, expected="what its name says")
    return None
