"""A callback that logs a run of the Trainer of Hugging Face."""

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from finishline.callbacks.training_log import LoggedCallback


class FinishlineCallback(LoggedCallback, TrainerCallback):  # type: ignore[misc]  # Transformers may be absent.
    """Log the metric `quality` of each evaluation, times `scale`, as finishline.log.run does.

    With `stop_at_target` the training ends at the target.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log.open(writes=state.is_world_process_zero)
        self._log.start()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, *, metrics: Mapping[str, Any], **_: Any
    ) -> None:
        """Log an evaluation after the first step."""
        if not self._log.is_open or state.global_step == 0:
            return
        if self._log.evaluate(metrics, epoch=state.epoch):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log.close()
