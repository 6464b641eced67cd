"""Definitions of MLPerf's rounds: one file has a benchmark in all of its rounds.

`rounds` lists them. A table of `[[differs]]` has what differs in some: `rounds = "2.0-4.1"` are
those from the first to the second. `[[points]]` are the reference convergence points of theirs.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parent / "benchmarks"
SOURCES = """\
# Target and runs: MLPerf training_rules.adoc and its compliance checker, as of v{version}.
# Reference convergence points: mlperf-logging, rcp_checker/training_{version}.0/rcps_{name}.json.
"""
# Rules of v4.1, "Random numbers": "From v4.1 onwards, the seeds should be logged".
SEEDS_SINCE = "4.1"
# mlperf-logging 52245a0 of July 2024 takes the standard deviation of all figures. Until then it
# left out those that the mean leaves out.
SPREAD_OF_ALL_SINCE = "4.1"
# Rules of August 2022: a set that converged faster than the mean is normalised to it. The tables of
# v1.0 and v1.1 are left out: 15 sets that fail them were published.
NORMALISED_SINCE = "2.1"


@cache
def shipped_texts() -> Mapping[str, bytes]:
    """The text of every shipped definition, by its id."""
    texts = {}
    for path in sorted(SHIPPED.glob("*.toml")):
        whole = tomllib.loads(path.read_text("utf-8"))
        for version in whole["rounds"]:
            name, table = _definition(whole, version, path.stem)
            text = SOURCES.format(version=version, name=name) + "\n".join(_toml(table)) + "\n"
            texts[table["id"]] = text.encode()
    return texts


def version_parts(version: str) -> tuple[int, ...]:
    """A version's numbers, to compare it by."""
    return tuple(int(part) for part in version.split("."))


def _definition(whole: Mapping[str, Any], version: str, stem: str) -> tuple[str, dict[str, Any]]:
    """The name of a benchmark in one round, and its definition there."""
    own: dict[str, Any] = {"name": stem, "divisions": ["closed", "open"], "clock": "mlperf"}
    own |= whole
    for change in own.pop("differs", []):
        if _covers(change, version):
            own = _merged(own, change)
    points = [_without_rounds(each) for each in own.pop("points", []) if _covers(each, version)]
    name, rule = own.pop("name"), own.pop("rcp", {})
    own = {"id": f"mlperf-v{version}-{name}", "version": version, "log_names": [name]} | own
    del own["rounds"]
    own["title"] += f" (MLPerf v{version})"
    own["about"] = f"{own['about'].strip()} MLPerf Training v{version}."
    own["target"] = own["target"] | {"reach": "first_crossing"}
    own["runs"] = {"dropped": 1, "seeds": _since(SEEDS_SINCE, version, "required", "if_logged")} | (
        own["runs"]
    )
    if points:
        spread = _since(SPREAD_OF_ALL_SINCE, version, "all", "trimmed")
        normalise = not _is_before(version, NORMALISED_SINCE)
        own["rcp"] = {"stdev_of": spread, "normalise": normalise} | rule | {"points": points}
    return name, own


def _is_before(version: str, first: str) -> bool:
    return version_parts(version) < version_parts(first)


def _since(first: str, version: str, value: str, earlier: str) -> str:
    return earlier if _is_before(version, first) else value


def _covers(table: Mapping[str, Any], version: str) -> bool:
    first, _, last = table["rounds"].partition("-")
    return not _is_before(version, first) and not _is_before(last or first, version)


def _without_rounds(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "rounds"}


def _merged(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for key, value in change.items():
        merged[key] = _merged(table.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def _toml(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The lines of a table: its values first, then the tables in it."""
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
