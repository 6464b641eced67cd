"""Boards and benchmarks as tables and lines for people."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from finishline.cli.tables import (
    View,
    cost_text,
    make_table,
    minute,
    number_text,
    one_line,
    or_dash,
    quality_text,
    standing_text,
    status_text,
    time_text,
)
from finishline.rules.ranking.evidence import place_words, ranked_seconds


def leaderboard_table(board: View, *, filtered: bool = False) -> RenderableType:
    """The entries of a leaderboard in the order the server ranked them.

    `filtered` says whether only some were asked for, so that there may be others.
    """
    entries = board.get("entries") or []
    if not entries:
        return Text(
            "No submission matches the filters."
            if filtered
            else "No submissions yet. Upload the first with `finishline submit PATH`, a package "
            "with `finishline training submit PATH`; organisers bring published results with "
            "`finishline import`. `finishline benchmark phases ID` tells of an embargo.",
            style="dim",
        )
    if board.get("kind") == "inference":
        return _inference_table(board)
    right = ("rank", "TTA", "seconds", "CV", "runs", "epochs", "cost")
    spare = ["epochs", "seconds", "runs", "CV", "cost"]
    if board.get("metric") == "cost":
        spare.remove("cost")
    table = make_table(
        "rank", "TTA", "seconds", "CV", "runs", "epochs", "cost", "evidence", "submitter", "model",
        "system", "submission", right=right, spare=spare,
    )  # fmt: skip
    for entry in entries:
        seconds = ranked_seconds(entry)
        table.add_row(
            or_dash(place_words(entry)),
            time_text(seconds),
            number_text(seconds, digits=3),
            number_text(entry.get("cv_percent"), unit=" %"),
            _runs_of(entry),
            number_text(entry.get("epochs_to_target")),
            cost_text(entry.get("cost_usd")),
            _board_status(entry),
            *_names_of(entry),
        )
    return table


def _runs_of(entry: View) -> str:
    """The sealed runs of a measured entry, else runs that reached of those started."""
    if entry.get("measured_runs"):
        return f"{entry['measured_runs']} sealed"
    return f"{entry.get('runs_reached', 0)}/{entry.get('runs_started', 0)}"


def _names_of(entry: View) -> tuple[Text, Text, Text, str]:
    """Submitter, model, system and id of an entry of a board."""
    system = (entry.get("system") or {}).get("name")
    names = [
        or_dash(name)
        for name in (
            entry.get("display_name") or entry.get("submitter"),
            entry.get("model"),
            system,
        )
    ]
    submitter, model, system = map(one_line, names)
    return submitter, model, system, or_dash(entry.get("submission_id"))


def unranked_lines(board: View) -> list[Text]:
    """Reasons why entries of a board have no rank: a line for each reason, with the submissions."""
    by_reason: dict[str, list[str]] = {}
    for entry in board.get("entries") or []:
        if (reason := entry.get("unranked_reason")) and place_words(entry) is None:
            by_reason.setdefault(str(reason), []).append(or_dash(entry.get("submission_id")))
    return [
        Text(f"not ranked, {reason}: {', '.join(submissions)}", style="yellow")
        for reason, submissions in by_reason.items()
    ]


def preview_lines(board: View) -> list[Text]:
    """Lines above a board that only organisers see: its title, and the hidden entries."""
    preview = board.get("preview") or {}
    lines = [Text(str(preview["note"]), style="bold yellow")] if preview.get("note") else []
    if preview.get("hidden"):
        lines.append(Text(f"under embargo: {', '.join(preview['hidden'])}", style="yellow"))
    return lines


def division_lines(board: View) -> list[Text]:
    """The division that was chosen where none was asked for."""
    division = board.get("division")
    return [Text(f"Division {division}; --division shows another.")] if division else []


def other_rules_lines(board: View) -> list[Text]:
    """Entries scored by other rules than the rest: a line for each definition."""
    return [
        Text(
            f"other rules, not comparable ({words}): "
            + ", ".join(
                or_dash(entry.get("submission_id"))
                for entry in board.get("entries") or []
                if entry.get("benchmark_sha256") == sha256
            ),
            style="yellow",
        )
        for sha256, words in (board.get("other_rules") or {}).items()
    ]


def _board_status(entry: View) -> Text:
    """Evidence for an entry's place, and how far it was checked."""
    if entry.get("withdrawn"):
        return status_text("withdrawn")
    return standing_text(entry)


def _inference_table(board: View) -> Table:
    table = make_table(
        "rank", "latency", "cost of 10,000", "quality", "submitter", "model", "system",
        "submission", right=("rank", "latency", "cost of 10,000", "quality"),
        spare=("cost of 10,000",) if board.get("metric") != "inference_cost" else ("quality",),
    )  # fmt: skip
    for entry in board["entries"]:
        table.add_row(
            or_dash(place_words(entry)),
            number_text(entry.get("latency_ms"), digits=3, unit=" ms"),
            cost_text(entry.get("cost_usd_per_10000")),
            number_text(entry.get("quality"), digits=4),
            *_names_of(entry),
        )
    return table


def benchmark_table(benchmarks: Sequence[View]) -> Table:
    """The benchmarks of a server."""
    table = make_table(
        "benchmark",
        "target",
        "clock",
        "runs",
        "divisions",
        "replay",
        "submissions",
        "phase",
        spare=("divisions", "clock", "runs"),
    )
    for item in benchmarks:
        target = item.get("target") or {}
        goals = [_goal_text(goal) for goal in (target, *(target.get("also") or []))]
        table.add_row(
            or_dash(item.get("id")),
            " and ".join(goals),
            or_dash(item.get("clock")),
            or_dash((item.get("runs") or {}).get("count")),
            ", ".join(item.get("divisions") or []),
            "yes" if item.get("replayable") else "no",
            or_dash(item.get("submissions")),
            or_dash((item.get("phases") or {}).get("phase")),
        )
    return table


def _goal_text(target: View) -> str:
    sign = "≥" if target.get("direction") == "higher" else "≤"
    quality = quality_text(target.get("value"), str(target.get("unit")))
    return f"{target.get('metric')} {sign} {quality}"


def phases_table(history: Sequence[View]) -> Table:
    """Settings of a benchmark's phases, the latest first."""
    table = make_table("set", "by", "opens", "freezes", "closes", "embargo until", "reason")
    for item in history:
        dates = ("set_at", "opens_at", "freezes_at", "closes_at", "embargo_until")
        when, *others = (minute(item.get(name)) for name in dates)
        table.add_row(when, or_dash(item.get("set_by")), *others, or_dash(item.get("reason")))
    return table
