"""Verify a claimed latency: plan its measurement, check the report, judge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import LatencyProtocol
from finishline.rules.errors import RuleError
from finishline.rules.measurements import QUIET_CPU_SHARE
from finishline.rules.scoring.latency import (
    FEWEST_ITEMS,
    FEWEST_SAMPLES,
    LatencyFigures,
    latency_figures,
    median_lower_bound,
    without_warmup,
)
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.job import Case, Purpose, Request, Words, draw
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import (
    Backend,
    BackendLatency,
    ReplayReport,
    ReplayRun,
    Training,
)
from finishline.rules.verification.replay import train_as_claimed, why_not_timed
from finishline.rules.verification.verdict import Reason, Verdict, rejects_in


def check_latency(report: ReplayReport, benchmark: Benchmark) -> None:
    """Raise RuleError, naming run and backend, unless every latency is as the protocol orders.

    A finished run has each backend once, with its times or the reason for their absence. Times are
    whole passes with as many items as ordered, or fewer after a slow model's limit. They are
    positive, no longer together than the run, with outputs within the tolerance.
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
        together = math.fsum(value for item in run.latency for value in item.milliseconds) / 1000.0
        if run.parent_seconds is not None and together > run.parent_seconds:
            most = f"at most the run's {run.parent_seconds:.3f} s"
            raise _impossible(run, None, f"{together:.3f} s of items", most)


def _check_backend(
    run: ReplayRun, item: BackendLatency, protocol: LatencyProtocol, test_items: int | None
) -> None:
    if item.absence is not None:
        if item.milliseconds:
            raise _impossible(run, item, "times beside an absence", "one of them")
        return
    count = protocol.warmup_items + protocol.samples_of(test_items)
    found = len(item.milliseconds)
    # A backend that took too long for its times has fewer.
    samples = found - protocol.warmup_items
    allowed = protocol.enough_seconds if samples >= FEWEST_ITEMS else protocol.most_seconds
    is_ended = samples >= 1 and found < count and (item.seconds or 0.0) > allowed
    if not (found == count or is_ended):
        raise _impossible(run, item, count_text(found, "item"), f"{count} with warm-up")
    if not all(math.isfinite(value) and value > 0 for value in item.milliseconds):
        raise _impossible(run, item, "a time that is not above 0", "positive milliseconds")
    difference = item.largest_difference
    if difference is None or not 0 <= difference <= protocol.output_tolerance:
        most = f"at most {protocol.output_tolerance:g}"
        raise _impossible(run, item, f"outputs differ by {difference}", most)


def _impossible(
    run: ReplayRun, item: BackendLatency | None, found: str, expected: str
) -> RuleError:
    field = f"runs[{run.index}].latency" + (f".{item.backend}" if item is not None else "")
    return RuleError(f"the report has {found}", field=field, expected=expected)


def plan_latency(request: Request) -> list[Training]:
    """Plan the training of the model to time."""
    drawn = draw(request.entropy, runs=1)
    return train_as_claimed(request, drawn, "tta", "latency", "profile")


