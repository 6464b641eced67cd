"""Settings of a training, and the configuration that all submissions with them share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark, ReplayPolicy
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import did_you_mean, shown


def reference_of(benchmark: Benchmark) -> ReplayPolicy:
    """Replay policy with the reference's training. Raises RuleError if there is none."""
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
            f"no division {shown(division)}", file=file, expected=" or ".join(benchmark.divisions)
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


def check_precision(benchmark: Benchmark, name: str | None) -> PrecisionName | None:
    """Return the precision of that name. Raises RuleError unless the reference offers it."""
    offered = reference_of(benchmark).precisions
    found = next((each for each in offered if each == name), None)
    if name is not None and found is None:
        expected = " or ".join(offered) or "none: the reference chooses by the device"
        raise RuleError(
            f"got {shown(name)}", file=_file(benchmark), field="precision", expected=expected
        )
    return found


def _file(benchmark: Benchmark) -> str:
    return f"{benchmark.benchmark_id}.toml"


@dataclass(frozen=True)
class Configuration:
    """The reference's full settings in a division of a benchmark, on one hardware class.

    `precision` is None where it is the reference's own. Of a package it is `code`: its hash, that
    of its environment, and the files and limits that its benchmark trains it by.
    """

    benchmark_id: str
    division: str
    hardware_class: str
    settings: Mapping[str, float] = field(default_factory=dict)
    code: Mapping[str, Any] | None = None
    precision: str | None = None

    @property
    def sha256(self) -> str:
        """The key of its pools, in hex: equal for equal settings, however a claim writes them."""
        key: dict[str, Any] = {
            "benchmark": self.benchmark_id,
            "division": self.division,
            "hardware_class": self.hardware_class,
            "settings": dict(self.settings),
        }
        if self.precision is not None:
            key["precision"] = self.precision
        return sha256_of(key if self.code is None else key | {"code": dict(self.code)})


def configuration_of(
    benchmark: Benchmark, claim: Claim, *, environment: str | None = None
) -> Configuration:
    """The configuration that a claim names: the reference's defaults fill omitted settings.

    `environment` is the hash of a package's environment.
    """
    policy, code = benchmark.trainings, None
    if claim.package is not None and policy is not None:
        code = {
            "package": claim.package,
            "environment": environment,
            "files": dict(policy.files),
            "limits": [policy.threads, policy.max_evaluations, policy.prepare_seconds],
        }
    return Configuration(
        benchmark_id=benchmark.benchmark_id,
        division=claim.division,
        hardware_class=claim.system.hardware_class,
        settings={} if code else benchmark.defaults() | dict(claim.hyperparameters),
        code=code,
        precision=benchmark.replay.told(claim.precision) if benchmark.replay and not code else None,
    )
