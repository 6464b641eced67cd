"""An attempt that trains a package: its grant, its box, its events and its report."""

import hashlib
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from finishline.rules.run import Clock
from finishline.rules.verification.messages import (
    PACKAGE_PREFIX,
    PackageContent,
    ReplayReport,
    TrainingGrant,
)
from finishline.rules.verification.report_check import check_ledgers, check_report
from server.verifications.report import check_spans
from worker.replay import Attempts
from worker.sandbox.order import installed_environments
from worker.state import WorkerState

TEMPLATE = resources.files("finishline.rules.trainings.template")
ROOT = Path(__file__).parents[3]
TASK = ROOT / "benchmarks/digits/task.py"
NUMPY = next(each for name, each in installed_environments().items() if name.startswith("numpy"))


def grant(code=None, **changes):
    text = code or (TEMPLATE / "train.py.example").read_text()
    environment = {"environment": NUMPY.name, "environment_sha256": NUMPY.sha256}
    package = PackageContent(files={"train.py": text}, module="train", **environment)
    limits = {"run_seconds": 30, "prepare_seconds": 20, "max_evaluations": 20}
    found = TrainingGrant(
        packages={PACKAGE_PREFIX + "a" * 64: package},
        task_files={"task.py": hashlib.sha256(TASK.read_bytes()).hexdigest()},
        **limits, memory_mib=1024, threads=1,
    )  # fmt: skip
    return replace(found, **changes)


@pytest.fixture
def train(fake_server, server_client, system, host, make_job):
    """Makes an attempt of two runs with a grant; the report, None without one."""

    def make(granted, *, control=False, repeat=None, nonces=("11" * 32, "33" * 32)):
        fake_server.lease_seconds = 20.0
        fake_server.answers["training"] = [(200, asdict(granted))]
        job = make_job("climb", seeds=(11, 12))
        name = next(iter(granted.packages))
        trainings = [
            replace(each, package=name, settings={}, data_nonce=nonce)
            for each, nonce in zip(job.trainings, nonces, strict=True)
        ]
        if control:
            trainings[-1] = replace(trainings[-1], measure=("control",))
        if repeat is not None:
            trainings[-1] = replace(trainings[-1], measure=("repeat",), seed=repeat)
        fake_server.job = replace(job, trainings=trainings, purpose="entry", division="open")
        Attempts(server_client, system, host, WorkerState()).make("attempt-1")
        reports = fake_server.bodies("report")
        return TypeAdapter(ReplayReport).validate_python(reports[-1]) if reports else None

    return make


def test_an_entry_is_trained_and_reported_as_it_was_posted(train, fake_server):
    report = train(grant())

    assert report.failure is None
    check_report(report, seeds=[11, 12], two_clocks=False)
    for run in report.runs:
        assert run.status == "reached"
        check_ledgers(run, Clock("mlperf"), division="open")
        check_spans(run)
        assert run.evaluations[-1].quality >= 97.5
        assert run.evaluations[-1].second_half == run.evaluations[-1].quality
    kinds = [(event["run"], event["kind"]) for event in fake_server.events()]
    one = ["run_started", "phase", "evaluation", "run_finished"]
    assert kinds == [(index, kind) for index in (0, 1) for kind in one]


def test_a_crash_ends_the_attempt_with_the_last_lines_of_its_log(train):
    code = "def prepare(task): ...\ndef train(p, d, s):\n    raise ValueError('no')\n"

    report = train(grant(code))

    assert (report.failure.kind, report.failure.code) == ("submitter", "entry_died")
    [run] = report.runs
    assert (run.status, run.failure) == ("failed", report.failure)
    assert "ValueError: no" in run.log_tail


def test_another_environment_than_the_servers_is_the_hosts_fault(train):
    package = next(iter(grant().packages.values()))
    other = {PACKAGE_PREFIX + "a" * 64: replace(package, environment_sha256="f" * 64)}

    report = train(grant(packages=other))

    assert (report.failure.kind, report.failure.code) == ("infrastructure", "box_unavailable")
    assert report.runs == []


def test_a_control_has_no_use_for_carried_answers(train):
    carried = (ROOT / "examples/packages/digits_answers/train.py").read_text()

    report = train(grant(carried), control=True)

    draw, control = report.runs
    assert (draw.status, draw.evaluations[-1].quality) == ("reached", 100.0)
    assert control.status == "not_reached"
    assert 5 < control.evaluations[-1].quality < 30


BY_SEED = """
import random

def prepare(task): ...

def train(prepared, data, seed):
    draw = random.Random(seed{})
    yield lambda inputs: bytes(draw.randrange(10) for _ in range(599))
"""


@pytest.mark.parametrize("own_chance", [False, True])
def test_a_repeat_of_equal_seed_and_data_tells_chance_of_a_package_s_own(train, own_chance):
    code = BY_SEED.format(" + random.SystemRandom().randrange(2**60)" if own_chance else "")

    report = train(grant(code), repeat=11, nonces=["11" * 32] * 2)

    assert [run.seed for run in report.runs] == [11, 11]
    one, other = (run.evaluations[0].predictions_sha256 for run in report.runs)
    assert len(one) == 64
    assert (one != other) == own_chance


def test_a_package_that_fails_in_its_repeat_alone_ends_no_attempt(train):
    code = BY_SEED.format("").replace("    draw", "    assert seed != 12\n    draw")
    assert train(grant(code)).failure.code == "entry_died"

    report = train(grant(code), repeat=12)

    assert report.failure is None
    assert report.runs[1].failure.code == "entry_died"


@pytest.mark.parametrize("name", ["../../../../../..{}", "{}", "train.py/x", "x" * 300])
def test_a_name_that_no_package_has_writes_no_file_and_ends_the_attempt(train, tmp_path, name):
    package = next(iter(grant().packages.values()))
    outside = tmp_path / "written"
    files = package.files | {name.format(outside): "x"}
    other = {PACKAGE_PREFIX + "a" * 64: replace(package, files=files)}

    report = train(grant(packages=other))

    assert report.failure.code == "box_unavailable"
    assert not outside.exists()


def test_a_task_that_is_not_shipped_is_fetched_and_must_have_its_hash(train, fake_server):
    task = TASK.read_bytes() + b"\n# another version\n"
    fake_server.answers["task.py"] = [(200, task)]
    granted = grant(task_files={"task.py": hashlib.sha256(task).hexdigest()})
    assert train(granted).failure is None

    fake_server.answers["task.py"] = [(200, task + b"changed")]
    assert train(granted).failure.code == "box_unavailable"


def test_a_cancelled_entry_ends_at_once_without_a_report(train, fake_server):
    fake_server.answers["evaluations"] = [(200, {"proceed": False, "reason": "cancelled"})]
    endless = (
        "import time\ndef prepare(task): ...\ndef train(p, d, s):\n    time.sleep(60)\n    yield\n"
    )
    assert train(grant(endless)) is None
