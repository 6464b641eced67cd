"""Files of a benchmark's own folder, such as its task, by the hashes in its definition."""

import hashlib

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.errors import LostFileError
from server.base.services import Services


def read_benchmark_file(services: Services, benchmark: Benchmark, name: str, sha256: str) -> bytes:
    """Content of a file: from the definitions' folder, else from the store of artifacts.

    Raises LostFileError where neither has this content.
    """
    path = services.settings.benchmarks_dir / benchmark.benchmark_id / name
    if path.is_file():
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
    try:
        with services.artifacts.open(sha256) as file:
            return file.read()
    except OSError as error:
        raise LostFileError(sha256) from error
