"""Figures and findings as Prometheus metrics: one name, one help, one unit each."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from server.health.findings import Finding
from server.observability.figures import Figures
from server.observability.queue_figures import Queue, WorkerSeen

OPEN = ("queued", "running")
CHANNELS = ("webhook", "mail")
DELIVERY_STATES = ("waiting", "delivered", "failed")


def figure_families(figures: Figures) -> Iterator[Metric]:
    """What the database says; the same from every server process."""
    yield from _queues(figures.queues)
    yield _workers(figures.workers)
    yield from _attempts(figures)
    replays = SummaryMetricFamily(
        "finishline_replay_seconds",
        "From claim to report of attempts that ended with one.",
        labels=("benchmark",),
    )
    for benchmark, (count, seconds) in sorted(figures.replays.items()):
        replays.add_metric((benchmark,), count_value=count, sum_value=seconds)
    yield replays
    yield _counter(
        "finishline_verdicts",
        "Verifications that ended in an outcome, by kind of verification.",
        ("kind", "outcome"),
        figures.verdicts,
    )
    yield _counter(
        "finishline_submissions",
        "Submissions kept, by kind; those of an archive were published elsewhere.",
        ("kind", "archive"),
        {(kind, str(old).lower()): count for (kind, old), count in figures.submissions.items()},
    )
    yield from _deliveries(figures)


def _deliveries(figures: Figures) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "finishline_deliveries",
        "Messages of the last 30 days by channel (webhook, mail) and state.",
        labels=("channel", "state"),
    )
    for labels in product(CHANNELS, DELIVERY_STATES):
        family.add_metric(labels, figures.deliveries.get(labels, 0))
    yield family
    yield GaugeMetricFamily(
        "finishline_delivery_overdue_seconds",
        "How long ago the next try of a message should have begun; 0 if none is late.",
        value=figures.delivery_overdue_seconds,
    )


def _queues(queues: Sequence[Queue]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "finishline_queued_attempts",
        "Attempts that wait for a worker of a hardware class, or for any.",
        labels=("hardware_class",),
    )
    oldest = GaugeMetricFamily(
        "finishline_oldest_queued_attempt_age_seconds",
        "Age of the oldest attempt that waits; 0 if none does.",
        labels=("hardware_class",),
    )
    beside_free = GaugeMetricFamily(
        "finishline_queued_beside_free_worker_age_seconds",
        "Age of the oldest attempt that waits while a worker that could take it is idle, else 0.",
        labels=("hardware_class",),
    )
    for queue in queues:
        waiting.add_metric((queue.hardware_class,), queue.attempts)
        oldest.add_metric((queue.hardware_class,), queue.oldest_seconds)
        beside_free.add_metric((queue.hardware_class,), queue.beside_free_seconds)
    yield from (waiting, oldest, beside_free)


def _workers(workers: Sequence[WorkerSeen]) -> Metric:
    family = GaugeMetricFamily(
        "finishline_workers",
        "Workers by state: idle and busy ones get work; those in any other state get none.",
        labels=("hardware_class", "state"),
    )
    counts = Counter((worker.hardware_class, worker.state) for worker in workers)
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _attempts(figures: Figures) -> Iterator[Metric]:
    by_state: Counter[str] = Counter()
    for (state, _), count in figures.attempts.items():
        by_state[state] += count
    yield GaugeMetricFamily(
        "finishline_running_attempts", "Attempts under way.", value=by_state["running"]
    )
    yield _counter(
        "finishline_attempts_ended",
        "Attempts that ended, by state and kind of failure (none if it did not fail).",
        ("state", "failure"),
        {key: count for key, count in figures.attempts.items() if key[0] not in OPEN},
    )
    yield CounterMetricFamily(
        "finishline_leases_lost",
        "Attempts whose worker went silent until its lease ran out.",
        value=by_state["lost"],
    )
    yield GaugeMetricFamily(
        "finishline_running_attempt_past_lease_seconds",
        "How long ago the first lease of an attempt under way ran out; 0 if none did.",
        value=figures.past_lease_seconds,
    )


def _counter(
    name: str, text: str, labels: tuple[str, str], counts: Mapping[tuple[str, str], int]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, count in sorted(counts.items()):
        family.add_metric(key, count)
    return family


def finding_families(findings: Sequence[Finding], *, ready: bool) -> Iterator[Metric]:
    """What /readyz says, and the figures it found on the way."""
    yield GaugeMetricFamily(
        "finishline_ready", "1 while this process can take submissions, as /readyz says.", ready
    )
    well = GaugeMetricFamily(
        "finishline_check_ok", "1 while a check of /readyz finds nothing wrong.", labels=("check",)
    )
    for finding in findings:
        well.add_metric((finding.name,), finding.state == "ok")
    yield well
    for finding in findings:
        for name, (text, value) in finding.figures.items():
            yield GaugeMetricFamily(f"finishline_{name}", text, value)
