"""Read the JSON of a submission: submitter, runs, system, settings and training."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from annotated_types import Ge, Le, MaxLen, MinLen

from finishline.rules.benchmarks.accelerators import (
    A_CLASS,
    CLASS_NAME,
    NAME_LENGTHS,
    Pricing,
    accelerators_of_cloud,
    are_of_cloud,
    stated_accelerator,
)
from finishline.rules.benchmarks.benchmark import MAX_RUNS, Benchmark, published_on
from finishline.rules.benchmarks.definition_tables import ReplayPolicy
from finishline.rules.errors import ClaimError, RuleError, joined
from finishline.rules.logs.lines import MAX_KEY_LENGTH, is_number
from finishline.rules.logs.mllog_values import MAX_HYPERPARAMETERS
from finishline.rules.logs.text import refuse_deep, refuse_repeated_keys
from finishline.rules.measurements import PrecisionName
from finishline.rules.table import EACH_ONCE, Checked, Text, like, read_day, read_table
from finishline.rules.text import did_you_mean, refuse_utf16, shown

MAX_SEED = 2**63 - 1
# Of seeds that train: torch on a processor and numpy use 32 bits.
MAX_TRAINED_SEED = 2**32 - 1

TrainedWith = Literal["reference", "own", "package"]
NOTHING = frozenset({"", "-", "n/a", "na", "none", "unknown", "tbd"})  # As text of a field.
MOST_TRIALS = 10**9
MOST_SECONDS = 1e12


@dataclass(frozen=True)
class Tuning:
    """The search for the settings: number of trainings, and their seconds together."""

    trials: Annotated[int, Ge(0), Le(MOST_TRIALS)]
    seconds: Annotated[float, Ge(0), Le(MOST_SECONDS)]


Kind = Literal["train", "inference"]
CLAIM_LIMIT_BYTES = 256 * 1024
MOST_INSTANCES = 10**6
MAX_ORGANISATION_LENGTH = 200
MOST_SCALING = 1000.0  # Published factors are below 2.
MLPERF_NAME = re.compile(r"mlperf-(?:v[0-9.]{1,9}-)?[a-z0-9_]{1,80}")


def _book_name(kind: str) -> Checked:
    longest = NAME_LENGTHS[kind]
    return like(f".{{1,{longest}}}", f"one line of at most {longest} characters")


@dataclass(frozen=True)
class Cloud:
    """Rented instances by their names in a price book: `count` instances of one kind."""

    provider: Annotated[Text, _book_name("provider")]
    instance: Annotated[Text, _book_name("instance")]
    region: Annotated[Text, _book_name("region")]
    count: Annotated[int, Ge(1), Le(MOST_INSTANCES)] = 1


@dataclass(frozen=True)
class System:
    """The hardware and software of a run. Absent figures are None.

    `hardware_class` names machines with comparable times. `price_usd_per_hour` is the stated price
    of the whole system, `price_source` where you can look it up. `availability` is an archive's
    word for whether you can buy or rent the system.
    """

    name: Text
    hardware_class: Annotated[Text, like(CLASS_NAME, A_CLASS)]
    processor: Text
    processor_count: Annotated[int, Ge(1), Le(10**7)] | None = None
    memory_gib: Annotated[float, Ge(0), Le(1e9)] | None = None
    accelerator: Text | None = None
    accelerator_count: Annotated[int, Ge(0), Le(10**7)] = 0
    price_usd_per_hour: Annotated[float, Ge(0.0001), Le(1e9)] | None = None
    price_source: Text | None = None
    pricing: Pricing = "on_demand"
    cloud: Cloud | None = None
    availability: Text | None = None


@dataclass(frozen=True)
class Claim:
    """A submitter's runs on one system for one benchmark and division.

    `run_files` names the run logs in order. `dawnbench` keeps the original entry. `organisation`,
    `submitted_on` and `scaling_factor` (of scaling.json) belong to a result that was published
    elsewhere. A claim of `kind` "inference" is about a model's time for one item, without runs.
    `precision` is the narrowest floating type of a matmul or convolution, as stated. `package` is
    the SHA-256 of a code submission, which has no runs before its measurement. With
    `deterministic`, equal seeds and data give equal predictions. `factors` names its ideas that can
    be switched off.
    """

    benchmark_id: str
    division: str
    model: str
    framework: str
    system: System
    run_files: tuple[str, ...]
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    code_url: str | None = None
    notes: str | None = None
    dawnbench: Mapping[str, Any] | None = None
    organisation: str | None = None
    submitted_on: date | None = None
    scaling_factor: float | None = None
    kind: Kind = "train"
    precision: PrecisionName | None = None
    trained_with: TrainedWith = "own"
    tuning: Tuning | None = None
    package: str | None = None
    deterministic: bool = False
    factors: tuple[str, ...] = ()


def read_json_object(content: bytes, *, file: str) -> dict[str, Any]:
    """Read a JSON object of at most 256 KiB. Raises RuleError naming the file, and the line or key.

    A repeated key is refused, because readers differ in which of the two they believe.
    """
    if len(content) > CLAIM_LIMIT_BYTES:
        expected = f"at most {CLAIM_LIMIT_BYTES} bytes"
        raise ClaimError(f"{len(content)} bytes", file=file, expected=expected)
    text = content.removeprefix(b"\xef\xbb\xbf")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refuse_utf16(content, file=file, error=ClaimError)
        message = f"not JSON: {error.msg}"
        raise ClaimError(message, file=file, line=error.lineno, expected="a JSON object") from error
    if not isinstance(value, dict):
        raise ClaimError("not a JSON object", file=file, line=1, expected="a JSON object")
    refuse_deep(value, file=file)
    refuse_repeated_keys(text, file=file)
    return value


@dataclass(frozen=True)
class ClaimTable:
    """A submission's JSON. Its settings are checked by its benchmark."""

    benchmark: Text
    division: Text
    model: Text
    framework: Text
    system: System
    runs: Annotated[tuple[Text, ...], MinLen(1), MaxLen(MAX_RUNS), EACH_ONCE]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    code_url: Annotated[Text, like("https?://.*", "an http(s) address")] | None = None
    notes: Text | None = None
    precision: PrecisionName | None = None
    trained_with: Literal["reference", "own"] = "own"
    tuning: Tuning | None = None


