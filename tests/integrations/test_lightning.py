"""Lightning's own Trainer on digits, with the callback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.integrations.conftest import Digits, make_layers, read_log

lightning = pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice on workers and versions.
    pytest.mark.timeout(300),
]


class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """A small network; `val_acc` is the share of test images recognised."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.layers = make_layers()
        self.fail_at = fail_at

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if self.current_epoch == self.fail_at:
            raise ZeroDivisionError
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: Any, index: int) -> None:
        right = (self.layers(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("val_acc", right, batch_size=len(batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


def fit(
    digits: Digits,
    logs: Any,
    root: Path,
    *,
    net: Net | None = None,
    epochs: int = 3,
    **options: Any,
) -> None:
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", callbacks=[logs], logger=False, default_root_dir=root,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=2, **options,
    )  # fmt: skip
    trainer.fit(
        net or Net(),
        DataLoader(digits.train, batch_size=64, shuffle=True),
        DataLoader(digits.test, batch_size=599),
    )


@pytest.fixture
def callback(tmp_path: Path) -> Iterator[Any]:
    from finishline.callbacks.lightning import FinishlineCallback

    def make(seed: int = 1, **options: Any) -> Any:
        lightning.seed_everything(seed)
        settings = {"quality": "val_acc", "scale": 100.0, "out": tmp_path / "runs"} | options
        return FinishlineCallback("digits", seed=seed, **settings)

    return make  # type: ignore[return-value]


def test_each_validation_is_an_evaluation_and_the_sanity_check_is_none(
    digits: Digits, callback: Any, tmp_path: Path
) -> None:
    fit(digits, callback(), tmp_path)
    run = read_log(tmp_path / "runs" / "run_0.log")
    assert [each.epoch for each in run.evaluations] == [1, 2, 3]
    assert 50 < run.evaluations[-1].quality <= 100
    assert run.preparation_seconds is not None
    assert 0 < run.evaluations[0].seconds < run.evaluations[-1].seconds
    assert run.stop_seconds is not None
    assert run.stop_seconds >= run.evaluations[-1].seconds


def test_validations_within_an_epoch_tell_their_part_of_it(
    digits: Digits, callback: Any, tmp_path: Path
) -> None:
    batches = (len(digits.train) + 63) // 64
    fit(digits, callback(), tmp_path, epochs=2, val_check_interval=6)
    run = read_log(tmp_path / "runs" / "run_0.log")
    expected = [
        epoch + step / batches for epoch in (0, 1) for step in (6, 12, 18) if step <= batches
    ]
    assert [each.epoch for each in run.evaluations] == pytest.approx(expected)


def test_three_trainings_to_the_target_are_a_submission(
    digits: Digits, callback: Any, tmp_path: Path
) -> None:
    for seed in range(3):
        fit(digits, callback(seed, stop_at_target=True), tmp_path, epochs=60)
    runs = [read_log(tmp_path / "runs" / f"run_{number}.log") for number in range(3)]
    assert [run.status for run in runs] == ["success"] * 3
    for run in runs:
        assert [each.quality >= 97.5 for each in run.evaluations].index(True) == (
            len(run.evaluations) - 1
        )
    claim = json.loads((tmp_path / "runs" / "submission.json").read_text())
    assert claim["runs"] == ["run_0.log", "run_1.log", "run_2.log"]
    assert claim["framework"].startswith("torch ")


def test_an_exception_ends_the_log_as_aborted(
    digits: Digits, callback: Any, tmp_path: Path
) -> None:
    with pytest.raises(ZeroDivisionError):
        fit(digits, callback(), tmp_path, net=Net(fail_at=1))
    run = read_log(tmp_path / "runs" / "run_0.log")
    assert (len(run.evaluations), run.status) == (1, "aborted")


def test_a_metric_that_the_model_does_not_log_is_named(
    digits: Digits, callback: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="no metric 'accuracy'; this training has: val_acc"):
        fit(digits, callback(quality="accuracy"), tmp_path)
    assert read_log(tmp_path / "runs" / "run_0.log").status == "aborted"
