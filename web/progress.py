"""A verification in rows, its progress and verdict, and the state of the worker that trains it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.ranking import evidence_words
from finishline.rules.text import count_text, significant
from finishline.rules.verification.head_to_head import Side
from finishline.rules.verification.purposes import PURPOSES
from web.formats import DASH, number

View = Mapping[str, Any]


def kind_word(verification: Mapping[str, Any]) -> str:
    """Name of a set of measured runs: a verification where it checks a submission."""
    kind = str(verification["kind"])
    return PURPOSES[kind].words.name or kind


def may_cancel(verification: Mapping[str, Any]) -> bool:
    """Whether an organiser may cancel it: running evidence ends by itself."""
    return verification["state"] in ("queued", "checking") or (
        PURPOSES[verification["kind"]].track != "evidence"
    )


def claims_nothing(submission: View | None) -> bool:
    """Whether a submission has no figures of its own, as a board's reference has none."""
    return submission is not None and submission["kind"] == "logs" and not submission["runs"]


def _variant(verification: Mapping[str, Any], run: int) -> str | None:
    """The factors that were off in a run of an ablation. None for other jobs."""
    if not verification["factors"]:
        return None
    off = verification["hyperparameters"][run]
    return f"without {', '.join(off)}" if off else "full code"


def side_of(verification: Mapping[str, Any], run: int) -> Side | None:
    """Side of a head-to-head that a run (from 0) trains. None in any other verification."""
    head_to_head = verification["head_to_head"]
    if head_to_head is None or run >= len(head_to_head["order"]):
        return None
    side: Side = head_to_head["order"][run]
    return side


def expected_evaluations(verification: Mapping[str, Any]) -> int | None:
    """Evaluations a run should need to the target, by the control points. None without them."""
    points: Sequence[Mapping[str, Any]] = verification["control_points"]
    target = verification["target"]
    sign = 1 if target["direction"] == "higher" else -1
    at_target = (p["index"] for p in points if sign * (p["mean"] - target["value"]) >= 0)
    last = points[-1]["index"] if points else None
    return next(at_target, last)


def progress_of(verification: View, race: View, expected: int | None) -> dict[str, Any]:
    """How far a verification is: the run under way, what it does, and the runs that ended."""
    planned = verification["runs_planned"] or 1
    ended = [run for run in race["runs"] if run["status"] is not None]
    current = next((run for run in race["runs"] if run["status"] is None), None)
    count = len(current["evaluations"]) if current else 0
    about = f" of about {expected}" if expected else ""
    return {
        "number": min((current["index"] if current else len(ended)) + 1, planned),
        "planned": planned,
        "doing": f"evaluation {count}{about}" if count else "preparing",
        "ended": len(ended),
        "reached": sum(run["status"] == "reached" for run in ended),
    }


def run_rows(verification: View, race: View) -> list[dict[str, Any]]:
    """One row for each run: of the report, or until there is one of every planned run."""
    reported = {run["index"]: run for run in (verification["report"] or {"runs": ()})["runs"]}
    runs = reported or {run["index"]: run for run in race["runs"]}
    seeds = dict(enumerate(verification["seeds"] or ()))
    untimed = {*verification["control_runs"], *verification["repeat_runs"]}
    ended = verification["state"] in ("done", "failed", "cancelled")
    rows = []
    for index in reported or range(verification["runs_planned"] or 0):
        run = runs.get(index, {"status": None, "evaluations": None})
        under_way = ("ended early", "not started") if ended else ("training", "waiting")
        last = run["evaluations"][-1] if run["evaluations"] else {}
        row = {name: last.get(name) for name in ("seconds", "quality", "second_half")}
        # A calibration's runs go on beyond the target.
        if "tta_seconds" in run and verification["kind"] != "calibration":
            row["seconds"] = run["tta_seconds"]
        rows.append(
            row
            | {
                "index": index,
                "is_check": index in untimed,
                "side": side_of(verification, index) or _variant(verification, index),
                "evaluations": None if run["evaluations"] is None else len(run["evaluations"]),
                "status": run["status"] or under_way[index not in runs],
                "seed": run.get("seed", seeds.get(index, DASH if seeds else "secret")),
                "failure": run.get("failure"),
            }
        )
    return rows


