"""Benchmarks and code in folders: write, find, read and copy them for a sandbox."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from importlib.resources.abc import Traversable
from pathlib import Path
from shlex import quote

from finishline.cli.errors import CliError, UsageError
from finishline.client.errors import problems_of
from finishline.client.files import read_folder
from finishline.definitions import folders_of
from finishline.package_folder import package_folder
from finishline.rules.benchmarks.benchmark import Benchmark, parse_benchmark
from finishline.rules.benchmarks.definition_tables import TASK_FILE
from finishline.rules.errors import BenchmarkError, RuleError
from finishline.rules.text import count_text
from finishline.rules.trainings.own_benchmark import (
    FILE,
    LARGEST_BYTES,
    MOST_FILES,
    OwnBenchmark,
    belongs,
    id_in,
    pinned_in,
    read_own_benchmark,
    wrong_hashes,
)

ENVIRONMENT = "numpy-2.4"  # Of the templates.
SUFFIX = ".example"


def read_files(
    folder: Path, what: str, command: str, **limits: int
) -> tuple[dict[str, bytes], list[RuleError]]:
    """Read the files of code or of a benchmark, and their problems. Raises CliError."""
    if not folder.is_dir():
        found = "is a file" if folder.is_file() else "is not here"
        inside = f", such as {folder.parent.resolve()}" if folder.is_file() else ""
        raise UsageError(
            f"{folder} {found}; expected the folder of a {what}{inside}. "
            f"Hint: `finishline {command} FOLDER` writes an example."
        )
    try:
        return read_folder(folder, **limits)
    except OSError as error:
        raise _unreadable(error) from error


def read_own_folder(folder: Path) -> tuple[dict[str, bytes], list[RuleError]]:
    """Read a folder's definition and the files it may pin. Raises CliError."""
    limits = {"most_files": MOST_FILES, "most_bytes": LARGEST_BYTES}
    files, problems = read_files(folder, "benchmark", "benchmark init", **limits)
    return {name: content for name, content in files.items() if belongs(name)}, problems


def open_own_benchmark(folder: Path) -> tuple[OwnBenchmark, list[str]]:
    """Open the benchmark in a folder, and name its unpinned files. Raises CliError."""
    files, problems = read_own_folder(folder)
    if FILE not in files and not problems:
        raise CliError(
            f"{folder} has no {FILE}; expected the folder of a benchmark: {FILE}, {TASK_FILE} and "
            "reference/. Hint: `finishline benchmark init FOLDER` writes an example."
        )
    pinned = pinned_in(files.get(FILE, b""))
    found, more = read_own_benchmark(
        {name: content for name, content in files.items() if name == FILE or name in pinned}
    )
    if found is None or problems or more:
        raise broken(folder, [*problems, *more])
    return found, sorted(files.keys() - found.files.keys() - {FILE})


def broken(folder: Path, problems: list[RuleError], what: str = "benchmark") -> CliError:
    """Return an error with each problem's file, line, field and expected value."""
    hint = ""
    if any(each.field == "trainings.files" for each in problems):
        command = f"finishline benchmark check {quote(str(folder))} --write"
        hint = f" To pin the files as they are: {command}"
    return CliError(
        f"{folder} breaks the rules of a {what}: {count_text(len(problems), 'problem')}.{hint}",
        problems=problems_of(problems),
    )


def find_tasks(given: Path | None, code: Path | None = None) -> dict[str, Path]:
    """Find definitions with a task by id: NAME.toml next to NAME/, or NAME/benchmark.toml.

    Looks in the folders, here, and at the benchmark whose reference is this code.
    """
    found: dict[str, Path] = {}
    for folder in [Path(), *folders_of(given)]:
        for task in sorted(folder.glob(f"*/{TASK_FILE}")):
            home = task.parent
            beside = home.parent / f"{home.name}.toml"
            if beside.is_file():
                found[home.name] = beside
            elif (home / FILE).is_file():
                found[_id_of(home / FILE)] = home / FILE
    own = code.resolve().parent / FILE if code is not None else None
    if own is not None and own.is_file():
        found[_id_of(own)] = own
    return found


def _id_of(path: Path) -> str:
    try:
        return id_in(path.read_bytes())
    except OSError:
        return ""


def read_task(path: Path) -> tuple[Benchmark, dict[str, bytes]]:
    """Read a definition with a task, and its pinned files for a sandbox. Raises CliError."""
    own = path.name == FILE
    try:
        content = path.read_bytes()
        name = id_in(content) if own else path.stem
        benchmark = parse_benchmark(content, file=f"{name}.toml")
        home = path.parent if own else path.parent / name
        pinned = benchmark.trainings.files if benchmark.trainings is not None else {}
        files = {each: (home / each).read_bytes() for each in pinned if (home / each).is_file()}
    except RuleError as error:
        problem = BenchmarkError(
            error.message, file=path.name, field=error.field, expected=error.expected
        )
        raise broken(path.parent if own else path, [problem]) from error
    except OSError as error:
        raise _unreadable(error) from error
    problems: list[RuleError] = list(wrong_hashes(pinned, files))
    if problems:
        raise broken(home, problems)
    return benchmark, laid_out(name, content, files)


def laid_out(name: str, content: bytes, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Copy files for a sandbox: the definition next to its folder."""
    return {f"{name}.toml": content} | {f"{name}/{each}": files[each] for each in files}


@contextmanager
def definition_file(name: str, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write a definition's files to a temporary folder for the sandbox's user."""
    with package_folder(files) as folder:
        yield folder / f"{name}.toml"


def _unreadable(error: OSError) -> CliError:
    return UsageError(f"Cannot read {error.filename} ({error.strerror}).")


def write_template(package: str, folder: Path, change: Callable[[str], str]) -> list[str]:
    """Write a package's examples, for the environment here. Returns names. Raises CliError."""
    try:
        environment = f"numpy-{'.'.join(version('numpy').split('.')[:2])}"
    except PackageNotFoundError:
        environment = ENVIRONMENT
    texts = (
        (name, source.read_text(encoding="utf-8").replace(ENVIRONMENT, environment))
        for name, source in _examples(resources.files(package))
    )
    return write_new(folder, {name: change(text).encode() for name, text in texts})


def write_new(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write files into a new or empty folder. Returns their names. Raises CliError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists. Choose a new or empty folder.")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(files)


def _examples(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        if each.is_dir():
            yield from _examples(each, f"{path}{each.name}/")
        elif each.name.endswith(SUFFIX):
            yield path + each.name.removesuffix(SUFFIX), each
