"""Benches: throughput, utilisation and seconds of exchange, on clocks that play a noisy host."""

import json
import logging
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from finishline.cli.main import main
from finishline.rules.measurements import RunTelemetry
from finishline.rules.run import Phase
from reference_models.digits import DigitsConfig, synthetic
from worker.bench.throughput import ROUNDS, answer, measure_throughput
from worker.child import EXCHANGE_MODULE, Communication
from worker.child_process import ChildError, measure_apart
from worker.machine.precision import count_work


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    def write(body):
        (tmp_path / "measuring_module.py").write_text(body)
        return "measuring_module"

    return write


ANSWERING = "import os\nfrom worker.events import answer_orders\n"


def test_a_module_is_told_its_orders_and_its_parent_and_answers(module):
    name = module(
        ANSWERING + "def answer(told):\n"
        "    os.system('echo a library says hello')\n"
        "    return told | {'threads_set': os.environ['OMP_NUM_THREADS']}\n"
        "answer_orders(answer)\n"
    )
    told = {"device": "cpu", "threads": 3}
    answer = measure_apart(name, told, 30.0)
    assert answer == told | {"threads_set": "3", "parent_pid": os.getpid()}


def test_a_long_answer_of_a_gentle_measurement_is_whole(module):
    body = "answer_orders(lambda _: {'nice': os.nice(0), 'points': list(range(100_000))})"
    found = measure_apart(module(ANSWERING + body), {}, 30.0, niceness=19)
    assert found == {"nice": 19, "points": list(range(100_000))}


@pytest.mark.parametrize(
    ("body", "limit", "stop", "said"),
    [
        ("import sys; sys.exit('no such device')", 30.0, False, "no such device"),
        ("print('no json')", 30.0, False, "no JSON object"),
        ("print('[1]')", 30.0, False, "no JSON object"),
        ("import time; time.sleep(600)", 0.3, False, "longer than"),
        ("import time; time.sleep(600)", 500.0, True, ""),  # The worker ends.
    ],
)
def test_the_log_says_why_a_module_failed(module, caplog, body, limit, stop, said):
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert measure_apart(module(body), {}, limit, stop=lambda: stop) is None
    assert time.monotonic() - started < 30
    assert said in caplog.text
    assert bool(caplog.text) is not stop


def test_an_interrupted_measurement_leaves_no_process(module, tmp_path):
    module(
        "import os, time; from pathlib import Path\n"
        f"Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    pids = []

    def interrupt():
        if (tmp_path / "pid").exists():
            pids.append((tmp_path / "pid").read_text())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_apart("measuring_module", {}, 60.0, stop=interrupt)
    assert not Path(f"/proc/{pids[0]}").exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("from reference_models import DataSetError as E; raise E('no data')", "no data"),
        ("raise MemoryError('cpu ran out of memory')", "cpu ran out of memory"),
        ("raise KeyError('no layer')", "own.py:model: KeyError: 'no layer'"),
    ],
)
def test_a_bench_that_fails_answers_with_a_sentence(module, error, said):
    body = f"def answer(told):\n    {error}\nfrom worker.events import answer_or_reason\n"
    name = module(body + "answer_or_reason(answer)\n")
    assert measure_apart(name, {"model": "own.py:model"}, 30.0) == {"missing": said}


THROUGHPUT = {"items_per_second": 6400.0, "slowest": 6000.0, "fastest": 6500.0}
THROUGHPUT |= {"seconds_per_call": 0.01, "items_per_call": 64, "calls": 70}
ANSWERS = {
    "worker.bench.throughput": {
        "training": THROUGHPUT, "inference": THROUGHPUT, "telemetry": asdict(RunTelemetry()),
        "steps_per_epoch": 18,
    },
    "worker.machine.precision": {
        "precision": {"lowest": "fp32", "scope": "one training step"},
        "work": {"batch_size": 64, "step_flops": 1e9, "step_bytes": 1e7},
    },
    "worker.machine.peak": {
        "figures": {
            "gemm_fp32": {"value": 0.2, "unit": "TFLOP/s", "how": "matmul"},
            "convolution_fp32": {"value": 0.4, "unit": "TFLOP/s", "how": "convolution"},
            "copy": {"value": 100.0, "unit": "GB/s", "how": "copy"},
        }
    },
}  # fmt: skip


