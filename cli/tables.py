"""Views of the server as tables and lines for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.fitting_table import FittingTable, one_line
from cli.formats import ABSENT, cost_text, number_text, quality_text, seconds_text
from rules.proof_check import Check

View = Mapping[str, Any]
STATUS_STYLES = {
    "verified": "bold green",
    "rejected": "bold red",
    "inconclusive": "yellow",
    "challenger_faster": "bold green",
    "holder_faster": "bold green",
    "not_separable": "yellow",
    "failed": "bold red",
    "pass": "green",
    "fail": "bold red",
    "open": "yellow",
}
# Columns that give way when the terminal is narrow; figures and ids never do.
WIDE = (
    "model", "system", "submitter", "processor", "what was compared", "reason", "reasons",
    "provider", "instance", "region", "source", "scopes", "label",
    "organisation", "e-mail", "address", "target", "divisions", "starts",
)  # fmt: skip


def status_text(status: object) -> Text:
    """A status or an outcome in its colour."""
    word = str(status or ABSENT)
    return Text(word.replace("_", " "), style=STATUS_STYLES.get(word, ""))


def standing_text(view: View) -> Text:
    """The status of a submission or of an entry of a board, and whether it leaves out the time."""
    status = status_text(view.get("status"))
    only = view.get("time_confirmed") is False
    return Text.assemble(status, ", convergence only") if only else status


def make_table(*columns: str, right: Sequence[str] = (), spare: Sequence[str] = ()) -> Table:
    """An empty table in the style of all of them; the columns of `right` are figures.

    Those of `spare` are left out where they do not fit, the first one first.
    """
    table = FittingTable(spare=spare)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="ellipsis",
            no_wrap=column not in WIDE,
        )
    return table


def or_dash(value: object) -> str:
    """A value as text, a dash where there is none."""
    return ABSENT if value is None or value == "" else str(value)


def leaderboard_table(board: View, *, filtered: bool = False) -> RenderableType:
    """The entries of a leaderboard in the order the server ranked them.

    `filtered` says whether only some were asked for, so that there may be others.
    """
    entries = board.get("entries") or []
    if not entries:
        return Text(
            "No submission here fits what was asked for."
            if filtered
            else "No submissions here yet; `finishline submit PATH` makes the first.",
            style="dim",
        )
    if board.get("kind") == "inference":
        return _inference_table(board)
    right = ("rank", "TTA", "seconds", "CV", "runs", "epochs", "cost")
    spare = ["epochs", "seconds", "runs", "CV", "cost"]
    if board.get("metric") == "cost":
        spare.remove("cost")
    table = make_table(
        "rank", "TTA", "seconds", "CV", "runs", "epochs", "cost", "status", "submitter", "model",
        "system", "submission", right=right, spare=spare,
    )  # fmt: skip
    for entry in entries:
        rank = or_dash(entry.get("rank"))
        table.add_row(
            f"{rank}=" if entry.get("tied") else rank,
            or_dash(entry.get("tta_display")),
            number_text(entry.get("tta_seconds"), digits=3),
            number_text(entry.get("cv_percent"), unit=" %"),
            f"{entry.get('runs_reached', 0)}/{entry.get('runs_started', 0)}",
            number_text(entry.get("epochs_to_target")),
            cost_text(entry.get("cost_usd")),
            _board_status(entry),
            *_names_of(entry),
        )
    return table


def _names_of(entry: View) -> tuple[Text, Text, Text, str]:
    """Who submitted an entry of a board, what on what, and its id."""
    system = (entry.get("system") or {}).get("name")
    names = [or_dash(name) for name in (entry.get("submitter"), entry.get("model"), system)]
    submitter, model, system = map(one_line, names)
    return submitter, model, system, or_dash(entry.get("submission_id"))


def unranked_lines(board: View) -> list[Text]:
    """Why entries of a board have no rank: a line for each reason, with the submissions."""
    by_reason: dict[str, list[str]] = {}
    for entry in board.get("entries") or []:
        if reason := entry.get("unranked_reason"):
            by_reason.setdefault(str(reason), []).append(or_dash(entry.get("submission_id")))
    return [
        Text(f"not ranked, {reason}: {', '.join(submissions)}", style="yellow")
        for reason, submissions in by_reason.items()
    ]


def _board_status(entry: View) -> Text:
    """What the place of an entry rests on, as far as it was checked."""
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
        rank = or_dash(entry.get("rank"))
        table.add_row(
            f"{rank}=" if entry.get("tied") else rank,
            number_text(entry.get("latency_ms"), digits=3, unit=" ms"),
            cost_text(entry.get("cost_usd_per_10000")),
            number_text(entry.get("quality"), digits=4),
            *_names_of(entry),
        )
    return table


def inference_sentence(result: View) -> str:
    """What an inference entry comes to, and whether it is ranked."""
    ranked = "" if result.get("eligible") else "; not ranked: the model did not reach the target"
    return (
        f"latency {number_text(result.get('latency_ms'), digits=3, unit=' ms')}, "
        f"10,000 items cost {cost_text(result.get('cost_usd_per_10000'))}, "
        f"{result.get('metric')} {number_text(result.get('quality'), digits=4)}{ranked}."
    )


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
    interval = "" if low is None else f" (95 % of means {low:.3f} to {high:.3f} s)"
    line = Text(
        f"TTA {or_dash(result.get('tta_display'))}, {seconds_text(result.get('tta_seconds'))}"
        f"{interval}, CV {number_text(result.get('cv_percent'), unit=' %')}, "
        f"{result.get('reached', 0)} of {result.get('started', 0)} runs reached the target, "
        f"cost {cost_text(result.get('cost_usd'))}"
    )
    runs = view.get("runs") or []
    return [header, line, *([run_table(runs)] if runs else []), *violation_lines(result)]


def _standing_lines(view: View) -> list[Text]:
    """What keeps a submission off its board, where something does."""
    found = []
    if view.get("under_embargo"):
        found.append(
            Text("Under embargo: organisers and its submitter's organisation see it.", "yellow")
        )
    copies = () if view.get("archive") else view.get("copies") or ()
    found += [Text(f"Not ranked: {_copy_words(copy)}.", "yellow") for copy in copies]
    if withdrawal := view.get("withdrawal"):
        words = f"Withdrawn by {withdrawal['by']} on {_minute(withdrawal['at'])}: "
        found.append(Text.assemble((words, "yellow"), withdrawal["reason"]))
    return found


def _copy_words(copy: View) -> str:
    """What an earlier submission has of this one; it is not named while it is under embargo."""
    same = "byte for byte" if copy.get("same") == "bytes" else "by every quality and time"
    if copy.get("submission_id") is None:
        return f"{copy.get('file')} is {same} a log that was handed in before"
    other = f"{copy.get('submission_file')} of submission {copy.get('submission_id')}"
    return f"{copy.get('file')} is {same} {other}"


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
    """Why a result is not ranked, one line for each rule it breaks."""
    violations = result.get("violations") or []
    return [
        Text(f"not ranked: {item.get('message')}", style="yellow")
        for item in violations
        if isinstance(item, Mapping)
    ]


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
                    f"{failure.get('message')}; {failure.get('next_step')}",
                    style="yellow",
                )
            )
    return lines


def check_table(checks: Sequence[Check]) -> Table:
    """The checks of a proof, and why one did not pass."""
    table = make_table("check", "result", "what was compared")
    for check in checks:
        compared = f"{check.compared}: {check.why}" if check.why else check.compared
        table.add_row(check.name, status_text(check.result), compared)
    return table


def audit_table(records: Sequence[View]) -> RenderableType:
    """Records of the audit log, newest first."""
    if not records:
        return Text("Nothing was changed yet.", style="dim")
    table = make_table("id", "when", "who", "what", "subject", "reason")
    for item in records:
        table.add_row(
            str(item.get("id")),
            str(item.get("at"))[:19],
            or_dash(item.get("actor")),
            or_dash(item.get("action")),
            f"{item.get('subject_kind')} {item.get('subject_id')}",
            or_dash(item.get("reason")),
        )
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


def phases_table(history: Sequence[View]) -> Table:
    """What was set of a benchmark's phases, the latest first."""
    table = make_table("set", "by", "opens", "freezes", "closes", "embargo until", "reason")
    for item in history:
        dates = ("set_at", "opens_at", "freezes_at", "closes_at", "embargo_until")
        when, *others = (_minute(item.get(name)) for name in dates)
        table.add_row(when, or_dash(item.get("set_by")), *others, or_dash(item.get("reason")))
    return table


