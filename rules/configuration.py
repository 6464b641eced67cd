"""A configuration: what is trained, whoever submitted it. All its submissions share one pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rules.benchmark import Benchmark
from rules.canonical import sha256_of
from rules.claim import Claim


@dataclass(frozen=True)
class Configuration:
    """The reference's full settings in a division of a benchmark, on one hardware class."""

    benchmark_id: str
    division: str
    hardware_class: str
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The key of its pools, in hex: equal for equal settings, however a claim writes them.

        Adding 0.0 makes 64 and 64.0 one number, and 0.0 and -0.0.
        """
        return sha256_of(
            {
                "benchmark": self.benchmark_id,
                "division": self.division,
                "hardware_class": self.hardware_class,
                "settings": {name: value + 0.0 for name, value in self.settings.items()},
            }
        )


def configuration_of(benchmark: Benchmark, claim: Claim) -> Configuration:
    """The configuration that a claim names: the reference's defaults fill what it leaves out."""
    return Configuration(
        benchmark_id=benchmark.benchmark_id,
        division=claim.division,
        hardware_class=claim.system.hardware_class,
        settings=benchmark.defaults() | dict(claim.hyperparameters),
    )
