"""A submission, its runs and its findings as tables and lines; the files it is made of."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from finishline.cli.client import cli_errors
from finishline.cli.tables import (
    View,
    cost_text,
    make_table,
    minute,
    number_text,
    or_dash,
    seconds_text,
    standing_text,
    status_text,
)
from finishline.client import files
from finishline.client.files import CLAIM_NAME, SubmissionFiles
from finishline.rules.proof.check import Check
from finishline.rules.text import count_text


def submission_lines(view: View) -> list[RenderableType]:
    """One submission: its result, its runs and its verifications."""
    result = view.get("result") or {}
    inference = view.get("kind") == "inference"
    system = (view.get("system") or {}).get("name")
    header = Text.assemble(
        (f"{view.get('id')}  ", "bold"),
        f"{view.get('benchmark')} {view.get('division')}{' inference' if inference else ''}  "
        f"{or_dash(view.get('model'))} on {or_dash(system)}  ",
        standing_text(view),
    )
    header = Text("\n").join([header, *_standing_lines(view)])
    if inference:
        return [header, Text(inference_sentence(result))]
    low, high = result.get("tta_low_seconds"), result.get("tta_high_seconds")
    interval = "" if low is None else f" (95 %: {low:.3f} to {high:.3f} s)"
    started = count_text(result.get("started", 0), "run")
    line = Text(
        f"TTA {or_dash(result.get('tta_display'))}, {seconds_text(result.get('tta_seconds'))}"
        f"{interval}, CV {number_text(result.get('cv_percent'), unit=' %')}, "
        f"{result.get('reached', 0)} of {started} reached the target, "
        f"cost {cost_text(result.get('cost_usd'))}"
    )
    runs = view.get("runs") or []
    return [header, line, *([run_table(runs)] if runs else []), *violation_lines(result)]


def _standing_lines(view: View) -> list[Text]:
    """Reasons that keep a submission off its board, if any."""
    found = []
    if view.get("under_embargo"):
        found.append(
            Text("Under embargo: visible to organisers and the submitter's organisation.", "yellow")
        )
    if withdrawal := view.get("withdrawal"):
        words = f"Withdrawn by {withdrawal['by']} on {minute(withdrawal['at'])}: "
        found.append(Text.assemble((words, "yellow"), withdrawal["reason"]))
    return found


def run_table(runs: Sequence[View]) -> Table:
    """The runs of a submission."""
    table = make_table("run log", "seed", "TTA", "epochs", "best", right=("TTA", "epochs", "best"))
    for run in runs:
        table.add_row(
            or_dash(run.get("file")),
            or_dash(run.get("seed")),
            seconds_text(run.get("tta_seconds")),
            number_text(run.get("epochs_to_target")),
            number_text(run.get("best_quality"), digits=4),
        )
    return table


def violation_lines(result: View) -> list[Text]:
    """Reasons why a result is not ranked, one line for each rule it breaks."""
    violations = result.get("violations") or []
    return [
        Text(f"not ranked: {item.get('message')}", style="yellow")
        for item in violations
        if isinstance(item, Mapping)
    ]


def inference_sentence(result: View) -> str:
    """Result of an inference entry, and whether it is ranked."""
    ranked = "" if result.get("eligible") else "; not ranked: the model did not reach the target"
    return (
        f"latency {number_text(result.get('latency_ms'), digits=3, unit=' ms')}, "
        f"10,000 items cost {cost_text(result.get('cost_usd_per_10000'))}, "
        f"{result.get('metric')} {number_text(result.get('quality'), digits=4)}{ranked}."
    )


def verdict_lines(view: View) -> list[RenderableType]:
    """The end of a verification: the outcome and every reason for it."""
    word = view.get("outcome") or view.get("state")
    lines: list[RenderableType] = [Text.assemble("Verdict: ", status_text(word))]
    for reason in view.get("reasons") or []:
        lines.append(Text(f"  {reason.get('code')}: {reason.get('message')}"))
    backends = view.get("backends") or []
    if backends:
        lines.append(_backend_table(backends))
    for attempt in view.get("attempts") or []:
        failure = attempt.get("failure")
        if failure:
            lines.append(
                Text(
                    f"  attempt {attempt.get('number')} failed ({failure.get('code')}): "
                    f"{str(failure.get('message')).rstrip('.')}. {failure.get('next_step')}",
                    style="yellow",
                )
            )
    return lines


def check_table(checks: Sequence[Check]) -> Table:
    """The checks of a proof, and why one did not pass."""
    table = make_table("check", "result", "compared")
    for check in checks:
        compared = f"{check.compared}: {check.why}" if check.why else check.compared
        table.add_row(check.name, status_text(check.result), compared)
    return table


def _backend_table(backends: Sequence[View]) -> Table:
    figures = ("mean", "p50", "p90", "p99")
    table = make_table(
        "backend", *figures, "items/s", "drift", "cost of 10,000", "samples", "passes",
        right=(*figures, "items/s", "drift", "cost of 10,000", "samples", "passes"),
    )  # fmt: skip
    for item in backends:
        table.add_row(
            or_dash(item.get("backend")),
            *(number_text(item.get(f"{name}_ms"), digits=3, unit=" ms") for name in figures),
            number_text(item.get("items_per_second"), digits=0),
            number_text(item.get("drift_percent"), unit=" %"),
            cost_text(item.get("cost_usd_per_10000")),
            or_dash(item.get("samples") or None),
            number_text(item.get("passes")),
        )
    return table


__all__ = ["CLAIM_NAME", "SubmissionFiles", "find_submission_files"]


def find_submission_files(path: Path) -> SubmissionFiles:
    """The files of the submission at `path`. Raises CliError if a file is missing."""
    with cli_errors():
        return files.find_submission_files(path)