@pytest.fixture
def benched(monkeypatch, capfd):
    def run(answers, batch_size=64):
        def answer_of(module, *_, **__):
            if answers[module] is None:
                raise ChildError("took longer than 140 s and was stopped")
            return answers[module]

        def measured(module, *_, **__):
            return answers[module]

        monkeypatch.setattr("worker.commands.measuring.answer_of", answer_of)
        for place in ("measuring", "train"):
            monkeypatch.setattr(f"worker.commands.{place}.measure_apart", measured)
        given = ["digits", "--set", f"batch_size={batch_size}", "--device", "cpu", "--json"]
        code = main(["bench", "train", *given])
        told = capfd.readouterr()
        return code, json.loads(told.out or "{}"), told.err

    return run


def test_utilisation_and_time_to_the_target_follow_from_what_is_measured(benched):
    _, found, _ = benched(ANSWERS)
    # 1 GFLOP in 10 ms are 0.1 TFLOP/s, of the 0.4 that a convolution reaches here.
    assert found["roofline"]["utilisation"] == pytest.approx(0.25)
    assert found["roofline"]["intensity"] == pytest.approx(100.0)
    assert found["roofline"]["bound"] == "compute"
    # The docstring of the reference: 7.67 epochs at 64, mean over 40 seeds.
    aim = found["to_target"]
    assert aim["epochs"] == pytest.approx(7.67, abs=0.01)
    assert aim["epoch_seconds"] == pytest.approx(0.18)
    assert aim["training_seconds"] == pytest.approx(0.18 * aim["epochs"])
    assert benched(ANSWERS, batch_size=48)[1]["to_target"] is None


def test_without_audit_or_roofs_the_throughput_stands_alone(benched):
    absent = dict.fromkeys(("worker.machine.precision", "worker.machine.peak"))
    _, found, _ = benched(ANSWERS | absent)
    assert found["training"]["items_per_second"] == 6400.0
    assert (found["precision"], found["work"], found["roofline"]) == (None, None, None)
    assert found["roofs"] == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "digits was not measured: its process took longer than 140 s"),
        ({"missing": "the reference digits offers no synthetic step"}, "no synthetic step\n"),
        ({"missing": "cpu ran out of memory"}, "memory; --set batch_size=... makes a step smaller"),
    ],
)
def test_without_a_throughput_there_is_no_result(benched, answer, said):
    code, _, error = benched(ANSWERS | {"worker.bench.throughput": answer})
    assert code == 1
    assert said in f"{json.loads(error)['error']['message']}\n"


class Host:
    """A clock that goes on by `seconds` with each call; some rounds are disturbed."""

    def __init__(self, *, seconds, disturbed=()):
        self.now, self.seconds, self.disturbed = 0.0, seconds, set(disturbed)
        self.calls, self.waits = 0, 0

    def call(self):
        self.calls += 1
        self.now += self.seconds * (10 if self.waits - 3 in self.disturbed else 1)

    def wait(self):
        self.waits += 1


@pytest.fixture
def measured(monkeypatch):
    def measure(host, seconds=7.0):
        clock = SimpleNamespace(perf_counter=lambda: host.now)
        monkeypatch.setattr("worker.bench.throughput.time", clock)
        monkeypatch.setattr("worker.bench.throughput.synchronise", lambda device: host.wait())
        return measure_throughput(host.call, items=64, seconds=seconds, device="cpu")

    return measure


@pytest.mark.parametrize(
    ("each", "asked", "calls"),
    [(0.125, 7.0, 56), (3.0, 7.0, 2), (100.0, 1.0, 1)],  # One is longer than the time.
)
def test_it_takes_about_as_long_as_asked_and_waits_at_the_edges_alone(measured, each, asked, calls):
    host = Host(seconds=each)
    found = measured(host, seconds=asked)
    assert (found["calls"], found["seconds_per_call"]) == (calls, pytest.approx(each))
    assert found["items_per_second"] == pytest.approx(64 / each)
    # After the first call, after the warm-up, after a step that tells how long it takes.
    assert host.waits == 3 + min(ROUNDS, calls)


