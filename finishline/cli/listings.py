"""Show lists of the server as tables: one line of columns for each kind of thing."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.tables import (
    ABSENT,
    View,
    cost_text,
    make_table,
    minute,
    number_text,
    or_dash,
    quality_text,
    seconds_text,
    standing_text,
    status_text,
    time_text,
)
from finishline.rules.benchmarks.quality import metric_words
from finishline.rules.ranking import place_words, ranked_quality, ranked_seconds
from finishline.rules.text import count_text


class Listing(NamedTuple):
    """Columns between bars: `>` if they are figures, a heading, `=`, a field, `:` and its format.

    A field with braces is a template of several. A format that begins with a digit is a number of
    decimals with a unit. `spare` columns are left out of a narrow terminal.
    """

    columns: str
    if_empty: str = ""
    spare: tuple[str, ...] = ()


TABLES = {
    "tokens": Listing(
        "id | user | role | label | last used=last_used_at:minute | expires=expires_at:minute"
        " | revoked=revoked_at:minute"
    ),
    "invitations": Listing(
        "id | role | used={uses} of {uses_allowed} | until=expires_at:minute | domain=mail_domain"
        " | organisation | made by=made_by | state",
        "No links.",
    ),
    "users": Listing(
        "name | shown as=display_name | role | organisation | e-mail=email | >tokens"
        " | last used=last_used_at:minute | state=:access",
        "No matching user.",
    ),
    "organisations": Listing("organisation=name | >users", "No organisations yet."),
    "records": Listing(
        "id | when=at:minute | who=actor | action | subject={subject_kind} {subject_id} | reason",
        "No actions yet.",
    ),
    "prices": Listing(
        ">id | provider | instance | region | class=hardware_class | kind=pricing:words"
        " | >$/hour=usd_per_hour:4 | from=effective_on | status=:price | source=source_url",
        "No prices yet. Add one with `finishline admin price add`.",
        ("source", "kind", "class"),
    ),
    "webhooks": Listing(
        "id | scope=:scope | >events=kinds:count | state=:webhook | address=url",
        "No webhooks yet. Make one with `finishline account webhook add`.",
    ),
    "deliveries": Listing(
        ">id | event=kind | state | >tries=tries:count | response=tries:response"
        " | >ms=tries.-1.milliseconds:1 | next retry=due_at:minute",
        "No deliveries yet. Send one with `finishline account webhook test ID`.",
    ),
    "workers": Listing(
        "worker=name | hardware class=hardware_class | state | alive:yes"
        " | >speed check=canary.ratio:percent | last seen=last_seen_at:minute"
        " | processor=system.processor",
        "No worker has reported yet; start one with `python -m worker`.",
    ),
    "waiting": Listing(
        "hardware class=hardware_class | >place=position | verification=verification_id | kind"
        " | benchmark | requested=asked_at:minute | starts=:start",
        spare=("kind", "requested"),
    ),
    "benchmarks": Listing(
        "benchmark=id | target=target:goals | clock | runs=runs:range | divisions=divisions:join"
        " | replay=replayable:yes | submissions | phase=phases.phase",
        spare=("divisions", "clock", "runs"),
    ),
    "phases": Listing(
        "set=set_at:minute | by=set_by | opens=opens_at:minute | freezes=freezes_at:minute"
        " | closes=closes_at:minute | embargo until=embargo_until:minute | reason"
    ),
    "times": Listing(
        ">rank=:place | >TTA=:time | >seconds=:exact_seconds | >CV=cv_percent:1 %"
        " | >runs=:runs | >epochs=epochs_to_target:1 | >cost=cost_usd:cost | evidence=:evidence"
        " | submitter=:submitter | model:name | system=system.name:name"
        " | submission=submission_id",
        spare=("epochs", "seconds", "runs", "CV", "cost"),
    ),
    "qualities": Listing(
        ">rank=:place | >quality=:ranked_quality | >low=quality_low:2 | >high=quality_high:2"
        " | >runs=:runs | >cost=cost_usd:cost | evidence=:evidence | submitter=:submitter"
        " | model:name | system=system.name:name | submission=submission_id",
        spare=("low", "high", "runs", "cost"),
    ),
    "latencies": Listing(
        ">rank=:place | >latency=latency_ms:3 ms | >cost of 10,000=cost_usd_per_10000:cost"
        " | >quality:4 | submitter=:submitter | model:name | system=system.name:name"
        " | submission=submission_id",
        spare=("cost of 10,000",),
    ),
    "scores": Listing(
        "path:path | benchmark | >time=:scored_time"
        " | >normalised=normalised_seconds:seconds | >CV=cv_percent:2 % | >reached=:reached"
        " | problems=:problems",
        spare=("normalised", "benchmark", "CV"),
    ),
    "speedruns": Listing(
        "id:path | >runs | >mean=mean_seconds:seconds | >loss=mean_loss:4 | >p=p_value:4"
        " | >stop=stop_step | >reached=:reached | >ranked:yes | problems=:problems",
        spare=("stop",),
    ),
    "algoperf": Listing("id:path | version | >score:4 | problems=:problems"),
    "runs": Listing(
        "run log=file | seed | >TTA=tta_seconds:seconds | >epochs=epochs_to_target:1"
        " | >best=best_quality:4"
    ),
    "backends": Listing(
        "backend | >mean=mean_ms:3 ms | >p50=p50_ms:3 ms | >p90=p90_ms:3 ms | >p99=p99_ms:3 ms"
        " | >items/s=items_per_second:0 | >drift=drift_percent:1 %"
        " | >cost of 10,000=cost_usd_per_10000:cost | >samples:some | >passes:1"
    ),
    "pairs": Listing(
        ">pair=number | >A challenger=challenger:run | >B holder=holder:run | >A/B=ratio:3"
        " | faster=winner"
    ),
    "pairs_by_quality": Listing(
        ">pair=number | >A challenger=challenger:run_quality | >B holder=holder:run_quality"
        " | better=winner"
    ),
    "verifications": Listing(
        "verification=id | kind | benchmark | submission=submission_id | state | outcome",
        "No verifications yet. Request one with `finishline verify SUBMISSION`.",
        ("kind",),
    ),
    "replays": Listing(
        "submission=submission_id | verification=verification_id | >runs=runs_expected:1"
        " | >seconds=seconds_expected:1 | from=basis",
        spare=("from", "runs"),
    ),
    "sides": Listing(
        "verification=id | state | outcome | published:yes | hardware class=hardware_class | worker"
        " | reasons=reasons:codes"
    ),
    "differences": Listing(
        "mean=figure | first=first_mean:3 | second=second_mean:3 | ratio:3 | p=:chance"
    ),
    "side by side": Listing(
        "replay=number | TTA=first.tta_seconds:seconds | epochs=first.epochs_to_target:1"
        " | TTA (second)=second.tta_seconds:seconds | epochs (second)=second.epochs_to_target:1"
    ),
    "calibrations": Listing(
        "calibration={id} | benchmark={benchmark} | version | state"
        " | runs={runs_finished}/{runs_planned} | sizes=batch_sizes:join | precision"
        " | adopted=adopted_at",
        "No calibrations yet. Start one with `finishline benchmark calibrate`.",
    ),
    "sizes": Listing(
        ">batch size=batch_size | >runs={finished}/{planned} | >reached | >epochs=mean:2"
        " | >stdev:2 | >band:points"
    ),
    "compared sizes": Listing(
        ">batch size=batch_size | >first=first.mean:2 | >second=second.mean:2 | >difference:2"
        " | >p=p_value:4 | >band apart=band:apart",
        "No batch size in common.",
    ),
}


def table_of(
    name: str, items: Iterable[View], *, spare: tuple[str, ...] | None = None
) -> RenderableType:
    """Show the items as a table of TABLES, or its sentence if empty."""
    listing = TABLES[name]
    items = list(items)
    if listing.if_empty and not items:
        return Text(listing.if_empty, style="dim")
    columns = [column.strip() for column in listing.columns.split("|")]
    parts = [column.removeprefix(">").partition("=") for column in columns]
    headings = [heading.partition(":")[0] for heading, _, _ in parts]
    table = make_table(
        *headings,
        right=[each for each, column in zip(headings, columns, strict=True) if column[0] == ">"],
        spare=listing.spare if spare is None else spare,
    )
    for item in items:
        table.add_row(*(_cell(item, field or heading) for heading, _, field in parts))
    return table


def _cell(item: View, field: str) -> RenderableType:
    if "{" in field:
        return field.format_map(item)
    path, _, form = field.partition(":")
    value: Any = item
    for step in filter(None, path.split(".")):
        if isinstance(value, list):
            value = value[int(step)] if value else None
        else:
            value = (value or {}).get(step)
    if form[:1].isdigit():
        return number_text(value, digits=int(form[0]), unit=form[1:])
    return FORMATS[form](value)


def _access(user: View) -> str:
    state = "disabled" if user.get("disabled_at") else "enabled"
    return f"{state}, known" if user.get("known_at") else state


def _price(price: View) -> str:
    if (later := price.get("superseded_by")) is not None:
        return f"superseded by {later}"
    return "never ranks" if price.get("pricing") == "spot" else "stands"


def _goals(target: View | None) -> str:
    if target and target.get("budget_seconds") is not None:
        metric = metric_words(str(target["metric"]))
        return f"{metric} within {target['budget_seconds']:g} s"
    return " and ".join(
        f"{metric_words(str(goal.get('metric')))} "
        f"{'≥' if goal.get('direction') == 'higher' else '≤'} "
        f"{quality_text(goal.get('value'), str(goal.get('unit')))}"
        for goal in (target or {}, *((target or {}).get("also") or []))
    )


def _runs(entry: View) -> str:
    if entry.get("measured_runs"):
        return f"{entry['measured_runs']} measured"
    return f"{entry.get('runs_reached', 0)}/{entry.get('runs_started', 0)}"


def _name(name: object) -> Text:
    return Text(or_dash(name), no_wrap=True, overflow="ellipsis")


def _run(run: View | None) -> str:
    seconds = (run or {}).get("seconds")
    return or_dash((run or {}).get("ending")) if seconds is None else seconds_text(seconds)


def _scored_time(record: View) -> str:
    if record.get("latency_ms") is not None:
        return number_text(record["latency_ms"], digits=3, unit=" ms")
    return seconds_text(record.get("tta_seconds", record.get("olympic_mean_seconds")))


def _reached(record: View) -> str:
    if record.get("n_runs"):
        return f"{sum(run['converged'] for run in record['runs'])}/{record['n_runs']}"
    reached = record.get("reached")
    return ABSENT if reached is None else "yes" if reached else "no"


def _problems(record: View) -> str:
    counts = {kind: record[f"{kind}s"] for kind in ("error", "warning")}
    return ", ".join(count_text(count, kind) for kind, count in counts.items() if count)


FORMATS: dict[str, Callable[[Any], RenderableType]] = {
    "": or_dash,
    "access": _access,
    "apart": lambda band: number_text(
        max((abs(point["mean_difference"]) for point in band), default=None), digits=2
    ),
    "chance": lambda item: (
        number_text(item.get("p_value"), digits=4) if item.get("comparable") else "other hardware"
    ),
    "codes": lambda reasons: or_dash(", ".join(str(each.get("code")) for each in reasons or ())),
    "cost": cost_text,
    "count": lambda items: str(len(items or ())),
    "evidence": lambda entry: (
        status_text("withdrawn") if entry.get("withdrawn") else standing_text(entry)
    ),
    "exact_seconds": lambda entry: number_text(ranked_seconds(entry), digits=3),
    "goals": _goals,
    "join": lambda items: ", ".join(map(str, items or ())),
    "minute": minute,
    "name": _name,
    "path": lambda path: Text(path, overflow="fold"),
    "percent": lambda ratio: number_text(None if ratio is None else 100 * ratio, unit=" %"),
    "place": lambda entry: or_dash(place_words(entry)),
    "points": lambda band: count_text(len(band), "point") if band else ABSENT,
    "price": _price,
    "problems": _problems,
    "reached": _reached,
    "range": lambda runs: f"{runs['count']}" + (f"–{most}" if (most := runs.get("most")) else ""),
    "response": lambda tries: or_dash(
        tries and (tries[-1].get("status") or tries[-1].get("error"))
    ),
    "ranked_quality": lambda entry: number_text(ranked_quality(entry), digits=2),
    "run": _run,
    "run_quality": lambda run: number_text(run.get("quality"), digits=2),
    "runs": _runs,
    "scope": lambda hook: or_dash(hook.get("benchmark") or hook.get("scope")),
    "scored_time": _scored_time,
    "seconds": seconds_text,
    "some": lambda value: or_dash(value or None),
    "start": lambda item: (
        minute(item["expected_start"])
        if item.get("expected_start")
        else or_dash(item.get("why_unknown"))
    ),
    "submitter": lambda entry: _name(entry.get("display_name") or entry.get("submitter")),
    "time": lambda entry: time_text(ranked_seconds(entry)),
    "webhook": lambda hook: str(
        hook.get("disabled_because") or ("failing" if hook.get("failing_since") else "on")
    ),
    "words": lambda word: str(word).replace("_", "-"),
    "yes": lambda truth: "yes" if truth else "no",
}
