"""System descriptions of MLPerf: `ORG/systems/SYSTEM.json`, and `entry.json` in v0.5."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finishline.rules.benchmarks.benchmark import DIVISIONS
from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.logs.text import parse_json, refuse_repeated_keys

DESCRIPTION_LIMIT_BYTES = 1024 * 1024
FIELD_LIMIT = 4_000
SOFTWARE = "other_software_stack"
MAX_FIELDS = 500
MAX_COUNT = 10**7
STATUSES = (
    "Available on-premise",
    "Available cloud",
    "Research, Development, or Internal (RDI)",
    "Preview",
)
# Names in earlier rounds; case varied then, and varies with many submitters since.
OTHER_STATUSES = (
    "available",
    "available on premise",
    "available on-premises",
    "available in cloud",
    "cloud",
    "on-premise",
    "onprem",
    "rdi",
    "research",
)
OTHER_DIVISIONS = ("close",)
MISSPELT = {"divison": "division"}
REQUIRED_FIELDS = (
    "submitter",
    "division",
    "status",
    "system_name",
    "number_of_nodes",
    "host_processors_per_node",
    "host_processor_model_name",
    "host_processor_core_count",
    "host_processor_vcpu_count",
    "host_processor_frequency",
    "host_processor_caches",
    "host_processor_interconnect",
    "host_memory_capacity",
    "host_storage_type",
    "host_storage_capacity",
    "host_networking",
    "host_networking_topology",
    "host_memory_configuration",
    "accelerators_per_node",
    "accelerator_model_name",
    "accelerator_host_interconnect",
    "accelerator_frequency",
    "accelerator_on-chip_memories",
    "accelerator_memory_configuration",
    "accelerator_memory_capacity",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
    "cooling",
    "hw_notes",
    "framework",
    "other_software_stack",
    "operating_system",
    "sw_notes",
)
# Many real files leave the others empty, or say N/A.
FILLED_FIELDS = ("submitter", "division", "status", "system_name", "framework", "number_of_nodes")
NOTHING = frozenset({"", "-", "n/a", "na", "none", "unknown", "tbd"})
_LONGEST_NOTHING = max(map(len, NOTHING))
_SCALAR = (str, int, float)
_COUNT = re.compile(r"(\d{1,8})(?:\.0+)?")


@dataclass(frozen=True)
class SystemDescription:
    """A system as its submitter describes it; absent, empty and "N/A" fields are None.

    `fields` has every field of the file that has a value, as text and under its own name, but for
    the software stack, which is in `software`: a version for each name, or under "" where it is
    prose. `problems` lists what is missing or wrong; each has a `code`.
    """

    submitter: str | None
    division: str | None
    status: str | None
    system_name: str | None
    number_of_nodes: int | None
    host_processors_per_node: int | None
    host_processor_model_name: str | None
    host_processor_core_count: int | None
    host_processor_vcpu_count: int | None
    host_memory_capacity: str | None
    accelerators_per_node: int | None
    accelerator_model_name: str | None
    accelerator_memory_capacity: str | None
    framework: str | None
    operating_system: str | None
    software: Mapping[str, str]
    fields: Mapping[str, str]
    problems: tuple[RuleError, ...]

    @property
    def accelerators(self) -> int | None:
        """Number of accelerators in all nodes."""
        if self.number_of_nodes is None or self.accelerators_per_node is None:
            return None
        return self.number_of_nodes * self.accelerators_per_node


def read_system(content: bytes, *, file: str) -> SystemDescription:
    """The system in a description file.

    Lenient where published files are: numbers as text and text as numbers, empty fields, unknown
    ones, a software stack that is a table, a list of tables or prose. Raises RuleError only if it
    is no JSON object or too large; everything else is in `problems`.
    Source: MLPerf submission_rules.adoc, "System description"; mlperf-logging system_desc_checker.
    """
    return _Reader(read_table(content, file=file), content, file).description()


def read_system_table(table: Mapping[str, Any], *, file: str) -> SystemDescription:
    """The system in a table that was read from a file of another form; as lenient."""
    return _Reader(table, b"{}", file).description()


class _Reader:
    """Fields of one file, and their problems."""

    def __init__(self, table: Mapping[str, Any], content: bytes, file: str) -> None:
        self._table = table
        self._file = file
        self._problems: list[RuleError] = []
        try:
            refuse_repeated_keys(content, file=file)
        except LogFormatError as error:
            self._report("repeated_field", error.field, error.message, "each field once")

    def description(self) -> SystemDescription:
        for name in REQUIRED_FIELDS:
            if name not in self._table:
                self._report("missing_field", name, "missing", "every field of the template")
        fields = {name: self._text(name) for name in self._names() if name != SOFTWARE}
        texts = {name: text for name, text in fields.items() if text is not None}
        for name in FILLED_FIELDS:
            if name in self._table and name not in texts:
                self._report("empty_field", name, "empty", "a value")
        for misspelt, name in MISSPELT.items():
            if name not in texts and misspelt in texts:
                texts[name] = texts[misspelt]
        self._check_word("division", texts, DIVISIONS, also=OTHER_DIVISIONS)
        self._check_word("status", texts, STATUSES, also=OTHER_STATUSES)
        return SystemDescription(
            submitter=texts.get("submitter"),
            division=texts.get("division"),
            status=texts.get("status"),
            system_name=texts.get("system_name"),
            number_of_nodes=self._count("number_of_nodes", texts, minimum=1),
            host_processors_per_node=self._count("host_processors_per_node", texts),
            host_processor_model_name=texts.get("host_processor_model_name"),
            host_processor_core_count=self._count("host_processor_core_count", texts),
            host_processor_vcpu_count=self._count("host_processor_vcpu_count", texts),
            host_memory_capacity=texts.get("host_memory_capacity"),
            accelerators_per_node=self._count("accelerators_per_node", texts),
            accelerator_model_name=texts.get("accelerator_model_name"),
            accelerator_memory_capacity=texts.get("accelerator_memory_capacity"),
            framework=texts.get("framework"),
            operating_system=texts.get("operating_system"),
            software=self._software(),
            fields=texts,
            problems=tuple(self._problems),
        )

    def _names(self) -> list[str]:
        names = list(self._table)
        if len(names) > MAX_FIELDS:
            self._report(
                "too_many_fields", None, f"{len(names)} fields", f"at most {MAX_FIELDS} fields"
            )
        return names[:MAX_FIELDS]

    def _text(self, name: str) -> str | None:
        value = self._table[name]
        if value is None or isinstance(value, _SCALAR):
            return self._clean(name, value)
        self._report("wrong_type", name, f"a {type(value).__name__}", "a text or a number")
        return None

    def _clean(self, name: str, value: str | float | None) -> str | None:
        text = "" if value is None else str(value).strip()
        if len(text) <= _LONGEST_NOTHING and text.casefold() in NOTHING:
            return None
        if len(text) > FIELD_LIMIT:
            self._report(
                "long_field", name, f"{len(text)} characters", f"at most {FIELD_LIMIT} characters"
            )
        text = text[:FIELD_LIMIT]
        return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)

    def _count(self, name: str, texts: Mapping[str, str], *, minimum: int = 0) -> int | None:
        text = texts.get(name)
        if text is None:
            return None
        match = _COUNT.fullmatch(text)
        if match is None or not minimum <= int(match[1]) <= MAX_COUNT:
            expected = f"a whole number from {minimum} to {MAX_COUNT}"
            self._report("not_a_count", name, f"got {text[:60]!r}", expected)
            return None
        return int(match[1])

    def _check_word(
        self, name: str, texts: Mapping[str, str], words: tuple[str, ...], *, also: tuple[str, ...]
    ) -> None:
        word = texts.get(name)
        known = {each.casefold() for each in (*words, *also)}
        if word is not None and word.casefold() not in known:
            self._report("unknown_value", name, f"got {word[:60]!r}", " or ".join(words))

    def _software(self) -> dict[str, str]:
        value = self._table.get(SOFTWARE)
        if value is None or isinstance(value, str):
            prose = self._clean(SOFTWARE, value)
            return {} if prose is None else {"": prose}
        tables = value if isinstance(value, list) else [value]
        versions: dict[str, str] = {}
        for table in tables:
            if not isinstance(table, dict):
                self._report(
                    "wrong_type", SOFTWARE, f"a {type(table).__name__}", "versions by name"
                )
                continue
            versions |= self._versions(table)
        return versions

    def _versions(self, table: Mapping[str, Any]) -> dict[str, str]:
        versions = {}
        for name, value in list(table.items())[:MAX_FIELDS]:
            if value is not None and not isinstance(value, _SCALAR):
                self._report(
                    "wrong_type", f"{SOFTWARE}.{name[:100]}", f"a {type(value).__name__}", "a text"
                )
                continue
            version = self._clean(f"{SOFTWARE}.{name[:100]}", value)
            if version is not None:
                versions[name] = version
        return versions

    def _report(self, code: str, field: str | None, message: str, expected: str) -> None:
        self._problems.append(
            RuleError(message, file=self._file, field=field, expected=expected, code=code)
        )


def read_table(content: bytes, *, file: str) -> dict[str, Any]:
    """The JSON object of a description file. Raises RuleError on anything else."""
    if len(content) > DESCRIPTION_LIMIT_BYTES:
        raise LogFormatError(
            f"{len(content):,} bytes",
            file=file,
            expected=f"at most {DESCRIPTION_LIMIT_BYTES:,} bytes",
        )
    value = parse_json(content.removeprefix(b"\xef\xbb\xbf"), file=file)
    if not isinstance(value, dict):
        raise LogFormatError("not a JSON object", file=file, line=1, expected="a JSON object")
    return value


MAX_NODES = 1_000
# The fields of the format differ from the template of later rounds.
ASKED_FOR_LATER = ("missing_field", "empty_field", "unknown_value")
_PROCESSORS = re.compile(r"\b([0-9]{1,3}) ?x ?(?=Intel|AMD|IBM|Xeon|EPYC|POWER|ARM)", re.I)
_SLICE = re.compile(r".*-([0-9]{1,6})")


def read_entry_system(content: bytes, *, file: str) -> SystemDescription:
    """The system in an entry.json, as later rounds describe one.

    Nodes of several kinds are added up; fields they do not share are None. A "tpuv3-512" has its
    512 accelerators in all nodes together, anything else so many in each. Raises RuleError only if
    it is no JSON object or too large; other problems are in `problems`.
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
            RuleError("missing", file=file, field="nodes", expected=expected, code="missing_field")
        )
    return nodes[:MAX_NODES]


def _translated(table: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entry in the names of later rounds; missing counts are absent."""
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
    """The value that all nodes share, or None."""
    values = [node.get(name) for node in nodes]
    return values[0] if values and all(value == values[0] for value in values) else None


def _count(value: Any) -> int | None:
    """A count, as a number or a text; None if it is none, such as "NA" or -1."""
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
