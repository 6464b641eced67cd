"""The JSON that describes a submission: submitter, runs, system, settings and training."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any, Literal, cast, get_args

import orjson

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
from finishline.rules.errors import ClaimError, RuleError
from finishline.rules.fields import Fields, read_whole
from finishline.rules.logs.lines import MAX_KEY_LENGTH
from finishline.rules.logs.mllog_values import MAX_HYPERPARAMETERS
from finishline.rules.logs.text import refuse_deep, refuse_repeated_keys
from finishline.rules.measurements import PrecisionName
from finishline.rules.text import did_you_mean, refuse_utf16, shown

MAX_SEED = 2**63 - 1
# Of seeds that train: torch on a processor and numpy use 32 bits.
MAX_TRAINED_SEED = 2**32 - 1

TrainedWith = Literal["reference", "own", "package"]
# A claim with logs; a package is handed in without any.
CLAIMED_WITH = ("reference", "own")
NOTHING = frozenset({"", "-", "n/a", "na", "none", "unknown", "tbd"})  # As text of a field.
MOST_TRIALS = 10**9
MOST_SECONDS = 1e12


@dataclass(frozen=True)
class Tuning:
    """The search that found the settings: trainings tried, and the seconds they took together."""

    trials: int
    seconds: float


Kind = Literal["train", "inference"]
CLAIM_LIMIT_BYTES = 256 * 1024
MOST_INSTANCES = 10**6
MAX_ORGANISATION_LENGTH = 200
MOST_SCALING = 1000.0  # Published factors are below 2.
MLPERF_NAME = re.compile(r"mlperf-(?:v[0-9.]{1,9}-)?[a-z0-9_]{1,80}")
ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class Cloud:
    """Rented instances by their names in a price book: `count` instances of one kind."""

    provider: str
    instance: str
    region: str
    count: int = 1


@dataclass(frozen=True)
class System:
    """The hardware and software a run was made on; absent figures are None.

    `hardware_class` names machines with comparable times. `price_usd_per_hour` is the price of the
    whole system as its submitter states it, `price_source` where it can be looked up.
    `availability` is an archive's word for whether the system can be bought or rented.
    """

    name: str
    hardware_class: str
    processor: str
    processor_count: int | None = None
    memory_gib: float | None = None
    accelerator: str | None = None
    accelerator_count: int = 0
    price_usd_per_hour: float | None = None
    price_source: str | None = None
    pricing: Pricing = "on_demand"
    cloud: Cloud | None = None
    availability: str | None = None


@dataclass(frozen=True)
class Claim:
    """A submitter's runs on one system for one benchmark and division.

    `run_files` names the run logs in order. `dawnbench` keeps the original entry. `organisation`,
    `submitted_on` and `scaling_factor` (of scaling.json) belong to a result that was published
    elsewhere. A claim of `kind` "inference" has no runs: it is about the time a trained model takes
    for one item. `precision` is the narrowest floating type that a matmul or convolution touches,
    as the submitter states it. `package` is the SHA-256 of a code submission, which has no runs
    before its measurement. With `deterministic`, equal seeds and data give equal predictions.
    `factors` has the names of its ideas that can be switched off.
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
    """A JSON object of at most 256 KiB. Raises RuleError naming the file, and the line or key.

    A key that is there twice is refused: readers differ in which of the two they believe.
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


def read_claim(
    content: bytes, *, file: str, benchmarks: Mapping[str, Benchmark], archive: bool = False
) -> Claim:
    """The claim in a submission's JSON. Raises a RuleError of each field that is wrong.

    Checks the benchmark, its divisions and the hyperparameters a division may set. Only a claim
    from an `archive` may name the owner, the day and the scaling factor of its result.
    """
    root = Fields(read_json_object(content, file=file), file=file, error=ClaimError)
    benchmark = _find_benchmark(root, benchmarks)
    division = root.choice("division", benchmark.divisions)
    read_settings = partial(read_hyperparameters, benchmark=benchmark, division=division)
    readers: dict[str, Callable[[], Any]] = {
        "hyperparameters": lambda: root.read_table("hyperparameters", read_settings) or {},
        "model": lambda: root.text("model"),
        "framework": lambda: root.text("framework"),
        "system": lambda: _system(root.table("system")),
        "run_files": lambda: _run_files(root),
        "code_url": lambda: _code_url(root),
        "notes": lambda: root.optional_text("notes"),
        "precision": lambda: (
            root.choice("precision", get_args(PrecisionName)) if root.has("precision") else None
        ),
        "trained_with": lambda: _trained_with(root, benchmark, division),
        "tuning": lambda: root.read_table(
            "tuning",
            lambda table: table.whole(
                Tuning,
                trials=table.integer("trials", minimum=0, maximum=MOST_TRIALS),
                seconds=table.number("seconds", minimum=0.0, maximum=MOST_SECONDS),
            ),
        ),
    }
    if archive:
        readers |= {
            "organisation": lambda: _organisation(root),
            "submitted_on": lambda: _submitted_on(root, benchmark),
            "scaling_factor": lambda: root.optional_number(
                "scaling_factor", minimum=1.0, maximum=MOST_SCALING
            ),
        }
    make = partial(Claim, benchmark_id=benchmark.benchmark_id, division=division)
    return read_whole(root, make, readers)


def read_date(text: str) -> date | None:
    """The day an ISO date names, None if the text is none."""
    if not ISO_DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _trained_with(root: Fields, benchmark: Benchmark, division: str) -> TrainedWith:
    """Read the origin of the training code, which for the reference takes its settings only."""
    trained_with = cast(TrainedWith, root.choice("trained_with", CLAIMED_WITH, default="own"))
    if trained_with == "own":
        return trained_with
    if benchmark.replay is None:
        message = f"{benchmark.title} has no reference training"
        raise root.fail("trained_with", message, expected="own")
    settings = root.raw("hyperparameters")
    if division == "closed" or not isinstance(settings, dict):
        return trained_with  # Already reported with the settings.
    for name in settings:
        if name not in benchmark.hyperparameters:
            names = ", ".join(sorted(benchmark.hyperparameters))
            expected = f'one of {names}, or "trained_with": "own"'
            message = "the reference has no such setting"
            raise root.fail(f"hyperparameters.{name}", message, expected=expected)
    return trained_with


def _organisation(root: Fields) -> str | None:
    name = root.optional_text("organisation")
    if name is not None and len(name) > MAX_ORGANISATION_LENGTH:
        expected = f"at most {MAX_ORGANISATION_LENGTH} characters"
        raise root.fail("organisation", f"{len(name)} characters", expected=expected)
    return name


def _submitted_on(root: Fields, benchmark: Benchmark) -> date | None:
    """The day a claim of an archive names, else that of its round."""
    text = root.optional_text("submitted_on")
    if text is None:
        return published_on(benchmark.benchmark_id)
    day = read_date(text)
    if day is None:
        raise root.fail("submitted_on", f"{text[:60]!r}", expected="a date such as 2018-04-20")
    return day


def _find_benchmark(root: Fields, benchmarks: Mapping[str, Benchmark]) -> Benchmark:
    name = root.text("benchmark")
    if name not in benchmarks and MLPERF_NAME.fullmatch(name):
        expected = "a benchmark of a known round, or a definition of it"
        message = f"{name.replace('-', ' ')} has no definition"
        raise root.fail("benchmark", message, expected=expected)
    if name not in benchmarks:
        known = " or ".join(sorted(benchmarks))
        message = f"unknown benchmark {name[:80]!r}{did_you_mean(name, sorted(benchmarks))}"
        raise root.fail("benchmark", message, expected=known)
    return benchmarks[name]


def _system(table: Fields) -> System:
    most = 10**7
    system = read_whole(
        table,
        System,
        {
            "name": lambda: table.text("name"),
            "hardware_class": lambda: _hardware_class(table),
            "processor": lambda: table.text("processor"),
            "processor_count": lambda: table.optional_integer(
                "processor_count", minimum=1, maximum=most
            ),
            "memory_gib": lambda: table.optional_number("memory_gib", minimum=0.0, maximum=1e9),
            "accelerator": lambda: table.optional_text("accelerator"),
            "accelerator_count": lambda: (
                table.optional_integer("accelerator_count", minimum=0, maximum=most) or 0
            ),
            "price_usd_per_hour": lambda: table.optional_number(
                "price_usd_per_hour", minimum=0.0001, maximum=1e9
            ),
            "price_source": lambda: _price_source(table),
            "pricing": lambda: table.choice("pricing", get_args(Pricing), default="on_demand"),
            "cloud": lambda: table.read_table("cloud", _cloud),
            "availability": lambda: table.optional_text("availability"),
        },
    )
    _refuse_other_instance(table, system)
    return system


def _refuse_other_instance(table: Fields, system: System) -> None:
    """Raise ClaimError if the described accelerators are not those of the rented instances."""
    cloud = system.cloud
    if cloud is None or (rented := accelerators_of_cloud(vars(cloud))) is None:
        return
    name = system.accelerator or ""
    count = system.accelerator_count if table.has("accelerator_count") else None
    described = stated_accelerator("" if name.casefold() in NOTHING else name, count)
    if are_of_cloud(described, rented):
        return
    is_count = described.count not in (None, rented.count)
    words = described.words if described.model else f"{described.count} accelerators"
    raise ClaimError(
        f"{words}, but {cloud.count}\u00a0×\u00a0{cloud.instance} has {rented.words}",
        file=table.file,
        field=table.field("accelerator_count" if is_count else "accelerator"),
        expected=f"{rented.words}, or as many instances in cloud.count as the runs used",
        code="accelerators_contradict_instance",
    )


def _price_source(table: Fields) -> str | None:
    source = table.optional_text("price_source")
    if source is None and table.has("price_usd_per_hour"):
        raise table.fail("price_source", "missing", expected="a page that shows the price")
    return source


def _cloud(table: Fields) -> Cloud:
    return table.whole(
        Cloud,
        provider=_book_name(table, "provider"),
        instance=_book_name(table, "instance"),
        region=_book_name(table, "region"),
        count=table.optional_integer("count", minimum=1, maximum=MOST_INSTANCES) or 1,
    )


def _hardware_class(table: Fields) -> str:
    name = table.text("hardware_class")
    if not re.fullmatch(CLASS_NAME, name):
        raise table.fail("hardware_class", f"got {name[:60]!r}", expected=A_CLASS)
    return name


def _book_name(table: Fields, name: str) -> str:
    """A provider, an instance, a region, as the price book has them."""
    longest, text = NAME_LENGTHS[name], table.text(name)
    if len(text) > longest or not text.isprintable():
        raise table.fail(name, "not a name", expected=f"one line of at most {longest} characters")
    return text


def _run_files(root: Fields) -> tuple[str, ...]:
    names = root.texts("runs")
    if len(names) > MAX_RUNS:
        raise root.fail("runs", f"{len(names)} run logs", expected=f"at most {MAX_RUNS}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise root.fail("runs", f"{twice[:60]!r} is listed twice", expected="each run log once")
    return names


def read_hyperparameters(table: Fields, benchmark: Benchmark, division: str) -> dict[str, float]:
    """Read the settings a division may have. Raises a RuleError of each that it may not.

    Names are as long as in a log, and as many.
    """
    names = [name for name, _ in table.items()]
    if len(names) > MAX_HYPERPARAMETERS:
        expected = f"at most {MAX_HYPERPARAMETERS}"
        raise table.fail(names[MAX_HYPERPARAMETERS], "too many settings", expected=expected)
    readers = {name: partial(_setting, table, name, benchmark, division) for name in names}
    return read_whole(table, dict, readers)


def _setting(table: Fields, name: str, benchmark: Benchmark, division: str) -> float:
    known = benchmark.hyperparameters.get(name)
    if known is None and division == "closed":
        raise _unknown_setting(table, name, benchmark)
    if not (name.isprintable() and 0 < len(name) <= MAX_KEY_LENGTH):
        expected = f"1 to {MAX_KEY_LENGTH} printable characters"
        raise table.fail(name, "no name of a setting", expected=expected)
    value = table.number(name)
    if known and not (
        known.minimum <= value <= known.maximum and (value.is_integer() or not known.integer)
    ):
        whole = "whole " if known.integer else ""
        expected = f"a {whole}number from {known.minimum:g} to {known.maximum:g}"
        raise table.fail(name, f"got {value:g}", expected=expected)
    if known and division == "closed" and not known.closed and value != known.default:
        raise table.fail(name, f"{value:g} in the closed division", expected=f"{known.default:g}")
    return value


def _unknown_setting(table: Fields, name: str, benchmark: Benchmark) -> RuleError:
    names = sorted(benchmark.hyperparameters)
    message = f"unknown hyperparameter{did_you_mean(name, names)}"
    return table.fail(name, message, expected=f"one of {', '.join(names) or 'none'}")


def _code_url(root: Fields) -> str | None:
    url = root.optional_text("code_url")
    if url is not None and not url.startswith(("https://", "http://")):
        raise root.fail("code_url", f"{url[:60]!r}", expected="an http(s) address")
    return url


def reference_of(benchmark: Benchmark) -> ReplayPolicy:
    """Replay policy with the reference's training. Raises RuleError if there is none."""
    if benchmark.replay is None:
        file, expected = f"{benchmark.benchmark_id}.toml", "a benchmark with a [replay] table"
        message = f"{benchmark.title} has no reference training"
        raise RuleError(message, file=file, field="replay", expected=expected)
    return benchmark.replay


