"""Draw and score a task inside its own sandbox. The worker starts it like runner.py.

An organiser wrote the task's module, so it must not reach the rest of this host. Labels stay in the
closure that `draw` returns.
"""

import importlib
import json
import math
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
runner: Any = importlib.import_module("runner")

FrameType: Any = runner.FrameType
MOST_ARRAYS = 32
ANSWER_SECONDS = 10  # Of the processor.


def allow_an_answer() -> None:
    """Limit the processor seconds of the next answer. More raise TimeoutError."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = math.ceil(time.process_time()) + ANSWER_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (min(until, most), most))


def end_late(*_: object) -> None:
    """Handle SIGXCPU: the limit of processor seconds is used up."""
    raise TimeoutError(f"more than {ANSWER_SECONDS} s of the processor for one answer")


def packed(task: Any) -> tuple[dict[str, Any], bytes]:
    """Return types and shapes of a task. Also as bytes: JSON, a line feed, aligned arrays."""
    import numpy as np

    parts: list[bytes] = []
    shapes: dict[str, Any] = {}
    for group in ("train", "inputs"):
        tables = getattr(task, group)
        shapes[group] = {}
        for name, value in tables.items():
            array = np.ascontiguousarray(value)
            shapes[group][name] = [str(array.dtype), list(array.shape)]
            parts += [array.tobytes(), b"\0" * (-array.nbytes % runner.ALIGNMENT)]
    if len(shapes["train"]) + len(shapes["inputs"]) > MOST_ARRAYS:
        raise ValueError(f"more than {MOST_ARRAYS} arrays")
    shapes["prediction"] = listed(task.predictions)
    return shapes, b"".join([json.dumps(shapes).encode(), b"\n", *parts])


def listed(spec: Any) -> list[Any]:
    """Return a type and a shape for JSON."""
    dtype, shape = spec
    return [str(dtype), list(shape)]


def check_shapes(module: Any, drawn: dict[str, Any]) -> None:
    """Refuse a draw whose arrays differ from the module's `shapes()`, if it has that function."""
    if not hasattr(module, "shapes"):
        return
    told = module.shapes()
    expected: dict[str, Any] = {
        group: {name: listed(spec) for name, spec in told[group].items()}
        for group in ("train", "inputs")
    }
    expected["prediction"] = listed(told["predictions"])
    if drawn != expected:
        raise ValueError(f"the draw has {drawn}; shapes() says {expected}")


def score(drawn: Any, predictions: Any) -> list[float]:
    """Return the quality on each half. Predictions that raise an error get NaN.

    An example is a class out of range. The log has the error. Every task can score zeros, so a
    task that fails on zeros too is broken.
    """
    import numpy as np

    try:
        first, second = drawn.score(predictions)
    except Exception:  # noqa: BLE001  (an organiser's module fails in any way)
        sys.stderr.write(traceback.format_exc())  # At once: a reader waits for its last line.
        allow_an_answer()
        drawn.score(np.zeros_like(predictions))
        first = second = math.nan
    return [float(first), float(second)]


def main() -> int:
    """Answer draws and scores until the worker closes the channel."""
    orders = json.loads(sys.argv[1])
    runner.limit(orders)
    signal.signal(signal.SIGXCPU, end_late)
    allow_an_answer()
    sys.path[:] = [*sys.path[1:], orders["site"], orders["package"]]
    import numpy as np

    module = importlib.import_module(orders["module"])
    channel = runner.Channel(orders["channel"])
    channel.send(FrameType.HELLO, b"{}")
    drawn = None
    while True:
        kind, body, _ = channel.receive_any()
        allow_an_answer()
        if kind in (FrameType.DRAW, FrameType.CONTROL):
            drawn = module.draw(body) if kind == FrameType.DRAW else module.control(body)
            shapes, body = packed(drawn)
            check_shapes(module, shapes)
            channel.send(FrameType.DRAWN, body)
        elif kind == FrameType.SCORE and drawn is not None:
            dtype, shape = drawn.predictions
            predictions = np.frombuffer(body, dtype).reshape(shape)
            halves = score(drawn, predictions)
            channel.send(FrameType.SCORED, json.dumps(halves).encode())
        else:
            return 1


if __name__ == "__main__":
    sys.exit(main())
