"""A worker and the queue in words."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from finishline.rules.text import count_text
from web.formats import age, moment

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
    "busy": "Is at work.",
    "stopping": "Has stopped: it said so itself.",
    "unconfirmed": "Gets no work until an organiser confirms it.",
    "drifted": "Gets no work until its canary is well again.",
    "paused": "Is paused: it gets no work.",
    "draining": "Gets no more work and stops after what it is at.",
    "drained": "Was drained: it gets no work until it is resumed.",
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
    return f"Was last heard of {age(worker['last_seen_at'])}."


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
    others = [f"{out} out"] * bool(out) + [f"{held} paused or drained"] * bool(held)
    if workers:
        there = f"{count_text(workers, 'worker')}, {free} free"
        return ", ".join([there, *others])
    if held:
        return ", ".join(["no worker that takes work", *others])
    if out:
        whose = "its" if out == 1 else "their"
        return f"{count_text(out, 'worker')}, off {whose} baseline and out"
    if one["hardware_class"] is None:
        return "no worker is connected"
    seen = one["last_seen_at"]
    last = "none was ever seen" if seen is None else f"the last was heard of {age(seen)}"
    return (
        f"no worker of this class is connected, {last}; any other takes it, and then times are "
        "not compared"
    )


def expected_text(item: View, now: datetime | None = None) -> str:
    """Expected start of a waiting item: "in about 3 minutes", or why it is unknown."""
    if item["expected_start"] is None:
        return f"unknown: {item['why_unknown']}"
    seconds = (moment(item["expected_start"]) - (now or datetime.now(UTC))).total_seconds()
    if seconds < SOON_SECONDS:
        return "at any moment"
    for length, name in _SPANS:
        count = round(seconds / length)
        if seconds >= length:
            return f"in about {count_text(count, name)}"
    return "at any moment"


def queue_sentence(workers: Sequence[View], waiting: int) -> str:
    """Sentence with the numbers of workers alive and at work, and of waiting attempts."""
    alive = [worker for worker in workers if worker["alive"]]
    at_work = sum(worker["under_way"] is not None for worker in alive)
    what = "Nothing waits" if not waiting else f"{waiting} wait{'s' if waiting == 1 else ''}"
    return f"{len(alive)} of {count_text(len(workers), 'worker')} alive, {at_work} at work. {what}."