def check_settings(benchmark: Benchmark, division: str, settings: Mapping[str, float]) -> None:
    """Raise RuleError, naming the field, for a setting that the reference does not take."""
    root = Fields({"hyperparameters": settings}, file=f"{benchmark.benchmark_id}.toml")
    if division not in benchmark.divisions:
        expected = " or ".join(benchmark.divisions)
        raise RuleError(f"no division {shown(division)}", file=root.file, expected=expected)
    table = root.table("hyperparameters")
    for name in settings:
        if name not in benchmark.hyperparameters:
            raise _unknown_setting(table, name, benchmark)
    read_hyperparameters(table, benchmark, division)


def check_precision(benchmark: Benchmark, name: str | None) -> PrecisionName | None:
    """Return the precision of that name. Raises RuleError unless the reference offers it."""
    offered = reference_of(benchmark).precisions
    found = next((each for each in offered if each == name), None)
    if name is not None and found is None:
        expected = " or ".join(offered) or "none: the reference chooses by the device"
        file = f"{benchmark.benchmark_id}.toml"
        raise RuleError(f"got {shown(name)}", file=file, field="precision", expected=expected)
    return found


def trained_settings(benchmark: Benchmark, claim: Claim) -> dict[str, float]:
    """The settings of a claim as they are trained and compared: to three significant digits.

    Whole numbers, such as a batch size, and the reference's own values stay exact.
    """
    known = benchmark.hyperparameters
    return {
        name: float(value)
        if name in known and (known[name].integer or value == known[name].default)
        else float(f"{value:.3g}")
        for name, value in claim.hyperparameters.items()
    }
