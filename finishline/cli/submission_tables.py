"""Submissions, their runs and findings, verdicts and batches as lines for people."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.errors import cli_errors
from finishline.cli.listings import table_of
from finishline.cli.screen import as_it_is
from finishline.cli.tables import (
    View,
    cost_text,
    minute,
    number_text,
    or_dash,
    seconds_text,
    standing_text,
    status_text,
    time_text,
)
from finishline.client import files
from finishline.client.files import CLAIM_NAME, SubmissionFiles
from finishline.rules.text import count_text

__all__ = ["CLAIM_NAME", "SubmissionFiles", "find_submission_files"]


def find_submission_files(path: Path) -> SubmissionFiles:
    """The files of the submission at `path`. Raises CliError if a file is missing."""
    with cli_errors():
        return files.find_submission_files(path)


def submission_lines(view: View) -> Iterator[RenderableType]:
    """One submission: its result, its runs and the rules that it breaks."""
    result = view.get("result") or {}
    inference = view.get("kind") == "inference"
    system = (view.get("system") or {}).get("name")
    yield Text.assemble(
        (f"{view.get('id', 'Preview')}  ", "bold"),
        f"{view.get('benchmark')} {view.get('division')}{' inference' if inference else ''}  "
        f"{or_dash(view.get('model'))} on {or_dash(system)}  ",
        standing_text(view),
    )
    if view.get("under_embargo"):
        told = "Under embargo: visible to organisers and the submitter's organisation."
        yield Text(told, "yellow")
    if withdrawal := view.get("withdrawal"):
        words = f"Withdrawn by {withdrawal['by']} on {minute(withdrawal['at'])}: "
        yield Text.assemble((words, "yellow"), withdrawal["reason"])
    if inference:
        yield Text(inference_sentence(result))
        return
    if package := view.get("package"):
        yield as_it_is(
            f"package {package['sha256']}, {package['environment']}, {package['license']}"
        )
        yield from time_lines(view)
        return
    low, high = result.get("tta_low_seconds"), result.get("tta_high_seconds")
    interval = "" if low is None else f" (95 %: {low:.3f} to {high:.3f} s)"
    seconds = result.get("tta_seconds")
    exact = "" if seconds is None or seconds < 60 else f", {seconds_text(seconds)}"
    yield Text(
        f"TTA {time_text(seconds)}{exact}"
        f"{interval}, CV {number_text(result.get('cv_percent'), unit=' %')}, "
        f"{result.get('reached', 0)} of {count_text(result.get('started', 0), 'run')} reached the "
        f"target, cost {cost_text(result.get('cost_usd'))}"
    )
    if runs := view.get("runs"):
        yield table_of("runs", runs)
    yield from violation_lines(result, view.get("waivers") or ())


def place_line(preview: View) -> str:
    """The place that a previewed submission would take; provisional ones in brackets."""
    provisional = preview.get("provisional_rank")
    place = preview.get("rank") or (provisional and f"({provisional})") or "none"
    reason = preview.get("unranked_reason")
    return f"Nothing was sent. Place {place} of {preview.get('entries')}" + (
        f": {reason}." if reason else "."
    )


def time_lines(entry: View) -> Iterator[Text]:
    """The measured time of an entry and its rank, if it has one."""
    seconds = entry.get("measured_seconds")
    if seconds is None:
        return
    low, high = entry.get("measured_low_seconds"), entry.get("measured_high_seconds")
    interval = "" if low is None else f" (95 %: {seconds_text(low)} to {seconds_text(high)})"
    runs = number_text(entry.get("measured_runs"), digits=0)
    original = (entry.get("package") or {}).get("same_program_as")
    measuring = [
        each["id"]
        for each in entry.get("verifications") or ()
        if each["kind"] == "entry" and each["state"] in ("queued", "running")
    ]
    if entry.get("rank") is not None:
        ranked = f"rank {entry['rank']}"
    elif original is not None:
        ranked = f"without a rank, as the same program as {original},"
    elif measuring:
        ranked = f"without a rank while it is measured (finishline verify {measuring[0]} --watch)"
    else:
        ranked = "without a rank yet"
    yield Text(
        f"{seconds_text(seconds)}{interval} over {runs} runs on "
        f"{entry['system']['hardware_class']}: {ranked} on {entry['benchmark']}.",
        style="bold",
    )


def violation_lines(result: View, waivers: Sequence[View] = ()) -> Iterator[Text]:
    """Rules that a result breaks, one line each: waived, or a reason why it is not ranked."""
    waived = {waiver["rule"]: waiver for waiver in waivers}
    for item in result.get("violations") or []:
        if isinstance(item, Mapping):
            waiver = waived.get(item.get("code"))
            why = "not ranked"
            if waiver is not None:
                why = f"waived by {waiver['by']}, {waiver['reason']}"
            yield Text(f"{why}: {item.get('message')}", style="yellow")


def inference_sentence(result: View) -> str:
    """Result of an inference entry, and whether it is ranked."""
    ranked = "" if result.get("eligible") else "; not ranked: the model did not reach the target"
    return (
        f"latency {number_text(result.get('latency_ms'), digits=3, unit=' ms')}, "
        f"10,000 items cost {cost_text(result.get('cost_usd_per_10000'))}, "
        f"{result.get('metric')} {number_text(result.get('quality'), digits=4)}{ranked}."
    )


def verdict_lines(view: View) -> Iterator[RenderableType]:
    """The end of a verification: the pairs of a duel, the outcome and every reason for it."""
    if pairs := (view.get("duel") or {}).get("pairs"):
        yield table_of("pairs", pairs)
    yield Text.assemble("Verdict: ", status_text(view.get("outcome") or view.get("state")))
    for reason in view.get("reasons") or []:
        yield Text(f"  {reason.get('code')}: {reason.get('message')}")
    if backends := view.get("backends"):
        yield table_of("backends", backends)
    for attempt in view.get("attempts") or []:
        if failure := attempt.get("failure"):
            yield Text(
                f"  attempt {attempt.get('number')} failed ({failure.get('code')}): "
                f"{str(failure.get('message')).rstrip('.')}. {failure.get('next_step')}",
                style="yellow",
            )


def batch_lines(view: View, url: str) -> Iterator[RenderableType]:
    """Verifications a batch queued, or would queue, with their probable cost."""
    replays, skipped = view.get("replays") or [], view.get("skipped") or []
    if replays:
        yield table_of("replays", replays)
    for item in skipped:
        yield Text(f"skipped {item.get('submission_id')}: {item.get('why')}", style="yellow")
    gpu, cpu = view.get("gpu_seconds_expected"), view.get("cpu_seconds_expected")
    yield (
        f"{len(replays)} {'would be queued' if view.get('dry_run') else 'queued'}, "
        f"{len(skipped)} skipped; expected "
        f"{number_text(gpu)} GPU seconds, {number_text(cpu)} CPU seconds"
    )
    if replays and not view.get("dry_run"):
        yield "Follow one: finishline verify VERIFICATION --watch"
        yield as_it_is(f"Cancel one on its page: {url}/verifications/VERIFICATION")
