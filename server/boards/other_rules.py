"""Which entries of a board were scored by other rules than those in force, and by which."""

from collections.abc import Iterable

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.phases import rules_that_differ
from finishline.rules.errors import BenchmarkError
from server.benchmarks.queries import definition


def other_rules(session: Session, benchmark: Benchmark, sha256s: Iterable[str]) -> dict[str, str]:
    """How the rules of definitions differ from those in force, in words, by their SHA-256.

    Those whose figures may be compared with what is scored now are left out.
    """
    earlier = sorted({sha256 for sha256 in sha256s if sha256 != benchmark.sha256})
    words = {sha256: _words(session, benchmark, sha256) for sha256 in earlier}
    return {sha256: text for sha256, text in words.items() if text is not None}


def _words(session: Session, benchmark: Benchmark, sha256: str) -> str | None:
    try:
        earlier = definition(session, sha256)
    except BenchmarkError:  # Written for an earlier release.
        return f"definition {sha256[:12]}, which cannot be compared"
    differ = rules_that_differ(earlier, benchmark)
    return f"version {earlier.version}, other {', '.join(differ)}" if differ else None