def test_rounds_beside_a_busy_neighbour_do_not_move_the_median(measured):
    found = measured(Host(seconds=0.1, disturbed=[1, 4, 6]))
    assert found["items_per_second"] == pytest.approx(640)
    assert found["slowest"] == pytest.approx(64)
    assert found["fastest"] == pytest.approx(640)


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), RuntimeError("[enforce fail] can't allocate memory")]
)
def test_a_step_too_large_for_the_memory_names_its_batch(monkeypatch, error):
    def refuse(*_):
        raise error

    told = {"reference": "digits", "hyperparameters": {"batch_size": 64}, "device": "cpu"}
    monkeypatch.setattr("worker.bench.throughput.synthetic_of", refuse)
    with pytest.raises(MemoryError, match="cpu ran out of memory at a batch size of 64"):
        answer(told | {"seconds": 1.0})


def test_the_digits_reference_trains_and_infers_on_made_up_data():
    told = {"reference": "digits", "hyperparameters": {}, "device": "cpu", "seconds": 0.01}
    found = answer(told)
    assert found["training"]["items_per_call"] == 64
    assert found["inference"]["items_per_call"] == 599
    assert found["steps_per_epoch"] == 18  # 1198 // 64
    assert found["telemetry"]["memory_peak_bytes"] > 2**20


def test_a_matmul_has_two_flops_for_each_product_and_moves_its_operands_and_result():
    work = count_work(lambda: torch.ones(2, 3) @ torch.ones(3, 5), batch_size=2)
    assert work.step_flops == 2 * 2 * 3 * 5
    assert work.step_bytes == 4 * (2 * 3 + 3 * 5 + 2 * 5)
    assert work.batch_size == 2
    assert count_work(lambda: torch.ones(4).exp().sum(), batch_size=1) is None


def test_a_step_of_the_digits_network_has_the_flops_of_its_layers():
    # Products of a forward pass for one image: 64 places x 32 and 64 x 32 x 64 filters of nine,
    # 16 x 64 x 128 of nine, 512 x 10. Backward is twice that, less the gradient of the images.
    first = 2 * 64 * 32 * 9
    forward = first + 2 * (64 * 32 * 64 * 9 + 16 * 64 * 128 * 9 + 512 * 10)
    work = count_work(synthetic(DigitsConfig(batch_size=16), "cpu").train_step, batch_size=16)
    assert work.step_flops == 16 * (3 * forward - first)


@pytest.fixture
def exchange(monkeypatch):
    exchange = SimpleNamespace(so_far=None, how=lambda: "by hand")
    exchange.seconds = lambda: exchange.so_far
    monkeypatch.setitem(sys.modules, EXCHANGE_MODULE, SimpleNamespace(EXCHANGE=exchange))
    return exchange


def test_what_is_exchanged_in_a_train_phase_counts_and_nothing_else(exchange):
    communication = Communication()
    for phase, so_far in [
        (Phase.WARMUP, None),
        (Phase.DATA, 0.5),  # The warm-up exchanged for half a second.
        (Phase.TRAIN, 0.5),
        (Phase.EVAL, 2.0),  # 1.5 s of training
        (Phase.TRAIN, 9.0),  # 7 s of evaluation
        (Phase.EVAL, 9.25),  # 0.25 s of training
    ]:
        exchange.so_far = so_far
        communication.enter(phase)
    seconds = {"communication_seconds": pytest.approx(1.75)}
    assert communication.told() == seconds | {"communication_how": "by hand"}


def test_a_training_that_exchanges_nothing_tells_nothing(exchange, monkeypatch):
    communication = Communication()
    for phase in (Phase.TRAIN, Phase.EVAL):
        communication.enter(phase)
    assert communication.told() == {}
    monkeypatch.delitem(sys.modules, EXCHANGE_MODULE)
    communication.enter(Phase.TRAIN)
    assert communication.told() == {}
