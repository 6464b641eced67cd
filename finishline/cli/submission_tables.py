"""Submissions, their runs and findings, duels, batches and comparisons as tables and lines."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from finishline.cli.errors import cli_errors
from finishline.cli.screen import as_it_is
from finishline.cli.tables import (
    ABSENT,
    View,
    cost_text,
    make_table,
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


def submission_lines(view: View) -> list[RenderableType]:
    """One submission: its result, its runs and its verifications."""
    result = view.get("result") or {}
    inference = view.get("kind") == "inference"
    system = (view.get("system") or {}).get("name")
    header = Text.assemble(
        (f"{view.get('id', 'Preview')}  ", "bold"),
        f"{view.get('benchmark')} {view.get('division')}{' inference' if inference else ''}  "
        f"{or_dash(view.get('model'))} on {or_dash(system)}  ",
        standing_text(view),
    )
    header = Text("\n").join([header, *_standing_lines(view)])
    if inference:
        return [header, Text(inference_sentence(result))]
    if package := view.get("package"):
        told = f"package {package['sha256']}, {package['environment']}, {package['license']}"
        return [header, as_it_is(told), *time_lines(view)]
    low, high = result.get("tta_low_seconds"), result.get("tta_high_seconds")
    interval = "" if low is None else f" (95 %: {low:.3f} to {high:.3f} s)"
    started = count_text(result.get("started", 0), "run")
    line = Text(
        f"TTA {_exact_time(result.get('tta_seconds'))}"
        f"{interval}, CV {number_text(result.get('cv_percent'), unit=' %')}, "
        f"{result.get('reached', 0)} of {started} reached the target, "
        f"cost {cost_text(result.get('cost_usd'))}"
    )
    runs = view.get("runs") or []
    return [
        header,
        line,
        *([run_table(runs)] if runs else []),
        *violation_lines(result, view.get("waivers") or ()),
    ]


def _exact_time(seconds: float | None) -> str:
    """A time, with its seconds where it is of minutes."""
    more = "" if seconds is None or seconds < 60 else f", {seconds_text(seconds)}"
    return time_text(seconds) + more


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
    rank = entry.get("rank")
    original = (entry.get("package") or {}).get("same_program_as")
    ranked = _no_rank_yet(entry) if rank is None else f"rank {rank}"
    if rank is None and original is not None:
        ranked = f"without a rank, as the same program as {original},"
    yield Text(
        f"{seconds_text(seconds)}{interval} over {runs} runs on "
        f"{entry['system']['hardware_class']}: {ranked} on {entry['benchmark']}.",
        style="bold",
    )


def _no_rank_yet(entry: View) -> str:
    """Words for a measured entry without a rank, with its measurement where one is under way."""
    measuring = next(
        (
            each["id"]
            for each in entry.get("verifications") or ()
            if each["kind"] == "entry" and each["state"] in ("queued", "running")
        ),
        None,
    )
    if measuring is None:
        return "without a rank yet"
    return f"without a rank while it is measured (finishline verify {measuring} --watch)"


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


def violation_lines(result: View, waivers: Sequence[View] = ()) -> list[Text]:
    """Rules that a result breaks, one line each: waived, or a reason why it is not ranked."""
    violations = result.get("violations") or []
    waived = {waiver["rule"]: waiver for waiver in waivers}
    lines = []
    for item in violations:
        if not isinstance(item, Mapping):
            continue
        waiver = waived.get(item.get("code"))
        why = "not ranked" if waiver is None else f"waived by {waiver['by']}, {waiver['reason']}"
        lines.append(Text(f"{why}: {item.get('message')}", style="yellow"))
    return lines


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


def duel_lines(view: View) -> list[RenderableType]:
    """The table of pairs where there are any, and the verdict with every reason."""
    pairs = (view.get("duel") or {}).get("pairs") or []
    return [*([pair_table(pairs)] if pairs else []), *verdict_lines(view)]


def pair_table(pairs: list[View]) -> Table:
    """Each pair of runs: the challenger's A, the holder's B."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("pair", "A challenger", "B holder", "A/B", "faster"):
        table.add_column(column, justify="left" if column == "faster" else "right", no_wrap=True)
    for pair in pairs:
        table.add_row(
            str(pair.get("number")),
            _run_text(pair.get("challenger") or {}),
            _run_text(pair.get("holder") or {}),
            number_text(pair.get("ratio"), digits=3),
            str(pair.get("winner") or ABSENT),
        )
    return table


