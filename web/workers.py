"""A worker and the queue in words, and its speed check as a line."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from finishline.rules.text import count_text, significant
from finishline.rules.verification.utilisation import TOLERANCE
from web.formats import DASH, age, day, moment, percent

View = Mapping[str, Any]

ROOF_NAMES = {
    "gemm": "Matmul",
    "convolution": "Convolution",
    "copy": "Memory copy",
    "all_reduce": "All-reduce",
    "launch_latency": "Kernel launch",
    "host_to_device": "Host to device",
}
DOING = {
    "idle": "Waits for work.",
    "busy": "Is running an attempt.",
    "stopping": "Has stopped normally.",
    "unconfirmed": "Gets no work until an organiser confirms it.",
    "drifted": "Gets no work until its speed check is back at its baseline.",
    "paused": "Is paused: it gets no work.",
    "draining": "Gets no more work, and stops after its current attempt.",
}
SOON_SECONDS = 3.0
_SPANS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def worker_state(worker: View) -> str:
    """The word for a worker's badge: "gone" or "stopped" for a silent one, else its state."""
    state = str(worker["state"])
    if not worker["alive"]:
        return "stopped" if state == "stopping" else "gone"
    return "busy" if worker["under_way"] and state == "idle" else state


def doing_sentence(worker: View) -> str:
    """Sentence on a worker's state, where the page does not name its verification beside it."""
    if worker["alive"]:
        state = str(worker["state"])
        return DOING.get(state, f"Is {state}.")
    if worker["state"] == "stopping":
        return DOING["stopping"]
    return f"Last contact {age(worker['last_seen_at'])}."


def box_text(worker: View) -> str:
    """Whose code submissions a worker trains, in which environments, or why none."""
    box = worker.get("box")
    if box is None or box["entries"] == "off":
        why = box["why"] if box is not None else None
        return f"trains no code submissions: {why}" if why else "trains no code submissions"
    whose = "anyone" if box["entries"] == "anyone" else "approved users"
    environments = ", ".join(sorted(box["environments"])) or "none yet"
    return f"trains code submissions of {whose}: {environments}"


def run_text(at: View) -> str:
    """Progress of a worker in its attempt: "run 2 of 4"."""
    if at["run"] is None:
        return f"before run 1 of {at['runs']}"
    return f"run {at['run']} of {at['runs']}"


def subject_of(item: View) -> str:
    """Subject of an attempt: the model of its submission, else the benchmark's reference."""
    return str(item["model"] or f"{item['benchmark']} reference")


def roof_name(name: str) -> str:
    """The name of a probed figure: "gemm_bf16" is "Matmul, bf16"."""
    if name in ROOF_NAMES:
        return ROOF_NAMES[name]
    what, _, kind = name.partition("_")
    return f"{ROOF_NAMES[what]}, {kind}" if what in ROOF_NAMES else name.replace("_", " ")


def class_sentence(one: View) -> str:
    """Describe the workers of a hardware class, and the consequence where it has none."""
    workers, free, out, held = one["workers"], one["free"], one["out"], one["held"]
    others = [f"{out} offline"] * bool(out) + [f"{held} paused"] * bool(held)
    if workers:
        there = f"{count_text(workers, 'worker')}, {free} free"
        return ", ".join([there, *others])
    if held:
        return ", ".join(["no worker available", *others])
    if out:
        return f"{count_text(out, 'worker')} offline: speed check off the baseline"
    if one["hardware_class"] is None:
        return "no worker is connected"
    seen = one["last_seen_at"]
    last = "none was ever seen" if seen is None else f"last contact {age(seen)}"
    return (
        f"no worker of this class is connected, {last}; a worker of another class will run it, "
        "without comparing times"
    )


