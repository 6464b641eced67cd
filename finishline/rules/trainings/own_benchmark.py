"""Check an organiser's benchmark: its definition, task, data and reference in one folder.

`[trainings.files]` of `benchmark.toml` pins every other file. The command and the server make the
same checks, without running its code.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark, parse_benchmark
from finishline.rules.benchmarks.definition_tables import REFERENCE, TASK_FILE
from finishline.rules.errors import BenchmarkError, RuleError
from finishline.rules.statistics.gaps import judge_halves
from finishline.rules.text import line_of, parse_toml, shown
from finishline.rules.trainings.manifest import FAMILIES
from finishline.rules.trainings.package import (
    is_left_out,
    parse_files,
    python_problems,
    read_package,
)

FILE = "benchmark.toml"
FILES_FIELD = "trainings.files"
LARGEST_BYTES = 64 << 20
MOST_FILES = 64
_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True)
class OwnBenchmark:
    """A correct folder: its definition, the definition's text, and its other files."""

    benchmark: Benchmark
    content: bytes
    files: Mapping[str, bytes]


def read_own_benchmark(
    files: Mapping[str, bytes],
) -> tuple[OwnBenchmark | None, list[RuleError]]:
    """Read a definition with its pinned files, or None with all problems and their places."""
    problems: list[RuleError] = []
    if len(files) > MOST_FILES:
        problems.append(BenchmarkError(f"{len(files)} files", expected=f"at most {MOST_FILES}"))
    total = sum(map(len, files.values()))
    if total > LARGEST_BYTES:
        expected = f"at most {LARGEST_BYTES} bytes together"
        problems.append(BenchmarkError(f"{total} bytes", expected=expected))
    benchmark = _definition(files, problems)
    others = {name: content for name, content in files.items() if name != FILE}
    problems += _task(others, benchmark)
    problems += _reference(others, id_in(files.get(FILE, b"")))
    if benchmark is not None:
        problems += _suits(benchmark, files[FILE])
        missing = {each.file for each in problems if each.file not in others}
        pinned = benchmark.trainings.files if benchmark.trainings is not None else {}
        expected = "its SHA-256 in the definition"
        unpinned = [
            BenchmarkError("not pinned", file=name, field=FILES_FIELD, expected=expected)
            for name in sorted(others.keys() - pinned.keys())
        ]
        found = [*wrong_hashes(pinned, others), *unpinned]
        problems += [each for each in found if each.file not in missing]
    if problems or benchmark is None:
        return None, problems
    return OwnBenchmark(benchmark, files[FILE], others), []


def belongs(name: str) -> bool:
    """Whether a file of an organiser's folder may be pinned, unlike a README or a hidden file."""
    return not name.startswith("README") and not any(map(is_left_out, name.split("/")))


def id_in(content: bytes) -> str:
    """Return the id in a definition, empty if it is unreadable."""
    found = _table(content).get("id")
    return found if isinstance(found, str) else ""


def pinned_in(content: bytes) -> frozenset[str]:
    """Return the names in `[trainings.files]` of a definition, empty if it is unreadable."""
    trainings = _table(content).get("trainings")
    files = trainings.get("files") if isinstance(trainings, dict) else None
    return frozenset(files) if isinstance(files, dict) else frozenset()


def _table(content: bytes) -> dict[str, Any]:
    try:
        return parse_toml(content, file=FILE, error=BenchmarkError)
    except BenchmarkError:
        return {}


def _definition(files: Mapping[str, bytes], problems: list[RuleError]) -> Benchmark | None:
    if FILE not in files:
        problems.append(BenchmarkError("missing", file=FILE, expected="a benchmark's definition"))
        return None
    content = files[FILE]
    try:
        name = parse_toml(content, file=FILE, error=BenchmarkError).get("id")
        if not isinstance(name, str) or not _ID.fullmatch(name):
            message = "missing" if name is None else f"got {shown(name)}"
            expected = "a to z, then a-z, 0-9, _ and -; at most 64 characters"
            raise BenchmarkError(message, file=FILE, field="id", expected=expected)
        return parse_benchmark(content, file=f"{name}.toml")
    except RuleError as error:
        for each in error.problems:
            each.file = FILE
            each.line = each.line or (line_of(content, each.field) if each.field else None)
        problems += error.problems
        return None


def _suits(benchmark: Benchmark, content: bytes) -> Iterator[RuleError]:
    """Refuse a definition that needs code of the server: its reference is a code submission."""
    if benchmark.trainings is None:
        yield BenchmarkError("missing", file=FILE, field="trainings", expected="a table")
    if benchmark.replay is not None:
        expected = f"none: the code submission in {REFERENCE} is the reference"
        line, message = line_of(content, "replay"), "a module of the server's source"
        yield BenchmarkError(message, file=FILE, line=line, field="replay", expected=expected)


def wrong_hashes(pinned: Mapping[str, str], files: Mapping[str, bytes]) -> Iterator[RuleError]:
    """Yield pinned files that are missing or have another SHA-256."""
    for name, expected in sorted(pinned.items()):
        if name not in files:
            yield BenchmarkError("missing", file=name, field=FILES_FIELD, expected="this file")
            continue
        found = hashlib.sha256(files[name]).hexdigest()
        if found != expected:
            message = f"its SHA-256 is {found}"
            yield BenchmarkError(message, file=name, field=FILES_FIELD, expected=expected)


