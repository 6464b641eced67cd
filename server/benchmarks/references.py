"""Reference packages of benchmarks: their files lie in the benchmark's own folder."""

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import REFERENCE
from finishline.rules.trainings.package import Package, read_package
from server.base.database import state_of
from server.base.services import Services
from server.benchmarks.files import read_benchmark_file


class ReferencePackages(dict[str, Package | None]):
    """Reference packages that were read, by the SHA-256 of their benchmark's definition."""


def reference_package(session: Session, benchmark: Benchmark) -> Package | None:
    """The reference of a benchmark as a package; None if it has none.

    Raises LostFileError for a file that is not there any more.
    """
    policy, known = benchmark.trainings, state_of(session, ReferencePackages)
    if policy is None or not policy.has_reference:
        return None
    if benchmark.sha256 not in known:
        services = state_of(session, Services)
        files = {
            name.removeprefix(REFERENCE): read_benchmark_file(services, benchmark, name, sha256)
            for name, sha256 in policy.files.items()
            if name.startswith(REFERENCE)
        }
        known[benchmark.sha256], _ = read_package(files, benchmarks=None)
    return known[benchmark.sha256]