def _run_text(run: View) -> str:
    """A run's seconds, or how it ended without any."""
    seconds = run.get("seconds")
    return str(run.get("ending") or ABSENT) if seconds is None else seconds_text(seconds)


def batch_lines(view: View, url: str) -> list[RenderableType]:
    """Verifications a batch queued, or would queue, with their probable cost."""
    replays, skipped = view.get("replays") or [], view.get("skipped") or []
    verb = "would be queued" if view.get("dry_run") else "queued"
    lines: list[RenderableType] = []
    if replays:
        lines.append(_replay_table(replays))
    lines += [
        Text(f"skipped {item.get('submission_id')}: {item.get('why')}", style="yellow")
        for item in skipped
    ]
    gpu, cpu = view.get("gpu_seconds_expected"), view.get("cpu_seconds_expected")
    lines.append(
        f"{len(replays)} {verb}, {len(skipped)} skipped; expected "
        f"{number_text(gpu)} GPU seconds, {number_text(cpu)} CPU seconds"
    )
    if replays and not view.get("dry_run"):
        lines.append("Follow one: finishline verify VERIFICATION --watch")
        lines.append(as_it_is(f"Cancel one on its page: {url}/verifications/VERIFICATION"))
    return lines


def _replay_table(replays: list[View]) -> Table:
    table = make_table(
        "submission",
        "verification",
        "runs",
        "seconds",
        "from",
        right=("runs", "seconds"),
        spare=("from", "runs"),
    )
    for item in replays:
        table.add_row(
            str(item.get("submission_id")),
            str(item.get("verification_id") or "–"),
            number_text(item.get("runs_expected")),
            number_text(item.get("seconds_expected")),
            str(item.get("basis")),
        )
    return table


def comparison_lines(view: View) -> list[RenderableType]:
    """Two verifications side by side: verdicts, replays, and significant differences."""
    first, second = view.get("first") or {}, view.get("second") or {}
    lines: list[RenderableType] = [
        _verdict_table(first, second),
        _replays_table(first, second),
        _difference_table(view.get("differences") or []),
    ]
    if not view.get("same_band"):
        lines.append(Text("Judged by different bands.", style="yellow"))
    lines += [
        f"{item.get('field')}: {item.get('first')} | {item.get('second')}"
        for item in view.get("systems") or []
    ]
    return lines


def _verdict_table(first: View, second: View) -> Table:
    table = make_table("", "first", "second")
    for name in ("id", "state", "hardware_class", "worker"):
        table.add_row(name, str(first.get(name) or "–"), str(second.get(name) or "–"))
    table.add_row("outcome", status_text(first.get("outcome")), status_text(second.get("outcome")))
    told = ["published" if side.get("published") else "not published" for side in (first, second)]
    table.add_row("board", *told)
    codes = [
        ", ".join(str(reason.get("code")) for reason in side.get("reasons") or []) or "–"
        for side in (first, second)
    ]
    table.add_row("reasons", *codes)
    return table


def _replays_table(first: View, second: View) -> Table:
    table = make_table("replay", "TTA", "epochs", "TTA (second)", "epochs (second)")
    left, right = first.get("runs") or [], second.get("runs") or []
    for index in range(max(len(left), len(right))):
        cells = []
        for runs in (left, right):
            run = runs[index] if index < len(runs) else {}
            cells += [
                seconds_text(run.get("tta_seconds")),
                number_text(run.get("epochs_to_target")),
            ]
        table.add_row(str(index + 1), *cells)
    return table


def _difference_table(differences: list[View]) -> Table:
    table = make_table("mean", "first", "second", "ratio", "p")
    for item in differences:
        p_value = item.get("p_value")
        chance = number_text(p_value, digits=4) if item.get("comparable") else "other hardware"
        table.add_row(
            str(item.get("figure")),
            number_text(item.get("first_mean"), digits=3),
            number_text(item.get("second_mean"), digits=3),
            number_text(item.get("ratio"), digits=3),
            chance,
        )
    return table