@dataclass(frozen=True)
class PublishedTable(ClaimTable):
    """The JSON of a result that was published elsewhere: its owner, day and scaling factor."""

    organisation: Annotated[Text, MaxLen(MAX_ORGANISATION_LENGTH)] | None = None
    submitted_on: Annotated[str, Checked(read_day)] | None = None
    scaling_factor: Annotated[float, Ge(1), Le(MOST_SCALING)] | None = None


def read_claim(
    content: bytes, *, file: str, benchmarks: Mapping[str, Benchmark], archive: bool = False
) -> Claim:
    """Read the claim in a submission's JSON. Raises a RuleError of each wrong field.

    Checks the benchmark, its divisions and the hyperparameters a division may set. Only a claim
    from an `archive` may name the owner, the day and the scaling factor of its result.
    """
    table = read_json_object(content, file=file)
    benchmark = _find_benchmark(table, benchmarks, file=file)
    division, settings = str(table.get("division")), table.get("hyperparameters") or {}
    problems: list[RuleError] = []
    values: dict[str, Any] = {}
    try:
        kind = PublishedTable if archive else ClaimTable
        values = dict(vars(read_table(kind, table, file=file, error=ClaimError)))
        problems += _contradictions(values, table, benchmark, file=file)
    except RuleError as error:
        problems += error.problems
    try:
        if isinstance(settings, dict):
            settings = read_settings(settings, benchmark, division, file=file)
    except RuleError as error:
        problems += error.problems
    if problems:
        raise joined(problems)
    if archive and values["submitted_on"] is None:
        values["submitted_on"] = published_on(benchmark.benchmark_id)
    values |= {"hyperparameters": settings, "run_files": values.pop("runs")}
    return Claim(benchmark_id=values.pop("benchmark"), **values)


def _contradictions(
    values: Mapping[str, Any], table: Mapping[str, Any], benchmark: Benchmark, *, file: str
) -> Iterator[RuleError]:
    wrong, system = partial(ClaimError, file=file), values["system"]
    if system.price_usd_per_hour is not None and system.price_source is None:
        expected = "a page that shows the price"
        yield wrong("missing", field="system.price_source", expected=expected)
    has_count = table["system"].get("accelerator_count") is not None
    rented = accelerators_of_cloud(vars(system.cloud)) if system.cloud is not None else None
    if rented is not None:
        name = system.accelerator or ""
        count = system.accelerator_count if has_count else None
        described = stated_accelerator("" if name.casefold() in NOTHING else name, count)
        if not are_of_cloud(described, rented):
            is_count = described.count not in (None, rented.count)
            words = described.words if described.model else f"{described.count} accelerators"
            yield wrong(
                f"{words}, but {system.cloud.count}\u00a0×\u00a0{system.cloud.instance} has "
                f"{rented.words}",
                field=f"system.{'accelerator_count' if is_count else 'accelerator'}",
                expected=f"{rented.words}, or as many instances in cloud.count as the runs used",
                code="accelerators_contradict_instance",
            )
    if values["trained_with"] == "reference" and benchmark.replay is None:
        message = f"{benchmark.title} has no reference training"
        yield wrong(message, field="trained_with", expected="own")
    elif values["trained_with"] == "reference" and values["division"] != "closed":
        for name in values["hyperparameters"]:
            if name not in benchmark.hyperparameters:
                names = ", ".join(sorted(benchmark.hyperparameters))
                expected = f'one of {names}, or "trained_with": "own"'
                message = "the reference has no such setting"
                yield wrong(message, field=f"hyperparameters.{name}", expected=expected)