def whole_runs(expected: float) -> str:
    """A mean number of runs in whole ones: "3 to 4" for 3.5."""
    low, high = math.floor(expected), math.ceil(expected)
    return str(low) if low == high else f"{low} to {high}"


def worker_state(worker: View) -> str:
    """The word for a worker's badge: "gone" or "stopped" for a silent one, else its state."""
    state = str(worker["state"])
    if not worker["alive"]:
        return "stopped" if state == "stopping" else "gone"
    return "busy" if worker["under_way"] and state == "idle" else state


def subject_of(item: View) -> str:
    """Subject of an attempt: the model of its submission, else the benchmark's reference."""
    return str(item["model"] or f"{item['benchmark']} reference")


def why_not_timed(check: View | None) -> str:
    """Why a verification did not compare the claimed time, as its reason says."""
    messages = (str(reason["message"]) for reason in (check or {}).get("reasons", ()))
    untimed = (message for message in messages if message.startswith("time was not compared: "))
    return next(untimed, "its time was not compared")


def standing_words(submission: View) -> str:
    """The evidence of a submission with its check, or that it was withdrawn."""
    return "withdrawn" if submission["withdrawal"] else evidence_words(submission)


def short_reason(line: View, holder: str = "first place") -> str:
    """The reason of a verdict in one sentence. Of a head-to-head without its statistics."""
    reason = line["reason"]
    ratio, message = reason["numbers"].get("ratio"), str(reason["message"])
    if line["kind"] != "head_to_head" or not reason["numbers"].get("pairs"):
        return message[:1].upper() + message[1:]
    won, pairs = (int(reason["numbers"][name]) for name in ("challenger_won", "pairs"))
    if not ratio:  # Of qualities: "the challenger is better: the challenger reached 1 more than".
        reached = message.partition(": the challenger ")[2].partition(" the holder ")[0]
        return f"It {reached} {holder} over {count_text(pairs, 'pair')}."
    over = f"Over {count_text(pairs, 'pair')} it"
    pace = f"took {significant(ratio, 3)} times as long as {holder}"
    if line["outcome"] == "not_proven":
        return f"{over} {pace}, which stays."
    if ratio < 0.5:
        pace = f"was {number(1 / ratio, 2)} times as fast as {holder}"
    return f"{over} {pace}, and won {won} of them."


def reads_between_evaluations(check: View, submission: View) -> bool:
    """Whether a verdict has other epochs of a claim than the submission's own page."""
    whole = submission["result"].get("epochs_to_target")  # Inference has none.
    numbers = (reason["numbers"] for reason in check["reasons"])
    read_off = (known.get("claimed_mean_epochs") for known in numbers)
    return whole is not None and any(
        epochs is not None and number(epochs, 3) != number(whole, 3) for epochs in read_off
    )


CHECKS = {
    "Reached the target": ("reached_target", "did_not_reach", "below_entropy"),
    "Learned like the reference": (
        *("within_band", "below_band", "above_band"),
        *("curve_reproduced", "curve_not_reproduced"),
    ),
    "Same number of epochs": ("convergence_agrees", "converges_faster_than_replay"),
    "Speed as claimed": (
        *("time_agrees", "slower_than_claimed", "hardware_differs", "worker_drifted"),
        *("time_not_compared", "quality_compared", "claim_has_no_time"),
    ),
}
# The heaviest weight speaks for a check.
HEAVIEST = ("rejects", "leaves_open", "supports", "note")


def verdict_checks(
    verification: View, submission: View | None = None
) -> list[tuple[str, View | None]]:
    """The four checks of a replay with their heaviest reasons. Two where nothing is claimed."""
    if verification["kind"] != "replay" or not verification["outcome"]:
        return []
    found = [
        (
            name,
            min(
                (reason for reason in verification["reasons"] if reason["code"] in codes),
                key=lambda reason: HEAVIEST.index(reason["weight"]),
                default=None,
            ),
        )
        for name, codes in CHECKS.items()
    ]
    return found[: 2 if claims_nothing(submission) else 4]
