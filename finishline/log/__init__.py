"""Run logs from a training script of your own, line by line, in MLPerf's format.

    import finishline.log

    with finishline.log.run("digits", seed=7, division="open") as run:
        ...                                       # load, compile, warm up
        run.start()                               # the clock starts
        for epoch in range(1, 21):
            ...
            if run.evaluation(epoch=epoch, quality=accuracy):
                break                             # at the target

Importing this module is light. The first run loads the rules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from finishline.log.recorder import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name != "run":
        raise AttributeError(name)
    return import_module("finishline.log.recorder").run