def expected_text(item: View, now: datetime | None = None) -> str:
    """Expected start of a waiting item: "in about 3 minutes", or why it is unknown."""
    if item["expected_start"] is None:
        why = item["why_unknown"]
        return f"unknown: {why[:1].lower()}{why[1:]}"
    seconds = (moment(item["expected_start"]) - (now or datetime.now(UTC))).total_seconds()
    if seconds < SOON_SECONDS:
        return "at any moment"
    for length, name in _SPANS:
        count = round(seconds / length)
        if seconds >= length:
            return f"in about {count_text(count, name)}"
    return "at any moment"


def queue_sentence(total: int, alive: int, at_work: int, waiting: int) -> str:
    """Sentence with the numbers of workers alive and at work, and of waiting attempts."""
    what = "The queue is empty" if not waiting else f"{waiting} waiting"
    return f"{alive} of {count_text(total, 'worker')} alive, {at_work} at work. {what}."


WIDTH, HEIGHT = 160.0, 36.0
MARGIN = 3.0
LEAST_SPAN = 2 * TOLERANCE  # Of the baseline to either side: noise does not fill the picture.


def canary_line(probes: Sequence[View]) -> dict[str, Any] | None:
    """The latest configuration's readings (`probes` has the newest first), ready to be drawn.

    `path` is that of the line, `last` the place of its end. `middle`, `top` and `bottom` are the
    heights of the baseline and of the limits to either side, None before there is a baseline.
    `summary` says the same. None without a reading.
    """
    told = [p for p in probes if p["gflops"] is not None and p["moment"] != "roof"]
    if not told:
        return None
    readings = [p for p in told if p["configuration"] == told[0]["configuration"]][::-1]
    values = [probe["gflops"] for probe in readings]
    baseline = readings[-1]["baseline_gflops"]
    centre = baseline or (min(values) + max(values)) / 2 or 1.0
    span = max(LEAST_SPAN * centre, *(1.1 * abs(value - centre) for value in values))

    def height(value: float) -> float:
        return float(round(HEIGHT / 2 - (value - centre) / span * (HEIGHT / 2 - MARGIN), 1))

    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    places = [(round(MARGIN + i * step, 1), height(value)) for i, value in enumerate(values)]
    if len(places) == 1:
        places = [(MARGIN, places[0][1]), (WIDTH - MARGIN, places[0][1])]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "path": "M" + "L".join(f"{x:g} {y:g}" for x, y in places),
        "last": places[-1],
        "middle": height(baseline) if baseline else None,
        "top": height(baseline * (1 + TOLERANCE)) if baseline else None,
        "bottom": height(baseline * (1 - TOLERANCE)) if baseline else None,
        "summary": _summary(readings, baseline),
    }


def speed_text(gflops: float | None) -> str:
    """The speed of arithmetic: GFLOP/s, from a thousand on TFLOP/s, four digits."""
    if gflops is None:
        return DASH
    unit, value = ("TFLOP/s", gflops / 1_000) if gflops >= 1_000 else ("GFLOP/s", gflops)
    return f"{significant(value, 4)}\u00a0{unit}"


def off_text(ratio: float | None) -> str:
    """Deviation of a reading from its baseline: "0.4 % below"."""
    if ratio is None:
        return "no baseline yet"
    off = 100 * (ratio - 1)
    if abs(off) < 0.05:
        return "at its baseline"
    return f"{percent(abs(off))} {'above' if off > 0 else 'below'}"


def _summary(readings: Sequence[View], baseline: float | None) -> str:
    count = len(readings)
    since = f"{count_text(count, 'reading')} since {day(readings[0]['measured_at'])}"
    latest = f"the latest {speed_text(readings[-1]['gflops'])}"
    if baseline is None:
        return f"{since}, {latest}; no baseline yet."
    ratios = [probe["ratio"] for probe in readings if probe["ratio"] is not None]
    furthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return (
        f"{since}, {latest}: {off_text(readings[-1]['ratio'])} (baseline "
        f"{speed_text(baseline)}); furthest off {off_text(furthest)}."
    )
