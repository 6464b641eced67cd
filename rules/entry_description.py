"""System descriptions of MLPerf v0.5: `entry.json`, with a table for each kind of node."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rules.errors import RuleError
from rules.system_description import (
    SystemDescription,
    read_system_table,
    read_table,
)

MAX_NODES = 1_000
# What the format asks for is not the template of later rounds.
ASKED_FOR_LATER = ("missing_field", "empty_field", "unknown_value")
_PROCESSORS = re.compile(r"\b([0-9]{1,3}) ?x ?(?=Intel|AMD|IBM|Xeon|EPYC|POWER|ARM)", re.I)
_SLICE = re.compile(r".*-([0-9]{1,6})")


def read_entry_system(content: bytes, *, file: str) -> SystemDescription:
    """The system in an entry.json, as later rounds describe one.

    Nodes of several kinds are added up; what they do not share is None. A "tpuv3-512" has its 512
    accelerators in all nodes together, anything else so many in each. Raises RuleError only on what
    is no JSON object or too large; other problems are in `problems`.
    Source: MLPerf submission rules of v0.5, "System description"; the entries of that round.
    """
    table = read_table(content, file=file)
    problems: list[RuleError] = []
    nodes = _nodes(table.get("nodes"), file, problems)
    shown = {name: value for name, value in table.items() if name != "nodes"}
    for place, node in enumerate(nodes):
        prefix = "" if len(nodes) == 1 else f"nodes[{place}]."
        shown |= {
            prefix + name: value for name, value in node.items() if prefix + name not in shown
        }
    fields = read_system_table(shown, file=file)
    system = read_system_table(_translated(table, nodes), file=file)
    problems += [
        problem
        for problem in (*fields.problems, *system.problems)
        if problem.code not in ASKED_FOR_LATER
    ]
    return replace(system, fields=fields.fields, problems=tuple(problems))


def _nodes(value: Any, file: str, problems: list[RuleError]) -> list[dict[str, Any]]:
    nodes = [node for node in value if isinstance(node, dict)] if isinstance(value, list) else []
    if not nodes or len(nodes) < len(value):
        expected = "a list of tables, one for each kind of node"
        problems.append(
            RuleError("not told", file=file, field="nodes", expected=expected, code="missing_field")
        )
    return nodes[:MAX_NODES]


def _translated(table: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entry in the names of later rounds; counts that nobody gave are absent."""
    counts = [_count(node.get("num_nodes")) for node in nodes]
    total = _total(counts)
    cores, processors = _shared(nodes, "num_cores"), _processors(table, nodes)
    threads = _count(_shared(nodes, "num_vcpus"))
    each = [_accelerators(node) for node in nodes]
    translated = {
        "division": table.get("division"),
        "status": table.get("status"),
        "system_name": table.get("hardware"),
        "framework": table.get("framework"),
        "operating_system": table.get("os"),
        "other_software_stack": _text(table.get("libraries")),
        "number_of_nodes": total,
        "host_processors_per_node": processors,
        "host_processor_model_name": _PROCESSORS.sub("", _text(_shared(nodes, "cpu"))).strip(),
        "host_processor_core_count": _share(_count(cores) or None, processors),
        "host_processor_vcpu_count": threads or None,
        "host_memory_capacity": _memory(_shared(nodes, "sys_mem_size")),
        "accelerators_per_node": _share(_total(each), total),
        "accelerator_model_name": _shared(nodes, "accelerator"),
    }
    return {name: value for name, value in translated.items() if value is not None}


def _accelerators(node: Mapping[str, Any]) -> int | None:
    """The accelerators of all nodes of a kind."""
    count, nodes = _count(node.get("num_accelerators")), _count(node.get("num_nodes"))
    if count is None or nodes is None:
        return None
    of_slice = _SLICE.fullmatch(_text(node.get("accelerator")).strip())
    return count if of_slice and int(of_slice[1]) == count and nodes > 1 else count * nodes


def _processors(table: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> int | None:
    """Processors of a node: "2x Intel ..." as its cpu, or in the name of the hardware."""
    texts = (_text(_shared(nodes, "cpu")), _text(table.get("hardware")))
    found = next((match for text in texts if (match := _PROCESSORS.search(text))), None)
    return int(found[1]) if found else None


def _memory(value: Any) -> Any:
    """Gigabytes where a number has no unit."""
    text = _text(value).strip()
    return f"{text} GB" if _count(text) is not None else value


def _shared(nodes: Sequence[Mapping[str, Any]], name: str) -> Any:
    """What all nodes say, or None."""
    values = [node.get(name) for node in nodes]
    return values[0] if values and all(value == values[0] for value in values) else None


def _count(value: Any) -> int | None:
    """A count, as a number or a text; None for what is none, such as "NA" or -1."""
    text = _text(value).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text) else None


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _share(total: int | None, parts: int | None) -> int | None:
    """One of equal parts of a total, or None where there are none."""
    if total is None or not parts or total % parts:
        return None
    return total // parts


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""
