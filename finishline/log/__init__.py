"""Run logs from a training script of your own, line by line, in MLPerf's format.

    import finishline.log

    with finishline.log.run("digits", seed=7, division="open") as run:
        ...                                       # load, compile, warm up
        run.start()                               # the clock starts
        for epoch in range(1, 21):
            ...
            if run.evaluation(epoch=epoch, quality=accuracy):
                break                             # at the target

Importing this module loads neither a training library nor the rules; the first run loads the rules.
"""

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from finishline.log.recorder import Recorder

NONE: Mapping[str, float] = MappingProxyType({})


def run(
    benchmark: str,
    *,
    seed: int,
    division: str | None = None,
    hyperparameters: Mapping[str, float] = NONE,
    model: str | None = None,
    framework: str | None = None,
    out: str | PathLike[str] | None = None,
) -> "Recorder":
    """Log of one training, for a `with`; it writes the next run_N.log and renews submission.json.

    The division is "closed" for the reference's own training, "open" for any other. None takes that
    of `finishline run`, else the benchmark's first one: closed, where there is one, which is then
    said on standard error. The log lies in `out`, else in FINISHLINE_OUT, else in runs/TIME. Where
    RANK is not 0 nothing is written. Raises RuleError for an unknown benchmark, with near names,
    and for settings that the division does not allow.
    """
    recorder: Recorder = import_module("finishline.log.recorder").open_recorder(
        benchmark,
        seed=seed,
        division=division,
        hyperparameters=hyperparameters,
        model=model,
        framework=framework,
        out=out,
    )
    return recorder
