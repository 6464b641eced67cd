"""Find definitions of archived benchmarks by id, and by their names in published files.

One file has one MLPerf benchmark in all of its `rounds`. A table of `[[differs]]` has the
differences of some, such as `rounds = "2.0-4.1"`, and `[[points]]` their reference convergence
points.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from finishline.rules.archive.files import Place, version_of
from finishline.rules.archive.find import ResultSet, Submission
from finishline.rules.benchmarks.benchmark import MLPERF_ID, Benchmark, parse_benchmark
from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.text import parse_toml

SHIPPED = Path(__file__).parent / "benchmarks"
SOURCES = """\
# Target and runs: MLPerf training_rules.adoc and its compliance checker, as of v{version}.
# Reference convergence points: mlperf-logging, rcp_checker/training_{version}.0/rcps_{name}.json.
"""
# Rules of v4.1, "Random numbers": "From v4.1 onwards, the seeds should be logged".
SEEDS_SINCE = "4.1"
# mlperf-logging 52245a0 of July 2024 takes the standard deviation of all figures.
SPREAD_OF_ALL_SINCE = "4.1"
# Rules of August 2022. The tables of v1.0 and v1.1 are left out: 15 published sets fail them.
NORMALISED_SINCE = "2.1"
OTHER_NAMES = {"ssd": "retinanet", "gnn": "rgat", "mask": "maskrcnn"}
OLD_FORMAT_ROUNDS = {"0.5", "0.6"}
_DAWNBENCH = {"CIFAR10": "cifar10", "ImageNet": "imagenet", "SQuAD": "squad"}


@cache
def shipped_definition(benchmark_id: str) -> Benchmark:
    """Read a shipped definition by its id. Raises KeyError for any other id."""
    return parse_benchmark(shipped_texts()[benchmark_id], file=f"{benchmark_id}.toml")


def shipped_definitions() -> dict[str, Benchmark]:
    return {name: shipped_definition(name) for name in sorted(shipped_texts())}


@cache
def shipped_texts() -> Mapping[str, bytes]:
    """Read the text of every shipped definition, by its id."""
    texts = {}
    for path in sorted(SHIPPED.glob("*.toml")):
        whole = parse_toml(path.read_bytes(), file=path.name)
        if "rounds" not in whole:
            texts[path.stem] = path.read_bytes()
        for version in whole.get("rounds", ()):
            name, table = _definition(whole, version, path.stem)
            text = SOURCES.format(version=version, name=name) + "\n".join(_toml(table)) + "\n"
            texts[table["id"]] = text.encode()
    return texts


def _definition(whole: Mapping[str, Any], version: str, stem: str) -> tuple[str, dict[str, Any]]:
    own: dict[str, Any] = {"name": stem, "divisions": ["closed", "open"], "clock": "mlperf"}
    own |= whole
    for change in own.pop("differs", []):
        if _covers(change["rounds"], version):
            own = _merged(own, change)
    points = [dict(each) for each in own.pop("points", [])]
    points = [each for each in points if _covers(each.pop("rounds"), version)]
    name, rule, _ = own.pop("name"), own.pop("rcp", {}), own.pop("rounds")
    own = {"id": f"mlperf-v{version}-{name}", "version": version, "log_names": [name]} | own
    own["title"] += f" (MLPerf v{version})"
    own["about"] = f"{own['about'].strip()} MLPerf Training v{version}."
    own["target"] = own["target"] | {"reach": "first_crossing"}
    seeds = "required" if _parts(version) >= _parts(SEEDS_SINCE) else "if_logged"
    own["runs"] = {"dropped": 1, "seeds": seeds} | own["runs"]
    if points:
        spread = "all" if _parts(version) >= _parts(SPREAD_OF_ALL_SINCE) else "trimmed"
        normalise = _parts(version) >= _parts(NORMALISED_SINCE)
        own["rcp"] = {"stdev_of": spread, "normalise": normalise} | rule | {"points": points}
    return name, own


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _covers(rounds: str, version: str) -> bool:
    first, _, last = rounds.partition("-")
    return _parts(first) <= _parts(version) <= _parts(last or first)


def _merged(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for key, value in change.items():
        merged[key] = _merged(table.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def _toml(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Write a table as TOML lines: its values first, then the tables in it."""
    inner = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner.append((key, f"[{path}{key}]", value))
        elif isinstance(value, list) and isinstance(value[0], dict):
            inner += [(key, f"[[{path}{key}]]", each) for each in value]
        else:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for key, head, values in inner:
        yield from ("", head)
        yield from _toml(values, f"{path}{key}.")


