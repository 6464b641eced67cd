"""Lightning's own Trainer on digits, with the callback."""

import json

import pytest
import torch
from torch.utils.data import DataLoader

from tests.integrations.conftest import make_layers, read_log

lightning = pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice on workers and versions.
    pytest.mark.timeout(300),
]


class Net(lightning.LightningModule):
    """A small network; `val_acc` is the share of test images recognised."""

    def __init__(self, fail_at=None):
        super().__init__()
        self.layers = make_layers()
        self.fail_at = fail_at

    def training_step(self, batch, index):
        if self.current_epoch == self.fail_at:
            raise ZeroDivisionError
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, index):
        right = (self.layers(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("val_acc", right, batch_size=len(batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.003)


def fit(digits, logs, root, *, net=None, epochs=3, **options):
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
def callback(tmp_path):
    from finishline.callbacks.lightning import FinishlineCallback

    def make(seed=1, **options):
        lightning.seed_everything(seed)
        settings = {"quality": "val_acc", "scale": 100.0, "out": tmp_path / "runs"} | options
        return FinishlineCallback("digits", seed=seed, **settings)

    return make


def test_each_validation_is_an_evaluation_and_the_sanity_check_is_none(digits, callback, tmp_path):
    fit(digits, callback(), tmp_path)
    run = read_log(tmp_path / "runs" / "run_0.log")
    assert [each.epoch for each in run.evaluations] == [1, 2, 3]
    assert 50 < run.evaluations[-1].quality <= 100
    assert run.preparation_seconds is not None
    assert 0 < run.evaluations[0].seconds < run.evaluations[-1].seconds
    assert run.stop_seconds is not None
    assert run.stop_seconds >= run.evaluations[-1].seconds


def test_validations_within_an_epoch_tell_their_part_of_it(digits, callback, tmp_path):
    batches = (len(digits.train) + 63) // 64
    fit(digits, callback(), tmp_path, epochs=2, val_check_interval=6)
    run = read_log(tmp_path / "runs" / "run_0.log")
    expected = [
        epoch + step / batches for epoch in (0, 1) for step in (6, 12, 18) if step <= batches
    ]
    assert [each.epoch for each in run.evaluations] == pytest.approx(expected)


def test_three_trainings_to_the_target_are_a_submission(digits, callback, tmp_path):
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


def test_an_exception_ends_the_log_as_aborted(digits, callback, tmp_path):
    with pytest.raises(ZeroDivisionError):
        fit(digits, callback(), tmp_path, net=Net(fail_at=1))
    run = read_log(tmp_path / "runs" / "run_0.log")
    assert (len(run.evaluations), run.status) == (1, "aborted")


def test_a_metric_that_the_model_does_not_log_is_named(digits, callback, tmp_path):
    with pytest.raises(ValueError, match="no metric 'accuracy'; this training has: val_acc"):
        fit(digits, callback(quality="accuracy"), tmp_path)
    assert read_log(tmp_path / "runs" / "run_0.log").status == "aborted"