def _minute(moment: str | None) -> str:
    """A moment as the server writes it (UTC), to the minute."""
    return or_dash(moment[:16].replace("T", " ") + "Z" if moment else None)


def worker_table(workers: Sequence[View]) -> RenderableType:
    """The workers a server has heard of."""
    if not workers:
        return Text("No worker has reported yet; start one with `python -m worker`.", style="dim")
    table = make_table(
        "worker", "hardware class", "state", "alive", "canary", "last seen", "processor",
        right=("canary",),
    )  # fmt: skip
    for item in workers:
        table.add_row(
            or_dash(item.get("name")),
            or_dash(item.get("hardware_class")),
            or_dash(item.get("state")),
            "yes" if item.get("alive") else "no",
            _of_baseline(item),
            _minute(item.get("last_seen_at")),
            or_dash((item.get("system") or {}).get("processor")),
        )
    return table


def queue_table(queue: View) -> RenderableType:
    """What waits, by hardware class, in the order in which it starts."""
    classes = [one for one in queue.get("classes") or [] if one.get("waiting")]
    if not classes:
        return Text("Nothing waits.", style="dim")
    table = make_table(
        "hardware class", "place", "verification", "kind", "benchmark", "asked at", "starts",
        right=("place",), spare=("kind", "asked at"),
    )  # fmt: skip
    for one in classes:
        for item in one["waiting"]:
            table.add_row(
                one.get("hardware_class") or "any",
                str(item.get("position")),
                or_dash(item.get("verification_id")),
                or_dash(item.get("kind")),
                or_dash(item.get("benchmark")),
                _minute(item.get("asked_at")),
                _minute(start)
                if (start := item.get("expected_start"))
                else or_dash(item.get("why_unknown")),
            )
    return table


