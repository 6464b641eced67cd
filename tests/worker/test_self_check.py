"""A worker's canary and roofs, on measurements and a server that say what a test wants."""

import json
import time

import pytest

from finishline.rules.scoring.measurements import ProbeAnswer
from worker.intake import WorkerState
from worker.link import UnreachableError
from worker.self_check import SelfCheck

CANARY = {"gflops": 100.0, "configuration": "numpy", "how": "best of 0.5 s"}
ROOFS = {
    "figures": {
        "gemm_bf16": {"value": 700.0, "unit": "TFLOP/s", "how": "matmul"},
        "gemm_fp32": {"value": 50.0, "unit": "TFLOP/s", "how": "matmul"},
        "all_reduce": {"value": None, "unit": "GB/s", "how": "absent: one device"},
    },
    "torch": "2.13.0",
    "cuda": None,
}


class FakeServer:
    """Keeps probes; `answers` are given one after the other, the last again and again."""

    def __init__(self):
        self.probes = []
        self.answers = [ProbeAnswer()]

    def probe(self, probe):
        self.probes.append(probe)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Measurements:
    """Answers by module, and the orders that were given."""

    def __init__(self):
        self.answers = {"worker.canary": CANARY, "worker.roofs": ROOFS}
        self.orders = []

    def __call__(self, module, orders, limit_seconds):
        self.orders.append((module, dict(orders)))
        return self.answers[module]


OFF = ProbeAnswer(drifted=True, baseline_gflops=120.0, ratio=0.83, message="16.7 % slower")


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def measure():
    return Measurements()


@pytest.fixture
def state():
    return WorkerState()


@pytest.fixture
def self_check(server, measure, system, state):
    def make(device="cpu", **settings):
        return SelfCheck(
            server,
            system,
            state,
            device=device,
            surroundings={"kernel": "6.1"},
            measure=measure,
            **settings,
        )

    return make


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def test_a_canary_is_told_with_its_moment_and_attempt(self_check, server):
    checked = self_check().check("before", attempt_id="a-1")
    assert checked.drift is None
    assert checked.canary.gflops == 100.0
    [probe] = server.probes
    assert (probe.worker, probe.moment, probe.attempt_id) == ("grace", "before", "a-1")
    assert probe.figures == {}


def test_a_worker_is_asked_three_times_before_it_is_believed_to_be_off(self_check, server):
    server.answers = [OFF]
    assert self_check().check("before").drift == "16.7 % slower"
    assert len(server.probes) == 3


def test_one_reading_that_is_well_is_enough(self_check, server):
    server.answers = [OFF, ProbeAnswer()]
    assert self_check().check("before").drift is None
    assert len(server.probes) == 2


def test_a_worker_that_is_out_measures_again_before_it_takes_work(self_check, server):
    check = self_check()
    assert check.is_fit()
    assert server.probes == []
    server.answers = [OFF]
    check.check("after")
    assert not check.is_fit()
    server.answers = [ProbeAnswer()]
    assert check.is_fit()
    assert server.probes[-1].moment == "recheck"


def test_a_server_that_does_not_answer_takes_no_worker_out(self_check, server):
    server.answers = [UnreachableError("away")]
    assert self_check().check("before").drift is None


def test_a_canary_that_fails_takes_no_worker_out(self_check, server, measure):
    measure.answers["worker.canary"] = None
    assert self_check().check("before").canary is None
    measure.answers["worker.canary"] = {"gflops": "fast"}
    assert self_check().check("before").canary is None
    assert server.probes == []


def test_the_canary_of_an_accelerator_is_a_roof_and_names_what_it_is_of(self_check, measure):
    canary = self_check("cuda").check("before").canary
    assert canary.gflops == 700_000.0
    assert canary.configuration == "torch 2.13.0 gemm_bf16 on None"
    assert measure.orders[0][1]["only"] == ("gemm_bf16", "gemm_fp32")


def test_an_accelerator_without_bfloat16_has_a_canary_in_float32(self_check, measure):
    figures = {"gemm_fp32": ROOFS["figures"]["gemm_fp32"]}
    measure.answers["worker.roofs"] = ROOFS | {"figures": figures}
    assert self_check("cuda").check("before").canary.gflops == 50_000.0