def _task(files: Mapping[str, bytes], benchmark: Benchmark | None) -> Iterator[RuleError]:
    """Check the task's modules without running them: it has numpy and the standard library."""
    modules = {name: files[name] for name in files if not name.startswith(REFERENCE)}
    sources = parse_files(modules)
    yield from python_problems(sources, FAMILIES["numpy"])
    if TASK_FILE not in files:
        yield BenchmarkError("missing", file=TASK_FILE, expected="a module with draw(nonce)")
        return
    policy = benchmark.trainings if benchmark is not None else None
    has_control = policy is not None and policy.control_quality is not None
    tree = sources[TASK_FILE].tree
    if tree is None:
        return  # Already reported with the file.
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in ("draw", "control") if has_control else ("draw",):
        if name not in functions:
            expected = f"def {name}(nonce)"
            yield BenchmarkError(f"no function {name}", file=TASK_FILE, expected=expected)


def _reference(files: Mapping[str, bytes], benchmark_id: str) -> Iterator[RuleError]:
    """Check the reference as code, with its folder before the names of its files."""
    package = {
        name.removeprefix(REFERENCE): content
        for name, content in files.items()
        if name.startswith(REFERENCE)
    }
    _, problems = read_package(package, benchmarks=[benchmark_id])
    for each in problems:
        each.file = f"{REFERENCE}{each.file or ''}"
        yield each


def with_hashes(content: bytes, files: Mapping[str, bytes]) -> bytes:
    """Write the SHA-256 of these files into a definition as its `[trainings.files]`."""
    lines = content.decode().splitlines()
    header = f"[{FILES_FIELD}]"
    start = next((at for at, line in enumerate(lines) if line.strip() == header), None)
    rows = [f'"{name}" = "{hashlib.sha256(files[name]).hexdigest()}"' for name in sorted(files)]
    if start is None:
        return "\n".join([*lines, "", header, *rows, ""]).encode()
    rest = lines[start + 1 :]
    end = next((at for at, line in enumerate(rest) if line.startswith("[")), len(rest))
    comments = [line for line in rest[:end] if line.startswith("#")]
    after = ["", *rest[end:]] if end < len(rest) else []
    return "\n".join([*lines[: start + 1], *comments, *rows, *after, ""]).encode()


# Design faults that let luck or noise rank. Source of the figures: docs/own-benchmark.md, "How
# large, how late, how many".
FEWEST_ITEMS = 4_000
FEWEST_RUNS = 5
MOST_ASKS = 6
LARGEST_SHARE = 0.25
SHORTEST_SECONDS = 1.0


@dataclass(frozen=True)
class ReferenceRuns:
    """Runs of a reference to its target: seconds, also of evaluations, and quality on `halves`."""

    seconds: Sequence[float]
    evaluation_seconds: Sequence[float]
    asks: Sequence[int]
    halves: Sequence[tuple[float, float]]

    @property
    def mean_seconds(self) -> float:
        return fmean(self.seconds)

    @property
    def cv_percent(self) -> float | None:
        """Return the deviation over the mean of several times, in percent."""
        return 100 * stdev(self.seconds) / self.mean_seconds if len(self.seconds) > 1 else None

    @property
    def evaluation_share(self) -> float:
        """Return the share of the time that evaluations took, 0 to 1."""
        return sum(self.evaluation_seconds) / sum(self.seconds)

    @property
    def mean_halves(self) -> tuple[float, float]:
        first, second = zip(*self.halves, strict=True)
        return fmean(first), fmean(second)

    def figures(self) -> dict[str, float | None]:
        first, second = self.mean_halves
        return {
            "mean_seconds": self.mean_seconds,
            "cv_percent": self.cv_percent,
            "evaluation_percent": 100 * self.evaluation_share,
            "first_half": first,
            "second_half": second,
        }


def advice(benchmark: Benchmark, runs: ReferenceRuns, *, prediction_items: int) -> Iterator[str]:
    """Advise what to change before the benchmark ranks anybody."""
    policy = benchmark.trainings
    if policy is None:
        return
    items = prediction_items // 2 if policy.halves else prediction_items
    at_quality = benchmark.reach.is_at_quality
    if not policy.halves and policy.trust == "ranked" and at_quality:
        yield "halves is false: the items that stop the clock also judge, so luck counts. Draw two."
    if items < FEWEST_ITEMS:
        yield (
            f"{items:,} test items a half: 0.2 points below the target, 4.6 % of submissions pass "
            "by luck in 5 runs on 2,000 items, 0.9 % on 4,000. Take at least 4,000."
        )
    if policy.trust == "demonstration" and policy.control_quality is None:
        yield (
            "The answers are public and there is no shortcut test: code that carries them ranks. "
            "Write control in task.py, and control_quality in [trainings]."
        )
    if policy.runs < FEWEST_RUNS:
        yield f"{policy.runs} runs of a submission: with fewer than {FEWEST_RUNS} luck decides."
    if runs.evaluation_share > LARGEST_SHARE:
        yield (
            f"Evaluations take {100 * runs.evaluation_share:.0f} % of the reference's time: a "
            f"faster training gains little; at most {100 * LARGEST_SHARE:.0f} %. Ask less often."
        )
    if max(runs.asks) > MOST_ASKS:
        yield (
            f"The reference asks {max(runs.asks)} times; at most {MOST_ASKS}, late: each ask near "
            "the target is another chance of luck, which the second half then does not confirm."
        )
    if runs.mean_seconds < SHORTEST_SECONDS:
        yield (
            f"The reference needs {runs.mean_seconds:.2f} s; below {SHORTEST_SECONDS:g} s the "
            "machine's noise ranks. Raise the target or the size."
        )
    target = benchmark.target
    verdict = judge_halves(
        [second for _, second in runs.halves], target=target.value, direction=target.direction
    )
    if verdict.outcome != "confirmed" and at_quality:
        yield (
            f"The mean of the second half, {verdict.mean:.2f}, misses the target by "
            f"{verdict.missing:.2f}: such code is not measured. Ask later or lower the target."
        )
