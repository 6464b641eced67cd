"""The Trainer of Hugging Face on digits, with the callback."""

import json
import subprocess
import sys

import pytest
import torch

from tests.integrations.conftest import make_layers, read_log

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate, which the Trainer needs, is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Advice on pinned memory and versions.
    pytest.mark.timeout(300),
]


class Net(torch.nn.Module):
    """A small network with the loss that the Trainer asks for."""

    def __init__(self, fail_after=None):
        super().__init__()
        self.layers = make_layers()
        self.steps_left = fail_after

    def forward(self, x, labels):
        if self.steps_left is not None and self.training:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise ZeroDivisionError
        logits = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def together(items):
    x, y = zip(*items, strict=True)
    return {"x": torch.stack(x), "labels": torch.stack(y)}


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


def train(digits, logs, root, *, net=None, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(root / "trainer"), eval_strategy="epoch", save_strategy="no",
        per_device_train_batch_size=64, per_device_eval_batch_size=599, learning_rate=0.003,
        lr_scheduler_type="constant", report_to=[], use_cpu=True, disable_tqdm=True,
        **{"num_train_epochs": 3, "eval_on_start": True} | options,
    )  # fmt: skip
    trainer = transformers.Trainer(
        net or Net(), arguments, train_dataset=digits.train, eval_dataset=digits.test,
        data_collator=together, compute_metrics=accuracy, callbacks=[logs],
    )  # fmt: skip
    trainer.evaluate()  # Before the training: no evaluation of the run.
    trainer.train()


@pytest.fixture
def callback(tmp_path):
    from finishline.callbacks.transformers import FinishlineCallback

    def make(seed=1, **options):
        transformers.set_seed(seed)
        settings = {"quality": "eval_accuracy", "scale": 100.0, "out": tmp_path / "runs"} | options
        return FinishlineCallback("digits", seed=seed, **settings)

    return make


def test_each_evaluation_of_the_training_is_logged_and_no_other(digits, callback, tmp_path):
    train(digits, callback(), tmp_path)
    run = read_log(tmp_path / "runs" / "run_0.log")
    assert [each.epoch for each in run.evaluations] == [1, 2, 3]
    assert 50 < run.evaluations[-1].quality <= 100
    assert run.stop_seconds is not None
    assert run.stop_seconds >= run.evaluations[-1].seconds > run.evaluations[0].seconds > 0


def test_three_trainings_to_the_target_are_a_submission(digits, callback, tmp_path):
    for seed in range(3):
        train(digits, callback(seed, stop_at_target=True), tmp_path, num_train_epochs=60)
    runs = [read_log(tmp_path / "runs" / f"run_{number}.log") for number in range(3)]
    assert [run.status for run in runs] == ["success"] * 3
    for run in runs:
        assert [each.quality >= 97.5 for each in run.evaluations].index(True) == (
            len(run.evaluations) - 1
        )
    claim = json.loads((tmp_path / "runs" / "submission.json").read_text())
    assert claim["runs"] == ["run_0.log", "run_1.log", "run_2.log"]
    assert claim["framework"].startswith("torch ")


def test_a_further_training_ends_the_log_of_one_that_failed(digits, callback, tmp_path):
    logs = callback()
    with pytest.raises(ZeroDivisionError):
        train(digits, logs, tmp_path, net=Net(fail_after=30))
    train(digits, logs, tmp_path)
    failed, whole = (read_log(tmp_path / "runs" / f"run_{number}.log") for number in (0, 1))
    assert (len(failed.evaluations), failed.status) == (1, "aborted")
    assert len(whole.evaluations) == 3


def test_a_log_that_nobody_closed_ends_as_aborted_with_the_program(tmp_path):
    script = (
        "from types import SimpleNamespace\n"
        "from finishline.callbacks.transformers import FinishlineCallback\n"
        f"logs = FinishlineCallback('digits', quality='q', seed=1, out={str(tmp_path)!r})\n"
        "state = SimpleNamespace(is_world_process_zero=True, global_step=19, epoch=1.0)\n"
        "logs.on_train_begin(None, state, None)\n"
        "logs.on_evaluate(None, state, None, metrics={'q': 98.0})\n"
        "raise ZeroDivisionError\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False, stderr=subprocess.DEVNULL)
    run = read_log(tmp_path / "run_0.log")
    assert (len(run.evaluations), run.status) == (1, "aborted")
