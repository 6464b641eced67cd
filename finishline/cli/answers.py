"""Show answers of the server as lines for people, where a table says too little."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from shlex import quote
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.listings import table_of
from finishline.cli.screen import as_it_is
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
    time_text,
)
from finishline.rules.ranking import busy_words
from finishline.rules.text import count_text
from finishline.rules.verification.verdict import outcome_text

Given = Mapping[str, Any]


def account_lines(view: View, given: Given) -> Iterator[Text]:
    organisation = view.get("organisation")
    role, highest = view.get("role"), view.get("highest_role")
    whose = f"{view.get('user')}, {organisation}" if organisation else str(view.get("user"))
    yield Text(whose, style="bold")
    if view.get("display_name"):
        yield Text(f"shown as {view['display_name']}")
    yield Text(f"token {view.get('token_id')}: {view.get('label') or 'without a label'}")
    yield Text(
        f"role {role}" + (f"; your account allows up to {highest}" if highest != role else "")
    )
    yield Text(f"expires {minute(view.get('expires_at'))}")


def secret_lines(view: View, given: Given) -> Iterator[str]:
    yield str(view.get("token") or view.get("secret"))
    yield f"Store it now: it is not shown again (id {view.get('id')})."


def new_user_lines(view: View, given: Given) -> Iterator[RenderableType]:
    yield table_of("users", [view])
    if given["role"] == "submitter":
        yield (
            "Workers without a memory cgroup (`finishline admin worker list` names them) train "
            "none of their code submissions until an organiser who knows them approves:"
        )
        yield as_it_is(f"finishline admin user approve {quote(given['name'])}")


MEASURES = {
    "submissions_per_day": ("submissions in 24 hours", "{:,.10g}", 1),
    "gpu_seconds_per_month": ("accelerator hours in 30 days", "{:,.2f}", 3600),
}


def quota_lines(view: View, given: Given) -> Iterator[RenderableType]:
    figures = ("used", "reserved", "allowed")
    table = make_table("user", "quota", *figures, "resets", right=figures)
    for use in view["quotas"]:
        name, *amounts = _measured(use["measure"], *(use[figure] for figure in figures))
        table.add_row(or_dash(view.get("user")), name, *amounts, minute(use["room_at"]))
    yield table


def all_quotas_lines(view: View, given: Given) -> Iterator[RenderableType]:
    table = make_table("user", "quota", "allowed", right=("allowed",))
    for measure, allowed in view["defaults"].items():
        table.add_row(Text("each user", style="dim"), *_measured(measure, allowed))
    for item in view["overrides"]:
        for measure, allowed in item["quotas"].items():
            table.add_row(or_dash(item.get("user")), *_measured(measure, allowed))
    yield table


def _measured(measure: str, *values: float | None) -> list[str]:
    name, form, unit = MEASURES.get(measure, (str(measure), "{:,.10g}", 1))
    return [name, *("no limit" if each is None else form.format(each / unit) for each in values)]


WHOSE = {
    "anyone": "code submissions of anyone",
    "known": "code submissions of approved users",
    "off": "no code submissions",
}


def workers_lines(view: View, given: Given) -> Iterator[RenderableType]:
    yield table_of("workers", view["workers"])
    for each in view["workers"]:
        if each.get("held"):
            what, why = f"{each.get('name')} {each['held']}", each.get("held_because")
            yield _held(what, by=each.get("held_by"), since=each.get("held_at"), why=why)
    for each in view["workers"]:
        if box := each.get("box"):
            entries = str(box.get("entries"))
            why = f" ({box['why']})" if box.get("why") else ""
            names = "" if entries == "off" else ", ".join(box.get("environments") or ())
            trains = f"{each.get('name')} trains {WHOSE.get(entries, entries)}{why}"
            yield Text(f"{trains}: {names}" if names else trains)


def _held(what: str, *, by: str | None, since: str | None, why: str | None) -> Text:
    when = minute(since).removesuffix("Z")
    return Text(f"{what} by {by or 'somebody'} since {when} UTC: {why}", "yellow")


def worker_lines(view: View, given: Given) -> Iterator[RenderableType]:
    yield from workers_lines({"workers": [view["worker"]]}, given)


def queue_lines(view: View, given: Given) -> Iterator[RenderableType]:
    classes = view.get("classes") or []
    hidden = sum(one.get("under_embargo") or 0 for one in classes)
    if hidden:
        yield Text(f"{hidden} under embargo {'waits' if hidden == 1 else 'wait'}.", style="dim")
    waiting = [
        {**item, "hardware_class": one.get("hardware_class") or "any"}
        for one in classes
        for item in one.get("waiting") or ()
    ]
    if waiting:
        yield table_of("waiting", waiting)
    else:
        yield Text("Nothing else is queued." if hidden else "The queue is empty.", style="dim")
    if pause := view.get("paused"):
        why = pause.get("reason")
        yield _held("every queue paused", by=pause.get("by"), since=pause.get("since"), why=why)


def calibration_lines(view: View, given: Given) -> Iterator[RenderableType]:
    if view.get("outdated"):
        judges = ", for an earlier definition: not used for new replays"
    else:
        judges = ", used for new replays" if view["judges"] else ""
    precision = f" in {view['precision']}" if view.get("precision") else ""
    header = (
        f"Calibration {view['id']}: number {view['version']} of {view['benchmark']}{precision}, "
        f"{view['state']}, {view['runs_finished']} of {count_text(view['runs_planned'], 'run')}"
        f"{judges}"
    )
    yield Text(header, style="bold")
    yield table_of("sizes", view["sizes"])
    for why in dict.fromkeys(chunk.get("why") for chunk in view.get("chunks", ())):
        if why:
            yield Text(f"Failed {why}", style="red")


def comparison_lines(view: View, given: Given) -> Iterator[RenderableType]:
    sides = [view["first"], view["second"]]
    yield table_of("sides", sides)
    runs = [side.get("runs") or [] for side in sides]
    yield table_of(
        "side by side",
        [
            {"number": number + 1, "first": first or {}, "second": second or {}}
            for number, (first, second) in enumerate(zip_longest(*runs))
        ],
    )
    yield table_of("differences", view.get("differences") or [])
    if not view.get("same_band"):
        yield Text("Judged by different bands.", style="yellow")
    for each in view.get("systems") or []:
        yield f"{each.get('field')}: {each.get('first')} | {each.get('second')}"


def shown_submission_lines(view: View, given: Given) -> Iterator[RenderableType]:
    yield from submission_lines(view)
    for each in view.get("verifications") or []:
        yield f"verification {each.get('id')}: {each.get('outcome') or each.get('state')}"


def submission_lines(view: View) -> Iterator[RenderableType]:
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
    if original := view.get("duplicate_of"):
        told = f"A duplicate of {original}, which is trained and ranked in its place."
        yield Text(told, "yellow")
    if busy := busy_words(view):
        yield Text(f"{busy[0].upper()}{busy[1:]}.", "yellow")
    if inference:
        yield Text(inference_sentence(result))
        return
    if package := view.get("package"):
        yield as_it_is(
            f"code submission {package['sha256']}, {package['environment']}, {package['license']}"
        )
        yield from time_lines(view)
        return
    yield from time_lines(view)
    yield Text(_claimed_sentence(view, result))
    if runs := view.get("runs"):
        yield table_of("runs", runs)
    yield from violation_lines(result, view.get("waivers") or ())


def _claimed_sentence(view: View, result: View) -> str:
    reached = f"{result.get('reached', 0)} of {count_text(result.get('started', 0), 'run')}"
    if any(step["name"] == "quality" for step in result.get("steps") or ()):
        quality = number_text(result.get("best_quality"), digits=4)
        return f"Claimed quality {quality}, {reached} had an evaluation within the budget"
    low, high = result.get("tta_low_seconds"), result.get("tta_high_seconds")
    interval = "" if low is None else f" (95 %: {low:.3f} to {high:.3f} s)"
    seconds = result.get("tta_seconds")
    exact = "" if seconds is None or seconds < 60 else f", {seconds_text(seconds)}"
    claimed = "TTA" if view.get("measured_seconds") is None else "Claimed TTA"
    return (
        f"{claimed} {time_text(seconds)}{exact}{interval}, "
        f"CV {number_text(result.get('cv_percent'), unit=' %')}, {reached} reached the target, "
        f"cost {cost_text(result.get('cost_usd'))}"
    )


def place_line(preview: View) -> str:
    reason, rank = preview.get("unranked_reason"), preview.get("rank")
    if rank is None:
        return f"Nothing was sent. It would have no rank{f': {reason}' if reason else ''}."
    return f"Nothing was sent. It would be rank {rank} of {preview.get('entries')}."


def time_lines(entry: View) -> Iterator[Text]:
    seconds, quality = entry.get("measured_seconds"), entry.get("measured_quality")
    if seconds is None:
        return
    low, high = entry.get("measured_low_seconds"), entry.get("measured_high_seconds")
    interval = "" if low is None else f" (95 %: {seconds_text(low)} to {seconds_text(high)})"
    figure = seconds_text(seconds)
    if quality is not None:
        low, high = entry.get("quality_low"), entry.get("quality_high")
        interval = "" if low is None else f" (95 %: {low:.4g} to {high:.4g})"
        figure = f"quality {quality:.4g}"
    runs = number_text(entry.get("measured_runs"), digits=0)
    why = entry.get("unranked_reason")
    measuring = [
        each["id"]
        for each in entry.get("verifications") or ()
        if each["kind"] == "entry" and each["state"] in ("queued", "running")
    ]
    if entry.get("rank") is not None:
        ranked = f"rank {entry['rank']}"
    elif measuring:
        ranked = f"without a rank while it is measured (finishline verify {measuring[0]} --watch)"
    else:
        ranked = f"without a rank, {why}," if why else "without a rank yet"
    board = f"{entry['benchmark']}, {entry['division']} division"
    yield Text(
        f"{figure}{interval} over {runs} runs on "
        f"{entry['system']['hardware_class']}: {ranked} on {board}."
        + (f" It has the {entry['not_first']}." if entry.get("not_first") else ""),
        style="bold",
    )


def violation_lines(result: View, waivers: Sequence[View] = ()) -> Iterator[Text]:
    """Yield a line for each broken rule: why it is unranked, or who waived it and why."""
    waived = {waiver["rule"]: waiver for waiver in waivers}
    for item in result.get("violations") or []:
        if isinstance(item, Mapping):
            waiver = waived.get(item.get("code"))
            why = "not ranked"
            if waiver is not None:
                why = f"waived by {waiver['by']}, {waiver['reason']}"
            yield Text(f"{why}: {item.get('message')}", style="yellow")


def inference_sentence(result: View) -> str:
    ranked = "" if result.get("eligible") else "; not ranked: the model did not reach the target"
    return (
        f"latency {number_text(result.get('latency_ms'), digits=3, unit=' ms')}, "
        f"10,000 items cost {cost_text(result.get('cost_usd_per_10000'))}, "
        f"{result.get('metric')} {number_text(result.get('quality'), digits=4)}{ranked}."
    )


def verdict_lines(view: View) -> Iterator[RenderableType]:
    if pairs := (view.get("head_to_head") or {}).get("pairs"):
        by_quality = view["head_to_head"].get("quality") is not None
        yield table_of("pairs_by_quality" if by_quality else "pairs", pairs)
    told = status_text(view.get("outcome") or view.get("state"))
    if (view.get("target") or {}).get("budget_seconds") is not None:
        told.plain = outcome_text(told.plain, by_quality=True)
    yield Text.assemble("Verdict: ", told)
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
            if attempt.get("log_tail"):
                yield as_it_is(str(attempt["log_tail"]).rstrip())


def batch_lines(view: View, url: str) -> Iterator[RenderableType]:
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