def test_at_its_start_a_worker_tells_its_roofs_and_its_surroundings(self_check, server):
    with self_check():
        wait_until(lambda: server.probes)
    [probe] = server.probes
    assert probe.moment == "start"
    assert probe.figures["gemm_bf16"].value == 700.0
    assert probe.figures["all_reduce"].value is None
    assert probe.host == {"kernel": "6.1", "torch": "2.13.0", "cuda": None}
    assert probe.canary.gflops == 100.0


def test_roofs_that_the_server_did_not_hear_are_told_again(self_check, server):
    server.answers = [UnreachableError("away"), ProbeAnswer()]
    with self_check(recheck_seconds=0.01):
        wait_until(lambda: len(server.probes) >= 2)
    assert server.probes[1].figures == server.probes[0].figures


def test_a_worker_that_is_out_measures_again_while_it_is_idle(self_check, server, state):
    server.answers = [OFF]
    state.busy = True
    with self_check(recheck_seconds=0.01, extent="canary"):
        wait_until(lambda: len(server.probes) == 3)
        state.busy = False
        wait_until(lambda: len(server.probes) > 3)
    assert {probe.moment for probe in server.probes[3:]} == {"recheck"}


def test_a_worker_that_measures_nothing_is_always_fit(self_check, server, measure):
    with self_check(extent="off") as check:
        assert check.check("before").canary is None
        assert check.is_fit()
    assert (server.probes, measure.orders) == ([], [])


def kept_roof(file):
    return json.loads(file.read_text())["cpu-test"]["gflops"]


def test_a_roof_that_is_wanted_is_measured_once_and_kept(
    self_check, server, measure, state, tmp_path
):
    state.roof_wanted, roofs = True, tmp_path / "roofs.json"
    with self_check(extent="off", roof_file=roofs):
        wait_until(lambda: server.probes)
    assert (server.probes[0].moment, server.probes[0].canary.gflops) == ("roof", 100.0)
    assert kept_roof(roofs) == 100.0

    with self_check(extent="off", roof_file=roofs):  # A server that has lost it is told again.
        wait_until(lambda: len(server.probes) == 2)
    assert server.probes[1].canary == server.probes[0].canary
    assert [module for module, _ in measure.orders] == ["worker.canary"]


def test_the_roof_of_another_class_is_not_taken(self_check, server, measure, state, tmp_path):
    state.roof_wanted, roofs = True, tmp_path / "roofs.json"
    roofs.write_text(json.dumps({"cpu-other": CANARY | {"gflops": 5.0}}))
    with self_check(extent="off", roof_file=roofs):
        wait_until(lambda: server.probes)
    assert server.probes[0].canary.gflops == kept_roof(roofs) == 100.0


@pytest.mark.parametrize("content", ["", "[]", '{"cpu-test": {"gflops": "fast"}}'])
def test_a_roof_that_cannot_be_read_is_measured_again(content, self_check, server, state, tmp_path):
    state.roof_wanted, roofs = True, tmp_path / "roofs.json"
    roofs.write_text(content)
    with self_check(extent="off", roof_file=roofs):
        wait_until(lambda: server.probes)
    assert kept_roof(roofs) == 100.0


def test_a_roof_that_nobody_wants_or_that_fails_is_not_told(
    self_check, server, measure, state, tmp_path
):
    roofs = tmp_path / "roofs.json"
    with self_check(extent="off", roof_file=roofs) as check:
        check.check("before")
    state.roof_wanted = True
    with self_check(extent="off") as check:
        check.check("before")
    assert measure.orders == []
    measure.answers["worker.canary"] = None
    with self_check(extent="off", roof_file=roofs):
        wait_until(lambda: measure.orders)
    assert (server.probes, roofs.exists()) == ([], False)


def test_a_good_reading_after_one_attempt_is_the_next_ones_before(self_check, server, measure):
    checks = self_check()
    after = checks.check("after", attempt_id="a-1")
    assert checks.check("before", attempt_id="a-2") == after
    assert [probe.attempt_id for probe in server.probes] == ["a-1"]
    # It counts once, and one that is off never does.
    checks.check("before", attempt_id="a-3")
    assert len(server.probes) == 2
    server.answers = [OFF]
    checks.check("after", attempt_id="a-3")
    told = len(server.probes)
    assert checks.check("before", attempt_id="a-4").drift == "16.7 % slower"
    assert len(server.probes) > told