def _of_baseline(worker: View) -> str:
    """How fast a worker is, by its own baseline; a dash where it has none yet."""
    ratio = (worker.get("canary") or {}).get("ratio")
    return number_text(None if ratio is None else 100 * ratio, digits=1, unit=" %")


def webhook_table(hooks: Sequence[View]) -> RenderableType:
    """Somebody's webhooks; what was switched off says why."""
    if not hooks:
        return Text("No webhook here yet; make one with `finishline webhook add`.", style="dim")
    table = make_table("id", "of", "events", "state", "address", right=("events",))
    for item in hooks:
        state = "failing" if item.get("failing_since") else "on"
        table.add_row(
            or_dash(item.get("id")),
            or_dash(item.get("benchmark") or item.get("scope")),
            str(len(item.get("kinds") or ())),
            str(item.get("disabled_because") or state),
            or_dash(item.get("url")),
        )
    return table


def delivery_table(deliveries: Sequence[View]) -> RenderableType:
    """What was sent to a webhook, with the latest try of each."""
    if not deliveries:
        return Text("Nothing was sent to it; `finishline webhook test ID` does.", style="dim")
    table = make_table(
        "id", "event", "state", "tries", "answer", "ms", "next try", right=("id", "tries", "ms")
    )
    for item in deliveries:
        tries = item.get("tries") or [{}]
        last = tries[-1]
        table.add_row(
            str(item.get("id")),
            or_dash(item.get("kind")),
            or_dash(item.get("state")),
            str(len(item.get("tries") or ())),
            or_dash(last.get("status") or last.get("error")),
            number_text(last.get("milliseconds")),
            _minute(item.get("due_at")),
        )
    return table


def price_table(prices: Sequence[View]) -> RenderableType:
    """Entries of the price book; what is superseded says by which."""
    if not prices:
        return Text("No price here yet; add one with `finishline prices add`.", style="dim")
    table = make_table(
        "id", "provider", "instance", "region", "kind", "$/hour", "from", "standing", "source",
        right=("id", "$/hour"), spare=("source", "kind"),
    )  # fmt: skip
    for item in prices:
        later = item.get("superseded_by")
        standing = "never ranks" if item.get("pricing") == "spot" else "stands"
        table.add_row(
            str(item.get("id")),
            or_dash(item.get("provider")),
            or_dash(item.get("instance")),
            or_dash(item.get("region")),
            str(item.get("pricing")).replace("_", "-"),
            number_text(item.get("usd_per_hour"), digits=4),
            or_dash(item.get("effective_on")),
            standing if later is None else f"superseded by {later}",
            or_dash(item.get("source_url")),
        )
    return table


def _goal_text(target: View) -> str:
    sign = "≥" if target.get("direction") == "higher" else "≤"
    quality = quality_text(target.get("value"), str(target.get("unit")))
    return f"{target.get('metric')} {sign} {quality}"
