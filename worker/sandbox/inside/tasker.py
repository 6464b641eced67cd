"""Draw and score a task inside a box of its own. Started by the worker as runner.py is.

The task's module is an organiser's: it decides its own benchmark and nothing else on this host.
Labels stay in the closure that `draw` returns.
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

HELLO, DRAW, DRAWN, SCORE, SCORED, CONTROL = 1, 16, 17, 18, 19, 20
ALIGNMENT = 64
MOST_ARRAYS = 32
ANSWER_SECONDS = 10  # Of the processor.


def allow_an_answer() -> None:
    """Limit the processor seconds from now on to those of one answer. More raise TimeoutError."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = math.ceil(time.process_time()) + ANSWER_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (min(until, most), most))


def end_late(*_: object) -> None:
    """Handle the signal that a limit to processor seconds is used up."""
    raise TimeoutError(f"more than {ANSWER_SECONDS} s of the processor for one answer")


def packed(task: Any) -> tuple[dict[str, Any], bytes]:
    """Types and shapes of a drawn task. These as JSON, a line feed, and the arrays in a row."""
    import numpy as np

    parts: list[bytes] = []
    shapes: dict[str, Any] = {}
    for group in ("train", "inputs"):
        tables = getattr(task, group)
        shapes[group] = {}
        for name, value in tables.items():
            array = np.ascontiguousarray(value)
            shapes[group][name] = [str(array.dtype), list(array.shape)]
            parts.append(array.tobytes())
            parts.append(b"\0" * (-array.nbytes % ALIGNMENT))
    if len(shapes["train"]) + len(shapes["inputs"]) > MOST_ARRAYS:
        raise ValueError(f"more than {MOST_ARRAYS} arrays")
    shapes["prediction"] = listed(task.predictions)
    return shapes, b"".join([json.dumps(shapes).encode(), b"\n", *parts])


def listed(spec: Any) -> list[Any]:
    """A type and a shape as they stand in JSON."""
    dtype, shape = spec
    return [str(dtype), list(shape)]


def check_shapes(module: Any, drawn: dict[str, Any]) -> None:
    """Refuse a draw with other arrays than the module's `shapes()`, if it has that function."""
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
    """Quality on each half. NaN for predictions, a class out of range say, that raise an error.

    The log has the error. Zeros are predictions of any task: one that fails on them too is broken.
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
    """Answer draws and scores until the worker is gone."""
    orders = json.loads(sys.argv[1])
    runner.limit(orders)
    signal.signal(signal.SIGXCPU, end_late)
    allow_an_answer()
    sys.path[:] = [*sys.path[1:], orders["site"], orders["package"]]
    import numpy as np

    module = importlib.import_module(orders["module"])
    channel = runner.Channel(orders["channel"])
    channel.send(HELLO, b"{}")
    drawn = None
    while True:
        kind, body = channel.receive_any()
        allow_an_answer()
        if kind in (DRAW, CONTROL):
            drawn = module.draw(body) if kind == DRAW else module.control(body)
            shapes, body = packed(drawn)
            check_shapes(module, shapes)
            channel.send(DRAWN, body)
        elif kind == SCORE and drawn is not None:
            dtype, shape = drawn.predictions
            predictions = np.frombuffer(body, dtype).reshape(shape)
            halves = score(drawn, predictions)
            channel.send(SCORED, json.dumps(halves).encode())
        else:
            return 1


if __name__ == "__main__":
    sys.exit(main())
