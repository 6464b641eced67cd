"""The state of a worker, the subject of its job and its probed figures, in words."""

from collections.abc import Mapping
from typing import Any

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
