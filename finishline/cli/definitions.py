"""Find benchmark definitions for a command: shipped ones, a folder's, a file's and a server's."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.client.errors import NotFound
from finishline.definitions import folders_of, known_ids
from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.benchmarks.benchmark import (
    Benchmark,
    load_benchmark,
    load_benchmarks,
    parse_benchmark,
)
from finishline.rules.text import did_you_mean
from finishline.rules.trainings.own_benchmark import LARGEST_BYTES, wrong_hashes

if TYPE_CHECKING:
    from finishline.cli.client import ServerClient

LARGEST_DEFINITION_BYTES = 16 * 1024 * 1024


def read_benchmarks(given: Path | None, *, wanted: str | None = None) -> dict[str, Benchmark]:
    """Read the definitions of the folders, and of archives unless the folders have `wanted`."""
    found: dict[str, Benchmark] = {}
    try:
        for folder in folders_of(given):
            found |= load_benchmarks(folder)
    except OSError as error:
        hint = "point --benchmarks-dir at the benchmark definitions"
        raise _unreadable(error, hint) from error
    return found if wanted in found else shipped_definitions() | found


def read_definition(path: Path) -> Benchmark:
    try:
        return load_benchmark(path)
    except OSError as error:
        raise _unreadable(error, "expected the TOML file of a benchmark") from error


def _unreadable(error: OSError, hint: str) -> CliError:
    return UsageError(f"Cannot read {error.filename} ({error.strerror}); {hint}.")


def find_benchmark(name: str, given: Path | None) -> tuple[Path, Benchmark]:
    """Find a benchmark by its id in the folders, or by the path of its file. Raises CliError."""
    folders = folders_of(given)
    places = [Path(name)] if name.endswith(".toml") else [each / f"{name}.toml" for each in folders]
    path = next((place for place in places if place.is_file()), None)
    if path is None and (name.endswith(".toml") or "/" in name):
        raise CliError(
            f"There is no {name}; expected the id of a benchmark, its TOML file, or for `run` a "
            "folder of code.",
            exit_code=ExitCode.NOT_FOUND,
        )
    if path is None:
        known = known_ids(folders)
        where = f"in {' and '.join(map(str, folders))}" if folders else "on this machine"
        holds = f"; it holds {', '.join(known) or 'none'}" if folders else ""
        raise CliError(
            f"There is no benchmark {name!r} {where}{did_you_mean(name, known)}{holds}. "
            f"Fetch a server's own with `finishline benchmark fetch {name}`.",
            exit_code=ExitCode.NOT_FOUND,
        )
    return path, read_definition(path)


def download_definition(server: "ServerClient", benchmark_id: str) -> tuple[bytes, Benchmark]:
    """Download a definition: its bytes, and parsed. Raises CliError, RuleError."""
    from finishline.cli.client import segment

    path = f"/benchmarks/{segment(benchmark_id)}.toml"
    content = server.download(path, limit_bytes=LARGEST_DEFINITION_BYTES)
    # The file's name is the required id.
    return content, parse_benchmark(content, file=f"{benchmark_id}.toml")


def download_files(server: "ServerClient", benchmark: Benchmark) -> dict[str, bytes]:
    """Download the files that a definition pins, by name. Raises CliError."""
    from finishline.cli.client import segment

    pinned = benchmark.trainings.files if benchmark.trainings is not None else {}
    path = f"/benchmarks/{segment(benchmark.benchmark_id)}/files"
    files = {name: server.download(f"{path}/{name}", limit_bytes=LARGEST_BYTES) for name in pinned}
    for problem in wrong_hashes(pinned, files):
        raise problem
    return files


def with_server_definitions(
    benchmarks: dict[str, Benchmark],
    url: str | None,
    token: str | None = None,
    *,
    only: str | None = None,
) -> dict[str, Benchmark]:
    """Add the server's definitions, or `only` one. The rules report an unknown one."""
    if url is None or only in benchmarks:
        return benchmarks
    from finishline.cli.client import ServerClient  # Loads the HTTP library.

    found = dict(benchmarks)
    with ServerClient(url, token) as server:
        listed = [{"id": only}] if only else server.get("/benchmarks")["benchmarks"]
        for name in (str(each["id"]) for each in listed):
            try:
                if name not in found:
                    found[name] = download_definition(server, name)[1]
            except NotFound:
                continue
    return found


def benchmark_named_in(claim: bytes) -> str | None:
    """Return the benchmark that a submission's JSON names, if any."""
    try:
        document = json.loads(claim)
    except (ValueError, RecursionError):
        return None
    named = document.get("benchmark") if isinstance(document, dict) else None
    return named if isinstance(named, str) else None
