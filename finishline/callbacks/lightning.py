"""A callback that logs a run of PyTorch Lightning."""

import math
from typing import Any

from finishline.callbacks.training_log import LoggedCallback

try:
    from lightning.pytorch import Callback
except ImportError:  # The same code under its older name.
    from pytorch_lightning import Callback


class FinishlineCallback(LoggedCallback, Callback):  # type: ignore[misc]  # Lightning may be absent.
    """Log the metric `quality` of each validation, times `scale`, as finishline.log.run does.

    With `stop_at_target` the training ends at the target.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._log.open(writes=trainer.is_global_zero)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock after the sanity check."""
        self._log.start()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._log.is_open or trainer.sanity_checking:
            return
        batches = trainer.num_training_batches
        share = (trainer.fit_loop.batch_idx + 1) / batches if math.isfinite(batches) else 1.0
        epoch = trainer.current_epoch + share
        if self._log.evaluate(trainer.callback_metrics, epoch=epoch):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._log.close(exception)
