"""An attempt between its canaries, with its audit: what the report carries of them."""

from pathlib import Path

import pytest

from finishline.rules.scoring.measurements import Canary, ProbeAnswer
from worker.attempt_checks import AttemptChecks
from worker.intake import WorkerState
from worker.replay import replay
from worker.self_check import Checked

AUDIT = {
    "precision": {
        "lowest": "fp32",
        "observed": {"fp32": 9},
        "autocast": False,
        "flags": {},
        "canary_errors": {"matmul": 2e-7},
        "opaque": [],
        "scope": "one training step",
    },
    "work": {"batch_size": 64, "step_flops": 9e8, "step_bytes": 8e6},
}
OFF = ProbeAnswer(drifted=True, message="5.0 % slower than its own baseline")


class FakeSelfCheck:
    """Answers by moment."""

    def __init__(self):
        self.off = set()
        self.fit = True
        self.moments = []

    def check(self, moment, *, attempt_id=None):
        self.moments.append((moment, attempt_id))
        answer = OFF if moment in self.off else ProbeAnswer()
        return Checked(Canary(100.0, "numpy", "best"), answer)

    def is_fit(self):
        return self.fit


@pytest.fixture
def self_check():
    return FakeSelfCheck()


@pytest.fixture
def audits():
    """What was asked of the audit."""
    return []


@pytest.fixture
def checks(self_check, audits):
    def measure(module, orders, limit_seconds):
        audits.append((module, orders["reference"], orders["hyperparameters"]))
        return AUDIT

    return AttemptChecks(self_check, device="cpu", data_dir=Path("unused"), measure=measure)


@pytest.fixture
def report_of(server_client, fake_server, system, host, checks):
    def make(job):
        replay(
            job,
            server=server_client,
            system=system,
            host=host,
            state=WorkerState(),
            checks=checks,
        )
        return fake_server.bodies("report")[-1]

    return make


def test_a_report_has_both_canaries_and_the_audit(report_of, make_job, self_check):
    report = report_of(make_job("climb", seeds=(1, 2)))
    assert [canary["gflops"] for canary in report["canaries"]] == [100.0, 100.0]
    assert self_check.moments == [("before", "attempt-1"), ("after", "attempt-1")]
    assert report["precision"]["lowest"] == "fp32"
    assert report["work"]["step_flops"] == 9e8
    assert report["drift"] is None
    assert report["failure"] is None


def test_a_worker_that_is_off_before_an_attempt_trains_nothing(report_of, make_job, self_check):
    self_check.off = {"before"}
    report = report_of(make_job("climb"))
    assert report["runs"] == []
    assert report["failure"]["code"] == "worker_drifted"
    assert report["failure"]["kind"] == "infrastructure"
    assert "5.0 % slower" in report["failure"]["message"]


def test_a_worker_that_is_off_afterwards_reports_its_runs_and_says_so(
    report_of, make_job, self_check
):
    self_check.off = {"after"}
    report = report_of(make_job("climb"))
    assert [run["status"] for run in report["runs"]] == ["reached"]
    assert report["drift"].startswith("5.0 % slower")
    assert report["failure"] is None


def test_a_worker_that_is_out_does_not_ask_for_an_attempt(
    make_job, self_check, server_client, fake_server, system, host, checks
):
    self_check.fit = False
    replay(
        make_job(),
        server=server_client,
        system=system,
        host=host,
        state=WorkerState(),
        checks=checks,
    )
    assert fake_server.posts == []


def test_a_training_with_the_same_settings_is_audited_once(checks, make_job, audits):
    first = checks.audit(make_job("climb"))
    assert checks.audit(make_job("climb", seeds=(7,))) == first
    checks.audit(make_job("climb", hyperparameters={"batch_size": 32}))
    assert [settings for _, _, settings in audits] == [{"batch_size": 64}, {"batch_size": 32}]


def test_runs_that_differ_in_their_settings_have_no_common_audit(checks, make_job, audits):
    tables = ({"batch_size": 64}, {"batch_size": 32})
    job = make_job("climb", seeds=(1, 2), hyperparameters_by_run=tables)
    assert checks.audit(job).precision is None
    assert audits == []


@pytest.mark.parametrize("answer", [None, {"precision": {"lowest": "fp33"}}])
def test_an_audit_that_fails_is_absent(self_check, make_job, answer):
    checks = AttemptChecks(
        self_check, device="cpu", data_dir=Path("unused"), measure=lambda *_: answer
    )
    assert checks.audit(make_job()).precision is None
