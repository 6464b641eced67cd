"""Duels, batches and comparisons of verifications as lines and tables for people."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from finishline.cli.submission_tables import verdict_lines
from finishline.cli.tables import ABSENT, make_table, number_text, seconds_text, status_text

View = Mapping[str, Any]


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


def batch_lines(view: View) -> list[RenderableType]:
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
    return lines


def _replay_table(replays: list[View]) -> Table:
    table = make_table(
        "submission", "verification", "runs", "seconds", "from", right=("runs", "seconds")
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
