"""What somebody chooses to train a reference with, before anything is trained."""

from collections.abc import Mapping

from rules.benchmark import Benchmark, ReplayPolicy
from rules.errors import RuleError
from rules.near_miss import did_you_mean


def reference_of(benchmark: Benchmark) -> ReplayPolicy:
    """How the reference is trained. Raises RuleError for a benchmark that has none."""
    if benchmark.replay is None:
        raise RuleError(
            f"{benchmark.title} has no reference training",
            file=_file(benchmark),
            field="replay",
            expected="a benchmark with a [replay] table",
        )
    return benchmark.replay


def check_settings(benchmark: Benchmark, division: str, settings: Mapping[str, float]) -> None:
    """Raise RuleError, naming the field, for a setting that a division does not take."""
    file = _file(benchmark)
    if division not in benchmark.divisions:
        raise RuleError(
            f"no division {division!r}", file=file, expected=" or ".join(benchmark.divisions)
        )
    for name, value in settings.items():
        known = benchmark.hyperparameters.get(name)
        if known is None:
            raise RuleError(
                f"unknown hyperparameter{did_you_mean(name, benchmark.hyperparameters)}",
                file=file,
                field=f"hyperparameters.{name}",
                expected="one of " + ", ".join(benchmark.hyperparameters),
            )
        if division == "closed" and not known.closed and value != known.default:
            raise RuleError(
                f"{value:g} in the closed division",
                file=file,
                field=f"hyperparameters.{name}",
                expected=f"{known.default:g}, or the open division",
            )
        whole = "whole " if known.integer else ""
        if not known.minimum <= value <= known.maximum or (whole and not value.is_integer()):
            raise RuleError(
                f"got {value:g}",
                file=file,
                field=f"hyperparameters.{name}",
                expected=f"a {whole}number from {known.minimum:g} to {known.maximum:g}",
            )


def _file(benchmark: Benchmark) -> str:
    return f"{benchmark.benchmark_id}.toml"
