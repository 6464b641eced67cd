"""The state of a worker in a word, and its speed check as a line."""

from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.text import count_text, significant
from finishline.rules.verification.utilisation import TOLERANCE
from web.formats import DASH, day, percent

View = Mapping[str, Any]

ROOF_NAMES = {
    "gemm": "Matmul",
    "convolution": "Convolution",
    "copy": "Memory copy",
    "all_reduce": "All-reduce",
    "launch_latency": "Kernel launch",
    "host_to_device": "Host to device",
}


def worker_state(worker: View) -> str:
    """The word for a worker's badge: "gone" or "stopped" for a silent one, else its state."""
    state = str(worker["state"])
    if not worker["alive"]:
        return "stopped" if state == "stopping" else "gone"
    return "busy" if worker["under_way"] and state == "idle" else state


def subject_of(item: View) -> str:
    """Subject of an attempt: the model of its submission, else the benchmark's reference."""
    return str(item["model"] or f"{item['benchmark']} reference")


def roof_name(name: str) -> str:
    """The name of a probed figure: "gemm_bf16" is "Matmul, bf16"."""
    if name in ROOF_NAMES:
        return ROOF_NAMES[name]
    what, _, kind = name.partition("_")
    return f"{ROOF_NAMES[what]}, {kind}" if what in ROOF_NAMES else name.replace("_", " ")


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
        return f"{since}, {latest}, without a baseline yet."
    ratios = [probe["ratio"] for probe in readings if probe["ratio"] is not None]
    furthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return (
        f"{since}, {latest}: {off_text(readings[-1]['ratio'])} (baseline "
        f"{speed_text(baseline)}). Furthest off {off_text(furthest)}."
    )
