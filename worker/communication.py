"""Share of a training's train phase that its first process spent on exchanging gradients."""

import sys
from typing import Any

from finishline.rules.scoring.run import Phase

EXCHANGE_MODULE = "reference_models.communication"


class Communication:
    """Follow the phases of a run and sum the exchanges in its train phases.

    A training that never loaded the counting module has no figures.
    """

    def __init__(self) -> None:
        self._seconds: float | None = None
        self._begun_at: float | None = None

    def enter(self, phase: Phase) -> None:
        """Enter `phase`: the time belongs to it from here on; the device has been synchronised."""
        found = _exchange()
        if found is None:
            return
        so_far = found.seconds()
        if self._begun_at is not None and so_far is not None:
            self._seconds = (self._seconds or 0.0) + max(0.0, so_far - self._begun_at)
        self._begun_at = (so_far or 0.0) if phase is Phase.TRAIN else None

    def told(self) -> dict[str, Any]:
        """Fields for a measurement's event; empty where nothing was exchanged."""
        found = _exchange()
        if found is None or self._seconds is None:
            return {}
        return {"communication_seconds": self._seconds, "communication_how": found.how()}


def _exchange() -> Any:
    """Exchanges counted in this process, None where that module was never loaded."""
    module = sys.modules.get(EXCHANGE_MODULE)
    return None if module is None else module.EXCHANGE
