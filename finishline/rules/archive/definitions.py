"""Definitions of archived benchmarks: shipped; by round, by name, by the metric logged."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from finishline.rules.archive.files import Place, version_of
from finishline.rules.archive.rounds import shipped_texts, version_parts
from finishline.rules.archive.submissions import ResultSet, Submission
from finishline.rules.benchmarks.benchmark import MLPERF_ID, Benchmark, parse_benchmark
from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.benchmarks.quality import QualityTarget

# Earlier names of benchmarks.
OTHER_NAMES = {"ssd": "retinanet", "gnn": "rgat", "mask": "maskrcnn"}
OLD_FORMAT_ROUNDS = {"0.5", "0.6"}
_DAWNBENCH = {"CIFAR10": "cifar10", "ImageNet": "imagenet", "SQuAD": "squad"}


def shipped_ids() -> frozenset[str]:
    """The benchmarks of published archives that a definition is shipped of."""
    return frozenset(shipped_texts())


def shipped_text(benchmark_id: str) -> bytes:
    """The text of a shipped definition. Raises KeyError for any other id."""
    return shipped_texts()[benchmark_id]


@cache
def shipped_definition(benchmark_id: str) -> Benchmark:
    """A shipped definition by its id. Raises KeyError for any other id."""
    return parse_benchmark(shipped_text(benchmark_id), file=f"{benchmark_id}.toml")


def shipped_definitions() -> dict[str, Benchmark]:
    """Every shipped definition by its id."""
    return {name: shipped_definition(name) for name in sorted(shipped_ids())}


class Definitions:
    """Benchmark definitions by their names in published files."""

    def __init__(self, benchmarks: Mapping[str, Benchmark]) -> None:
        self._benchmarks = benchmarks
        self._mlperf: dict[tuple[str, str], Benchmark] = {}
        newest = sorted(benchmarks.values(), key=_version, reverse=True)
        for benchmark in newest:
            if match := MLPERF_ID.fullmatch(benchmark.benchmark_id):
                version = f"{match[1]}.{match[2]}"
                rounds = (version,) if version in OLD_FORMAT_ROUNDS else (version, "")
                for name in benchmark.log_names:
                    for each in rounds:
                        self._mlperf.setdefault((each, name), benchmark)

    def of_task(self, task: str) -> Benchmark | None:
        """The definition of a DAWNBench task."""
        return self._benchmarks.get(_DAWNBENCH[task])

    def of_mlperf(self, name: str, version: str | None) -> Benchmark | None:
        """The definition of an MLPerf benchmark; the newest there is if no version is named.

        That is none of v0.5 or v0.6: their logs name their round by their format.
        """
        return self._mlperf.get((version or "", name))

    def quality_in_logs(
        self, name: str | None, benchmark: Benchmark | None
    ) -> QualityTarget | None:
        """Form of quality in the logs of a benchmark: by its definition, else by the newest.

        None where nothing is known.
        """
        known = benchmark or (self.of_mlperf(name, None) if name else None)
        return known.target if known is not None else None

    def rounds_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The rounds that define all of these benchmarks, oldest first, v0.5 and v0.6 aside.

        Logs of those tell by their format that they are.
        """
        wanted = set(names)
        rounds = {version for version, _ in self._mlperf} - {"", *OLD_FORMAT_ROUNDS}
        fitting = [r for r in rounds if all((r, name) in self._mlperf for name in wanted)]
        return tuple(sorted(fitting, key=version_parts))

    def mlperf_names(self) -> tuple[str, ...]:
        """Names that MLPerf benchmarks may have in logs."""
        return tuple(sorted({name for _, name in self._mlperf}))


def names_of(name: str, benchmark: Benchmark | None) -> tuple[str, ...]:
    """Names in logs of a benchmark that is called `name` in its path."""
    if benchmark is not None:
        return benchmark.log_names
    synonyms = {old for pair in OTHER_NAMES.items() if name in pair for old in pair}
    return tuple(sorted({name} | synonyms))


def common_name(name: str) -> str:
    """Name of a benchmark in most rounds."""
    return OTHER_NAMES.get(name, name)


def general_runs(name: str) -> RunsRule:
    """Rule for the runs of a result where no definition says so.

    Source: MLPerf training_rules.adoc, "Benchmark results"; result file counts of mlperf-logging.
    """
    name = common_name(name)
    if name == "unet3d":
        return RunsRule(count=40, dropped=4)
    if name in ("gpt3", "llama31_405b", "deepseekv3_671b", "qwen35_397b_grpo"):
        return RunsRule(count=3, dropped=1)
    few = ("dlrm", "maskrcnn", "resnet", "retinanet")
    return RunsRule(count=5 if name in few else 10, dropped=1)


def _version(benchmark: Benchmark) -> tuple[int, int]:
    match = MLPERF_ID.fullmatch(benchmark.benchmark_id)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


def tell_rounds(
    found: Iterable[Submission], definitions: Definitions
) -> Mapping[Place, tuple[str, ...]]:
    """The rounds that each folder of packages, and each package, may be of by its benchmarks."""
    names: dict[Place, set[str]] = defaultdict(set)
    for each in found:
        if isinstance(each, ResultSet) and each.in_package:
            for folder in folders_of(each):
                names[folder].add(each.place[-1])
    rounds = {folder: definitions.rounds_of(benchmarks) for folder, benchmarks in names.items()}
    return {folder: possible for folder, possible in rounds.items() if possible}


def folders_of(found: ResultSet) -> tuple[Place, Place]:
    """The folder of a set's organisation, and the one it is in."""
    return found.place[:-3], found.place[:-4]


def possible_rounds(found: ResultSet, rounds: Mapping[Place, tuple[str, ...]]) -> tuple[str, ...]:
    """The rounds that a set may be of, oldest first; none where nothing tells.

    The one that its folders name, else those of the benchmarks beside it: in the folder of its
    organisation or, where that leaves fewer, in the one around it. The folders of systems and
    benchmarks have versions of their own in their names.
    """
    named = version_of(found.place[:-3] if found.in_package else found.place)
    if named is not None:
        return (named,)
    told = [rounds[folder] for folder in folders_of(found) if folder in rounds]
    return min(told, key=len, default=())
