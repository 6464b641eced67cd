"""Hold a claimed latency against the one measured on a worker: verified, rejected or neither.

The model that is measured is the reference's, trained to the target for this verification. A
claim is about a system and a quality: it stands if some backend runs a model that is good enough
as fast as claimed on the same hardware class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.benchmark import Benchmark
from rules.claim import Claim
from rules.errors import RuleError
from rules.judge_convergence import evaluation_at_target
from rules.latency import (
    FEWEST_SAMPLES,
    LatencyFigures,
    latency_figures,
    median_lower_bound,
    without_warmup,
)
from rules.latency_protocol import LatencyProtocol
from rules.measurements import QUIET_CPU_SHARE
from rules.messages import BackendLatency, ReplayReport, ReplayRun
from rules.verdict import Outcome, Reason, Verdict, rejects_in

QUIET_DRIFT_PERCENT = 10.0


@dataclass(frozen=True)
class Measured:
    """A backend whose outputs agree with eager's, and what its items come to."""

    latency: BackendLatency
    figures: LatencyFigures


def judge_latency(
    benchmark: Benchmark, claim: Claim, claimed_ms: float | None, report: ReplayReport
) -> Verdict:
    """Whether the fastest backend's median is the claimed latency, within tolerance and chance.

    `claimed_ms` is None where the submission claims none: then nothing is decided. A claim slower
    than measured stands. Raises RuleError if the benchmark has no latency protocol.
    """
    protocol = benchmark.latency
    if protocol is None:
        raise RuleError("no latency protocol", file=benchmark.benchmark_id, expected="[latency]")
    unmeasured = _why_unmeasured(benchmark, report)
    if unmeasured is not None:
        return Verdict(outcome="inconclusive", reasons=(unmeasured,))
    absent = [_absent(item) for item in report.runs[0].latency if item.absence is not None]
    fastest = fastest_backend(report.runs[0], protocol)
    if fastest is None:
        reasons = [*absent, Reason("latency_not_measured", "leaves_open", "no backend ran")]
    else:
        reasons = [*absent, _compare(claim, claimed_ms, fastest, report, protocol)]
    return Verdict(outcome=_outcome(reasons), reasons=tuple(reasons))


def fastest_backend(run: ReplayRun, protocol: LatencyProtocol) -> Measured | None:
    """The backend with the lowest median, of equal ones the first; None if none was measured."""
    measured = [
        Measured(item, latency_figures(item.milliseconds, warmup_items=protocol.warmup_items))
        for item in run.latency
        if item.absence is None
    ]
    return min(measured, key=lambda found: found.figures.p50_ms, default=None)


def measured_figures(benchmark: Benchmark, report: ReplayReport) -> LatencyFigures | None:
    """The figures of the fastest backend, of a model that meets the target; None without one."""
    if benchmark.latency is None or _why_unmeasured(benchmark, report) is not None:
        return None
    fastest = fastest_backend(report.runs[0], benchmark.latency)
    return fastest.figures if fastest is not None else None


def _why_unmeasured(benchmark: Benchmark, report: ReplayReport) -> Reason | None:
    run = report.runs[0] if report.runs else None
    if run is None or run.failure is not None or run.status == "cancelled":
        said = run.failure.message if run is not None and run.failure is not None else "no run"
        return Reason("latency_not_measured", "leaves_open", f"nothing was measured: {said}")
    if evaluation_at_target(benchmark, run) is None:
        goal = f"{benchmark.target.metric} {benchmark.target.value:g}"
        return Reason(
            "did_not_reach",
            "leaves_open",
            f"the trained model did not reach {goal}, and only one that does has a latency",
        )
    return None


def _absent(item: BackendLatency) -> Reason:
    absence = item.absence
    code, said = (absence.code, absence.message) if absence is not None else ("", "")
    return Reason(
        "backend_absent",
        "note",
        f"{item.backend} was not measured ({code.replace('_', ' ')}): {said}",
    )


def _compare(
    claim: Claim,
    claimed_ms: float | None,
    fastest: Measured,
    report: ReplayReport,
    protocol: LatencyProtocol,
) -> Reason:
    figures, backend = fastest.figures, fastest.latency.backend
    numbers = {"measured_p50_ms": figures.p50_ms, "samples": float(figures.samples)}
    if claimed_ms is None:
        told = f"{backend} takes {figures.p50_ms:.3g} ms; the submission claims no latency"
        return Reason("claim_has_no_latency", "leaves_open", told, numbers)
    if claim.system.hardware_class != report.system.hardware_class:
        return Reason(
            "hardware_differs",
            "leaves_open",
            f"latency was not compared: the claim was made on {claim.system.hardware_class}, "
            f"the measurement on {report.system.hardware_class}",
            numbers | {"claimed_ms": claimed_ms},
        )
    if figures.samples < FEWEST_SAMPLES[90]:
        told = f"not enough samples: {figures.samples} of {FEWEST_SAMPLES[90]}"
        return Reason("latency_not_compared", "leaves_open", told, numbers)
    kept = without_warmup(fastest.latency.milliseconds, warmup_items=protocol.warmup_items)
    at_least = median_lower_bound(kept, alpha=protocol.alpha) or 0.0
    numbers |= {
        "claimed_ms": claimed_ms,
        "ratio": figures.p50_ms / claimed_ms,
        "tolerated_ratio": 1 + protocol.time_tolerance,
    }
    told = (
        f"on the same hardware class {backend}, the fastest backend, takes "
        f"{figures.p50_ms / claimed_ms:.2f} times the claimed latency"
    )
    if at_least <= claimed_ms * (1 + protocol.time_tolerance):
        return Reason("latency_agrees", "supports", told, numbers)
    noise = _why_noisy(fastest, report)
    if noise is not None:
        return Reason("noisy_host", "leaves_open", f"latency was not compared: {noise}", numbers)
    return Reason(
        "latency_slower_than_claimed",
        rejects_in(claim.division),
        f"{told}, more than the tolerated {1 + protocol.time_tolerance:.2f} and more than chance",
        numbers,
    )


def _why_noisy(fastest: Measured, report: ReplayReport) -> str | None:
    """Why a slow measurement may be the host's doing: other work, or a change under way."""
    drift = fastest.figures.drift_percent or 0.0
    if abs(drift) > QUIET_DRIFT_PERCENT:
        return f"from the first half of the items to the second the time changed by {drift:+.0f} %"
    seconds, cpu = fastest.latency.seconds, fastest.latency.cpu_seconds
    on_processor = not report.system.accelerator_count
    if on_processor and seconds and cpu is not None and cpu / seconds < QUIET_CPU_SHARE:
        return "the worker's processor was shared with other work"
    return None


def _outcome(reasons: Sequence[Reason]) -> Outcome:
    weights = {reason.weight for reason in reasons}
    if "rejects" in weights:
        return "rejected"
    return "inconclusive" if "leaves_open" in weights else "verified"