def why_not_measurable(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """Return why a claim's latency can't be measured.

    An inference result names no settings: the reference is trained with its own.
    """
    claim = claims[0]
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to measure yet"
    if benchmark.latency is None:
        name = benchmark.benchmark_id
        return f"the definition of {name} that it is scored under has no [latency]"
    if benchmark.score.by == "quality":
        return f"{benchmark.benchmark_id} ranks by quality, and a latency is of a model at a target"
    if claim.kind == "train" and claim.dawnbench is not None:
        return "a DAWNBench entry has no hyperparameters to train its model with"
    unknown = sorted(set(claim.hyperparameters) - set(benchmark.hyperparameters))
    if unknown:
        return f"the reference model has no hyperparameter {unknown[0]!r}"
    return None


QUIET_DRIFT_PERCENT = 10.0


@dataclass(frozen=True)
class Measured:
    """A backend with outputs that agree with eager's, and the figures of its items."""

    latency: BackendLatency
    figures: LatencyFigures


def judge_latency(
    benchmark: Benchmark, claim: Claim, claimed_ms: float | None, report: ReplayReport
) -> Verdict:
    """Whether the fastest backend's median is the claimed latency, within tolerance and chance.

    A slower claim is valid, a missing one leaves it open. Raises RuleError without a protocol.
    """
    protocol = benchmark.latency
    if protocol is None:
        raise RuleError("no latency protocol", file=benchmark.benchmark_id, expected="[latency]")
    unmeasured = why_unmeasured(benchmark, report)
    if unmeasured is not None:
        return Verdict(outcome="inconclusive", reasons=(unmeasured,))
    reasons = []
    for item in report.runs[0].latency:
        if item.absence is not None:
            why = f"({item.absence.code.replace('_', ' ')}): {item.absence.message}"
            told = f"{item.backend} was not measured {why}"
            reasons.append(Reason("backend_absent", "note", told))
    fastest = fastest_backend(report.runs[0], protocol)
    if fastest is None:
        reasons.append(Reason("latency_not_measured", "leaves_open", "no backend ran"))
    else:
        reasons.append(_compare(claim, claimed_ms, fastest, report, protocol))
    return Verdict.of(reasons)


def fastest_backend(run: ReplayRun, protocol: LatencyProtocol) -> Measured | None:
    measured = [
        Measured(item, latency_figures(item.milliseconds, warmup_items=protocol.warmup_items))
        for item in run.latency
        if item.absence is None
    ]
    return min(measured, key=lambda found: found.figures.p50_ms, default=None)


def why_unmeasured(benchmark: Benchmark, report: ReplayReport) -> Reason | None:
    run = report.runs[0] if report.runs else None
    if run is None or run.failure is not None or run.status == "cancelled":
        said = run.failure.message if run is not None and run.failure is not None else "no run"
        return Reason("latency_not_measured", "leaves_open", f"nothing was measured: {said}")
    if evaluation_at_target(benchmark, run) is None:
        goal = f"{benchmark.target.called} {benchmark.target.value:g}"
        told = f"the trained model did not reach {goal}, and only one that does has a latency"
        return Reason("did_not_reach", "leaves_open", told)
    return None


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
    elsewhere = why_not_timed(report, hardware_class=claim.system.hardware_class)
    if elsewhere is not None:
        numbers["claimed_ms"] = claimed_ms
        return replace(elsewhere, weight="leaves_open", numbers=numbers)
    if figures.samples < FEWEST_SAMPLES[90]:
        told = f"not enough samples: {figures.samples} of {FEWEST_SAMPLES[90]}"
        return Reason("latency_not_compared", "leaves_open", told, numbers)
    kept = without_warmup(fastest.latency.milliseconds, warmup_items=protocol.warmup_items)
    at_least = median_lower_bound(kept, alpha=protocol.alpha) or 0.0
    ratio, tolerated = figures.p50_ms / claimed_ms, 1 + protocol.time_tolerance
    numbers |= {"claimed_ms": claimed_ms, "ratio": ratio, "tolerated_ratio": tolerated}
    told = (
        f"on the same hardware class {backend}, the fastest backend, takes {ratio:.2f} times the "
        "claimed latency"
    )
    if at_least <= claimed_ms * tolerated:
        return Reason("latency_agrees", "supports", told, numbers)
    noise = _why_noisy(fastest, report)
    if noise is not None:
        return Reason("noisy_host", "leaves_open", f"latency was not compared: {noise}", numbers)
    told += f", more than the tolerated {tolerated:.2f} and more than chance"
    return Reason("latency_slower_than_claimed", rejects_in(claim.division), told, numbers)


def _why_noisy(fastest: Measured, report: ReplayReport) -> str | None:
    """Return why the host may have slowed the measurement: other work, or a change under way."""
    drift = fastest.figures.drift_percent or 0.0
    if abs(drift) > QUIET_DRIFT_PERCENT:
        return f"from the first half of the items to the second the time changed by {drift:+.0f} %"
    seconds, cpu = fastest.latency.seconds, fastest.latency.cpu_seconds
    on_processor = not report.system.accelerator_count
    if on_processor and seconds and cpu is not None and cpu / seconds < QUIET_CPU_SHARE:
        return "the worker's processor was shared with other work"
    return None


def _judge(case: Case) -> Verdict:
    check_latency(case.report, case.benchmark)
    return judge_latency(case.benchmark, case.require_claim(), case.latency_ms, case.report)


LATENCY = Purpose(
    name="latency",
    track="evidence",
    plan=plan_latency,
    judge=_judge,
    why_not=why_not_measurable,
    unable="cannot have its latency measured",
    words=Words(
        to_do="train and time the model of",
        doing="Training and timing the model of",
        endings={
            "verified": "The measured latency agrees with the claimed one.",
            "rejected": "The measured latency contradicts the claimed one.",
            "": "Inconclusive: the latency could not be confirmed.",
        },
        about="train once and time the model, one item at a time",
    ),
    checks_claims="inference",
)
