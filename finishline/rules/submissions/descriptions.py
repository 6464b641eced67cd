"""Read MLPerf's system descriptions: `ORG/systems/SYSTEM.json`, and `entry.json` in v0.5."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from finishline.rules.benchmarks.benchmark import DIVISIONS
from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.logs.text import parse_json_object, refuse_repeated_keys
from finishline.rules.submissions.claim import NOTHING

FIELD_LIMIT = 4_000
MAX_FIELDS = 500
MAX_COUNT = 10**7
STATUSES = (
    "Available on-premise",
    "Available cloud",
    "Research, Development, or Internal (RDI)",
    "Preview",
)
# Words in any case: the rules' first, then the words of earlier rounds.
WORDS = {
    "division": (*DIVISIONS, "close"),
    "status": (
        *STATUSES, "available", "available on premise", "available on-premises",
        "available in cloud", "cloud", "on-premise", "onprem", "rdi", "research",
    ),
}  # fmt: skip
EXPECTED = {"division": " or ".join(DIVISIONS), "status": " or ".join(STATUSES)}
MISSPELT = {"divison": "division"}
REQUIRED_FIELDS = (
    "submitter", "division", "status", "system_name", "number_of_nodes",
    "host_processors_per_node", "host_processor_model_name", "host_processor_core_count",
    "host_processor_vcpu_count", "host_processor_frequency", "host_processor_caches",
    "host_processor_interconnect", "host_memory_capacity", "host_storage_type",
    "host_storage_capacity", "host_networking", "host_networking_topology",
    "host_memory_configuration", "accelerators_per_node", "accelerator_model_name",
    "accelerator_host_interconnect", "accelerator_frequency", "accelerator_on-chip_memories",
    "accelerator_memory_configuration", "accelerator_memory_capacity", "accelerator_interconnect",
    "accelerator_interconnect_topology", "cooling", "hw_notes", "framework",
    "other_software_stack", "operating_system", "sw_notes",
)  # fmt: skip
# Many real files leave the others empty, or say N/A.
FILLED_FIELDS = ("submitter", "division", "status", "system_name", "framework", "number_of_nodes")
SOFTWARE = "other_software_stack"  # A table, a list of tables or prose, unread by rules.
_COUNT = re.compile(r"(\d{1,8})(?:\.0+)?")


@dataclass(frozen=True)
class SystemDescription:
    """A system as its submitter describes it. Absent, empty and "N/A" fields are None.

    `fields` has every filled field of the file, as text. `problems` lists missing and wrong fields.
    Each has a `code`.
    """

    division: str | None
    status: str | None
    system_name: str | None
    framework: str | None
    number_of_nodes: int | None
    host_processors_per_node: int | None
    host_processor_model_name: str | None
    host_memory_capacity: str | None
    accelerators_per_node: int | None
    accelerator_model_name: str | None
    fields: Mapping[str, str]
    problems: tuple[RuleError, ...]

    @property
    def accelerators(self) -> int | None:
        if self.number_of_nodes is None or self.accelerators_per_node is None:
            return None
        return self.number_of_nodes * self.accelerators_per_node


def read_system(content: bytes, *, file: str) -> SystemDescription:
    """Read the system in a description file.

    Lenient where published files are: numbers as text and text as numbers, empty fields, unknown
    ones. Raises RuleError only if it is not a JSON object or too large. Everything else is in
    `problems`.
    Source: MLPerf submission_rules.adoc, "System description". mlperf-logging, system_desc_checker.
    """
    system = read_system_table(parse_json_object(content, file=file), file=file)
    try:
        refuse_repeated_keys(content, file=file)
    except LogFormatError as error:
        twice = _problem(file, "repeated_field", error.field, error.message, "each field once")
        return replace(system, problems=(twice, *system.problems))
    return system


def _problem(file: str, code: str, field: str | None, message: str, expected: str) -> RuleError:
    return RuleError(message, file=file, field=field, expected=expected, code=code)


def read_system_table(table: Mapping[str, Any], *, file: str) -> SystemDescription:
    """Read the system in a table from a file of another form, as leniently."""
    problem = partial(_problem, file)
    problems = [
        problem("missing_field", name, "missing", "every field of the template")
        for name in REQUIRED_FIELDS
        if name not in table
    ]
    if len(table) > MAX_FIELDS:
        expected = f"at most {MAX_FIELDS} fields"
        problems.append(problem("too_many_fields", None, f"{len(table)} fields", expected))
    texts: dict[str, str] = {}
    for name in [name for name in table if name != SOFTWARE][:MAX_FIELDS]:
        value = table[name]
        if value is not None and not isinstance(value, str | int | float):
            found = f"a {type(value).__name__}"
            problems.append(problem("wrong_type", name, found, "a text or a number"))
            continue
        text = "" if value is None else str(value).strip()
        if len(text) > FIELD_LIMIT:
            expected = f"at most {FIELD_LIMIT} characters"
            problems.append(problem("long_field", name, f"{len(text)} characters", expected))
        if text.casefold() not in NOTHING:
            text = text[:FIELD_LIMIT]
            if not text.isprintable():
                text = "".join(c if c.isprintable() else " " for c in text)
            texts[name] = text
    problems += [
        problem("empty_field", name, "empty", "a value")
        for name in FILLED_FIELDS
        if name in table and name not in texts
    ]
    texts = {MISSPELT[name]: texts[name] for name in MISSPELT if name in texts} | texts
    for name, words in WORDS.items():
        word = texts.get(name)
        if word is not None and word.casefold() not in {each.casefold() for each in words}:
            problems.append(problem("unknown_value", name, f"got {word[:60]!r}", EXPECTED[name]))

    def count(name: str, minimum: int = 0) -> int | None:
        text = texts.get(name)
        match = _COUNT.fullmatch(text or "")
        if match is not None and minimum <= int(match[1]) <= MAX_COUNT:
            return int(match[1])
        if text is not None:
            expected = f"a whole number from {minimum} to {MAX_COUNT}"
            problems.append(problem("not_a_count", name, f"got {text[:60]!r}", expected))
        return None

    return SystemDescription(
        division=texts.get("division"),
        status=texts.get("status"),
        system_name=texts.get("system_name"),
        framework=texts.get("framework"),
        number_of_nodes=count("number_of_nodes", 1),
        host_processors_per_node=count("host_processors_per_node"),
        host_processor_model_name=texts.get("host_processor_model_name"),
        host_memory_capacity=texts.get("host_memory_capacity"),
        accelerators_per_node=count("accelerators_per_node"),
        accelerator_model_name=texts.get("accelerator_model_name"),
        fields=texts,
        problems=tuple(problems),
    )


MAX_NODES = 1_000
# The fields of the format differ from the template of later rounds.
ASKED_FOR_LATER = ("missing_field", "empty_field", "unknown_value")
_PROCESSORS = re.compile(r"\b([0-9]{1,3}) ?x ?(?=Intel|AMD|IBM|Xeon|EPYC|POWER|ARM)", re.I)
_SLICE = re.compile(r".*-([0-9]{1,6})")


def read_entry_system(content: bytes, *, file: str) -> SystemDescription:
    """Read the system in an entry.json, as later rounds describe one.

    Nodes of several kinds are added up, and fields that differ are None. A "tpuv3-512" has its 512
    accelerators in all nodes together, anything else so many in each. Raises RuleError only if it
    is not a JSON object or too large. Other problems are in `problems`.
    Source: MLPerf submission rules of v0.5, "System description". The entries of that round.
    """
    table = parse_json_object(content, file=file)
    given = table.get("nodes")
    listed = given if isinstance(given, list) else []
    nodes = [node for node in listed if isinstance(node, dict)]
    problems = []
    if not nodes or len(nodes) < len(listed):
        expected = "a list of tables, one for each kind of node"
        problems.append(_problem(file, "missing_field", "nodes", "missing", expected))
    nodes = nodes[:MAX_NODES]
    shown = {name: value for name, value in table.items() if name != "nodes"}
    for place, node in enumerate(nodes):
        prefix = "" if len(nodes) == 1 else f"nodes[{place}]."
        shown = {prefix + name: value for name, value in node.items()} | shown
    fields = read_system_table(shown, file=file)
    system = read_system_table(_in_later_names(table, nodes), file=file)
    found = (*problems, *fields.problems, *system.problems)
    kept = (each for each in found if each in problems or each.code not in ASKED_FOR_LATER)
    return replace(system, fields=fields.fields, problems=tuple(kept))


def _in_later_names(table: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Put the entry in the names of later rounds. Missing counts are absent."""
    total = _total([_count(node.get("num_nodes")) for node in nodes])
    accelerators = _total([_accelerators(node) for node in nodes])
    cpu, memory = _text(_shared(nodes, "cpu")), _shared(nodes, "sys_mem_size")
    # "2x Intel ..." as its cpu, or in the name of the hardware.
    processors = _PROCESSORS.search(cpu) or _PROCESSORS.search(_text(table.get("hardware")))
    in_later_names = {
        "division": table.get("division"),
        "status": table.get("status"),
        "system_name": table.get("hardware"),
        "framework": table.get("framework"),
        "number_of_nodes": total,
        "host_processors_per_node": processors and processors[1],
        "host_processor_model_name": _PROCESSORS.sub("", cpu).strip(),
        # Gigabytes where a number has no unit.
        "host_memory_capacity": memory if _count(memory) is None else f"{_count(memory)} GB",
        "accelerators_per_node": None
        if accelerators is None or not total or accelerators % total
        else accelerators // total,
        "accelerator_model_name": _shared(nodes, "accelerator"),
    }
    return {name: value for name, value in in_later_names.items() if value is not None}


def _accelerators(node: Mapping[str, Any]) -> int | None:
    count, nodes = _count(node.get("num_accelerators")), _count(node.get("num_nodes"))
    if count is None or nodes is None:
        return None
    of_slice = _SLICE.fullmatch(_text(node.get("accelerator")).strip())
    return count if of_slice and int(of_slice[1]) == count and nodes > 1 else count * nodes


def _shared(nodes: Sequence[Mapping[str, Any]], name: str) -> Any:
    values = [node.get(name) for node in nodes]
    return values[0] if values and all(value == values[0] for value in values) else None


def _count(value: Any) -> int | None:
    """Read a count from a number or a text. None for anything else, such as "NA" or -1."""
    text = _text(value).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text) else None


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""