class Definitions:
    """Benchmark definitions by their names in published files."""

    def __init__(self, benchmarks: Mapping[str, Benchmark]) -> None:
        self._benchmarks = benchmarks
        self._mlperf: dict[tuple[str, str], Benchmark] = {}
        found = ((MLPERF_ID.fullmatch(each.benchmark_id), each) for each in benchmarks.values())
        rounds = [(int(match[1]), int(match[2]), each) for match, each in found if match]
        for major, minor, benchmark in sorted(rounds, key=lambda each: each[:2], reverse=True):
            version = f"{major}.{minor}"
            for name in benchmark.log_names:
                self._mlperf.setdefault((version, name), benchmark)
                if version not in OLD_FORMAT_ROUNDS:
                    self._mlperf.setdefault(("", name), benchmark)

    def of_task(self, task: str) -> Benchmark | None:
        return self._benchmarks.get(_DAWNBENCH[task])

    def of_mlperf(self, name: str, version: str | None) -> Benchmark | None:
        """Return the definition of an MLPerf benchmark, without a version the newest since v0.7."""
        return self._mlperf.get((version or "", name))

    def quality_in_logs(
        self, name: str | None, benchmark: Benchmark | None
    ) -> QualityTarget | None:
        """Return the form of quality in a benchmark's logs, by its definition or the newest."""
        known = benchmark or (self.of_mlperf(name, None) if name else None)
        return known.target if known is not None else None

    def rounds_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the rounds since v0.7 that define all of these benchmarks, oldest first."""
        wanted = set(names)
        rounds = {version for version, _ in self._mlperf} - {"", *OLD_FORMAT_ROUNDS}
        fitting = [r for r in rounds if all((r, name) in self._mlperf for name in wanted)]
        return tuple(sorted(fitting, key=_parts))

    def mlperf_names(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, name in self._mlperf}))


def names_of(name: str, benchmark: Benchmark | None) -> tuple[str, ...]:
    """Return the names in logs of a benchmark with `name` in its path."""
    if benchmark is not None:
        return benchmark.log_names
    synonyms = {old for pair in OTHER_NAMES.items() if name in pair for old in pair}
    return tuple(sorted({name} | synonyms))


def general_runs(name: str) -> RunsRule:
    """Return the runs of a result without a definition. Source: counts of mlperf-logging."""
    name = OTHER_NAMES.get(name, name)
    if name == "unet3d":
        return RunsRule(count=40, dropped=4)
    if name in ("gpt3", "llama31_405b", "deepseekv3_671b", "qwen35_397b_grpo"):
        return RunsRule(count=3, dropped=1)
    few = ("dlrm", "maskrcnn", "resnet", "retinanet")
    return RunsRule(count=5 if name in few else 10, dropped=1)


def tell_rounds(
    found: Iterable[Submission], definitions: Definitions
) -> Mapping[Place, tuple[str, ...]]:
    """Return the possible rounds of each folder of packages and each package, by its benchmarks."""
    names: dict[Place, set[str]] = defaultdict(set)
    for each in found:
        if isinstance(each, ResultSet) and each.in_package:
            names[each.place[:-3]].add(each.place[-1])
            names[each.place[:-4]].add(each.place[-1])
    rounds = {folder: definitions.rounds_of(benchmarks) for folder, benchmarks in names.items()}
    return {folder: possible for folder, possible in rounds.items() if possible}


def possible_rounds(found: ResultSet, rounds: Mapping[Place, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the possible rounds of a set, oldest first, empty if unknown.

    The round in its path, else the fewest of its organisation's or the surrounding folder's.
    """
    named = version_of(found.place[:-3] if found.in_package else found.place)
    if named is not None:
        return (named,)
    folders = () if found.alone else (found.place[:-3], found.place[:-4])
    return min((rounds[each] for each in folders if each in rounds), key=len, default=())
