"""Benchmark definitions on this machine: shipped with the wheel, or in `benchmarks` here."""

from pathlib import Path

from finishline.places import find_folder
from finishline.profiles import Server
from finishline.rules.archive.definitions import shipped_definition, shipped_texts
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark, parse_benchmark
from finishline.rules.errors import BenchmarkError
from finishline.rules.text import did_you_mean

SHIPPED = find_folder(Path(__file__).resolve().parent, "benchmarks")
# `finishline benchmark fetch` writes here by default, below the current folder.
FETCHED = Path("benchmarks")


def folders_of(given: Path | None) -> list[Path]:
    """Return the given folder, else the shipped one, and `benchmarks` here with definitions."""
    if given is not None:
        return [given]
    folders = [SHIPPED] if SHIPPED.is_dir() else []
    if any(FETCHED.glob("*.toml")) and FETCHED.resolve() not in folders:
        folders.append(FETCHED)
    return folders


def known_ids(folders: list[Path]) -> list[str]:
    return sorted({path.stem for folder in folders for path in folder.glob("*.toml")})


def find_definition(benchmark_id: str, given: Path | None, server: Server) -> Benchmark:
    """Find a benchmark here, else on the server. Raises BenchmarkError with near names."""
    folders = folders_of(given)
    for folder in reversed(folders):
        if benchmark_id in known_ids([folder]):
            return load_benchmark(folder / f"{benchmark_id}.toml")
    if benchmark_id in shipped_texts():
        return shipped_definition(benchmark_id)
    problem = "one of a server that FINISHLINE_URL names or that you logged in to"
    if server.url is not None:
        from finishline.client.transport import FinishlineError, Transport, segment

        path = f"/benchmarks/{segment(benchmark_id)}.toml"
        try:
            with Transport(server.url, server.token) as asked:
                content = asked.download(path, limit_bytes=16 * 1024 * 1024)
        except (FinishlineError, ValueError) as error:
            problem = f"one of {server.url} ({error})"
        else:
            return parse_benchmark(content, file=f"{benchmark_id}.toml")
    known = known_ids(folders)
    near = did_you_mean(benchmark_id, [*known, *sorted(shipped_texts())])
    raise BenchmarkError(
        f"unknown benchmark {benchmark_id[:80]!r}{near}",
        expected=f"{', '.join(known)}, or {problem}",
    )
