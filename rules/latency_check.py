"""Is a reported latency possible at all, and measured as it was ordered?"""

import math
from typing import get_args

from rules.benchmark import Benchmark
from rules.counts import count_text
from rules.errors import RuleError
from rules.latency_protocol import FEWEST_ITEMS, LatencyProtocol
from rules.messages import Backend, BackendLatency, ReplayReport, ReplayRun


def check_latency(report: ReplayReport, benchmark: Benchmark) -> None:
    """Raise RuleError, naming run and backend, unless every latency is as the protocol orders.

    Each backend is there once, a finished run has them all, and each has either its times or the
    reason why not: whole passes with as many items as ordered, or fewer after the time that a slow
    model has, positive, no longer together than the run was, with outputs within the tolerance.
    """
    protocol = benchmark.latency
    if protocol is None:
        raise RuleError("no latency protocol", file=benchmark.benchmark_id, expected="[latency]")
    for run in report.runs:
        names = [item.backend for item in run.latency]
        wanted = list(get_args(Backend)) if run.status == "reached" else names
        if len(set(names)) != len(names) or sorted(names) != sorted(wanted):
            raise _impossible(run, None, f"{names}", "each of " + ", ".join(get_args(Backend)))
        for item in run.latency:
            _check_backend(run, item, protocol, benchmark.data_set.test_items)
        _check_span(run)


def _check_backend(
    run: ReplayRun, item: BackendLatency, protocol: LatencyProtocol, test_items: int | None
) -> None:
    if item.absence is not None:
        if item.milliseconds:
            raise _impossible(run, item, "times beside an absence", "one of them")
        return
    count = protocol.warmup_items + protocol.samples_of(test_items)
    if not (len(item.milliseconds) == count or _ended_by_its_limit(item, protocol, count)):
        raise _impossible(
            run, item, count_text(len(item.milliseconds), "item"), f"{count} with warm-up"
        )
    if not all(math.isfinite(value) and value > 0 for value in item.milliseconds):
        raise _impossible(run, item, "a time that is not above 0", "positive milliseconds")
    difference = item.largest_difference
    if difference is None or not 0 <= difference <= protocol.output_tolerance:
        raise _impossible(
            run, item, f"outputs differ by {difference}", f"at most {protocol.output_tolerance:g}"
        )


def _ended_by_its_limit(item: BackendLatency, protocol: LatencyProtocol, count: int) -> bool:
    """Whether a backend has fewer times than ordered because it took too long for them."""
    samples = len(item.milliseconds) - protocol.warmup_items
    if item.seconds is None or not 1 <= samples < count - protocol.warmup_items:
        return False
    allowed = protocol.enough_seconds if samples >= FEWEST_ITEMS else protocol.most_seconds
    return item.seconds > allowed


def _check_span(run: ReplayRun) -> None:
    together = math.fsum(value for item in run.latency for value in item.milliseconds) / 1000.0
    if run.parent_seconds is not None and together > run.parent_seconds:
        raise _impossible(
            run, None, f"{together:.3f} s of items", f"at most the run's {run.parent_seconds:.3f} s"
        )


def _impossible(
    run: ReplayRun, item: BackendLatency | None, found: str, expected: str
) -> RuleError:
    field = f"runs[{run.index}].latency" + (f".{item.backend}" if item is not None else "")
    return RuleError(f"the report has {found}", field=field, expected=expected)