def _find_benchmark(
    table: Mapping[str, Any], benchmarks: Mapping[str, Benchmark], *, file: str
) -> Benchmark:
    name, division = table.get("benchmark"), table.get("division")
    wrong, known = partial(ClaimError, file=file), " or ".join(sorted(benchmarks))
    if not isinstance(name, str):
        raise wrong(f"got {shown(name)}" if name else "missing", field="benchmark", expected=known)
    if name not in benchmarks and MLPERF_NAME.fullmatch(name):
        expected = "a benchmark of a known round, or a definition of it"
        message = f"{name.replace('-', ' ')} has no definition"
        raise wrong(message, field="benchmark", expected=expected)
    if name not in benchmarks:
        message = f"unknown benchmark {name[:80]!r}{did_you_mean(name, sorted(benchmarks))}"
        raise wrong(message, field="benchmark", expected=known)
    if division not in benchmarks[name].divisions:
        message = "missing" if division is None else f"unknown value {shown(division)}"
        expected = " or ".join(benchmarks[name].divisions)
        raise wrong(message, field="division", expected=expected)
    return benchmarks[name]


def check_settings(benchmark: Benchmark, division: str, settings: Mapping[str, float]) -> None:
    """Raise RuleError, naming the field, for a setting unknown to the reference."""
    file = f"{benchmark.benchmark_id}.toml"
    if division not in benchmark.divisions:
        expected = " or ".join(benchmark.divisions)
        raise RuleError(f"no division {shown(division)}", file=file, expected=expected)
    read_settings(settings, benchmark, division, file=file, of_reference=True)


def read_settings(
    settings: Mapping[str, Any],
    benchmark: Benchmark,
    division: str,
    *,
    file: str,
    of_reference: bool = False,
) -> dict[str, float]:
    """Read the settings a division may have. Raises a RuleError of each forbidden setting.

    Names are as long as in a log, and as many. `of_reference` allows only the reference's own.
    """
    problems: list[RuleError] = []
    values: dict[str, float] = {}
    for number, (name, value) in enumerate(settings.items()):
        known = benchmark.hyperparameters.get(name)
        closed = division == "closed"
        if number == MAX_HYPERPARAMETERS:
            message, expected = "too many settings", f"at most {MAX_HYPERPARAMETERS}"
        elif known is None and (closed or of_reference):
            names = sorted(benchmark.hyperparameters)
            message = f"unknown hyperparameter{did_you_mean(name, names)}"
            expected = f"one of {', '.join(names) or 'none'}"
        elif not (name.isprintable() and 0 < len(name) <= MAX_KEY_LENGTH):
            message = "no name of a setting"
            expected = f"1 to {MAX_KEY_LENGTH} printable characters"
        elif not (is_number(value) and abs(value) < math.inf) or (
            known and not known.allows(value)
        ):
            message, expected = f"got {shown(value)}", known.in_words if known else "a number"
        elif known and closed and not known.closed and value != known.default:
            message, expected = f"{value:g} in the closed division", f"{known.default:g}"
        else:
            values[name] = float(value)
            continue
        field = f"hyperparameters.{name}"
        problems.append(ClaimError(message, file=file, field=field, expected=expected))
        if number == MAX_HYPERPARAMETERS:
            break
    if problems:
        raise joined(problems)
    return values


def reference_of(benchmark: Benchmark) -> ReplayPolicy:
    """Return the replay policy with the reference's training. Raises RuleError without one."""
    if benchmark.replay is None:
        file, expected = f"{benchmark.benchmark_id}.toml", "a benchmark with a [replay] table"
        message = f"{benchmark.title} has no reference training"
        raise RuleError(message, file=file, field="replay", expected=expected)
    return benchmark.replay


def check_precision(benchmark: Benchmark, name: str | None) -> PrecisionName | None:
    """Return the precision of this name. Raises RuleError unless the reference offers it."""
    offered = reference_of(benchmark).precisions
    found = next((each for each in offered if each == name), None)
    if name is not None and found is None:
        expected = " or ".join(offered) or "none: the reference chooses by the device"
        file = f"{benchmark.benchmark_id}.toml"
        raise RuleError(f"got {shown(name)}", file=file, field="precision", expected=expected)
    return found


def trained_settings(benchmark: Benchmark, claim: Claim) -> dict[str, float]:
    """Round settings, as trained and compared, to three digits, except whole and default ones."""
    known = benchmark.hyperparameters
    return {
        name: float(value)
        if name in known and (known[name].integer or value == known[name].default)
        else float(f"{value:.3g}")
        for name, value in claim.hyperparameters.items()
    }
