"""A worker that lies to a server over HTTP, beside another owner's: no lie is published."""

import time
from functools import partial

import pytest

from tests.support.boards import rows_of
from tests.support.run_logs import DIGITS, REFERENCE
from tests.support.served import served
from tests.support.world import EVALUATION_SECONDS, PREPARATION, Worker, World

OTHER_SEED = [13.1, 49.9, 70.2, 87.9, 89.1, 96.9, 96.0, 98.4]
FASTER = [14.8, 45.8, 85.5, 95.6, 98.1]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    how = {"dispatch_interval_seconds": 0.1, "clock_slack_seconds": 1.0}  # It posts late when busy.
    with served(tmp_path_factory.mktemp("lied-to"), **how) as (client, secret):
        made = World(client, secret).person("alice").person("olivia", "organiser")
        yield made.person("lia", "worker").person("hugo", "worker")


@pytest.fixture(scope="module")
def hugo(world):
    worker = Worker(world, "hugo-1", by="hugo").confirm()
    worker.sign_on("busy")
    return worker


@pytest.fixture(scope="module")
def lia(world, hugo):
    return Worker(world, "lia-1", by="lia").confirm()


@pytest.fixture(scope="module")
def published(world, lia, hugo):
    """What the lies are told beside: an honest report of lia's, which hugo's worker confirms."""
    submission = ask(world, batch_size=128)
    job, lease = begin(lia, world, submission)
    trainings = train(lia, job)
    post(lia, lease, trainings)
    report = {"runs": [run for run, _ in trainings], "system": lia.system}
    assert lia.send(lease, "report", report)["state"] == "checking"
    check(world, hugo, job["verification_id"])
    assert world.verification(job["verification_id"])["outcome"] == "verified"
    assert world.get(f"/submissions/{submission}")["evidence"] == "measured"
    return report


def train(worker, job, *, pace=0.001, **how):
    return [
        worker.train(index, training, job, pace=pace, **how)
        for index, training in enumerate(job["trainings"])
    ]


def post(worker, lease, trainings, *, lasts=1.0):
    """Post each training's start, and its evaluations after `lasts` times its own seconds."""
    sequence = 0
    for run, events in trainings:
        time.sleep(sum(PREPARATION.values()))
        numbered = [event | {"sequence": sequence + k} for k, event in enumerate(events)]
        worker.send(lease, "evaluations", {"events": numbered[:2]})
        time.sleep(run["parent_seconds"] * lasts)
        worker.send(lease, "evaluations", {"events": numbered[2:]})
        sequence += len(events)


def check(world, hugo, verification):
    while world.verification(verification)["state"] == "checking":
        hugo.report(*hugo.begin(), pace=0.001)
    hugo.sign_on("busy")


def with_curve(run, qualities, *, pace=0.001, every=1):
    """The run with these qualities, one an epoch; of them only `every` so many are evaluated."""
    evaluations = []
    for epoch in range(every, len(qualities) + 1, every):
        spent = {"train": epoch * pace, "eval": (epoch // every) * EVALUATION_SECONDS}
        evaluations.append(
            run["evaluations"][0]
            | {"epoch": float(epoch), "samples": 1152 * epoch, "quality": qualities[epoch - 1]}
            | {"seconds": sum(spent.values()), "ledger": PREPARATION | spent}
        )
    return ended(run | {"evaluations": evaluations})


def ended(run):
    last = run["evaluations"][-1]
    spans = dict.fromkeys(("tta_seconds", "parent_seconds", "child_seconds"), last["seconds"])
    return run | spans | {"ledger": last["ledger"], "status": "reached"}


def scaled(run, factor):
    evaluations = [
        each
        | {"seconds": each["seconds"] * factor}
        | {"ledger": {name: seconds * factor for name, seconds in each["ledger"].items()}}
        for each in run["evaluations"]
    ]
    return ended(run | {"evaluations": evaluations})


def with_events(run):
    started, trained = (
        {"run": run["index"], "kind": "run_started"},
        {"run": run["index"], "kind": "phase", "phase": "train", "seconds": 0.0}
        | {"ledger": {name: run["ledger"][name] for name in PREPARATION}},
    )
    found = [{"run": run["index"], "kind": "evaluation"} | each for each in run["evaluations"]]
    return run, [started, trained, *found]


def changed(trainings, change):
    return [with_events(change(run)) for run, _ in trainings]


def shorter(honest, _):
    """The report has half of the seconds that were posted."""
    return honest, [scaled(run, 0.5) for run, _ in honest]


def compressed(honest, _):
    """Trained slowly: posts and report have a fiftieth of the seconds that passed."""
    slow = [with_events(scaled(run, 12)) for run, _ in honest]
    return changed(slow, lambda run: scaled(run, 0.02)), None, 50.0


def stretched(honest, _):
    """Posts and report have twenty times the seconds that passed."""
    return changed(honest, lambda run: scaled(run, 20)), None, 0.05


def skipped(honest, _):
    curve = partial(lifted, REFERENCE)
    return changed(honest, lambda run: with_curve(run, curve(run["index"]), every=2)), None


def faster(honest, _):
    return changed(honest, lambda run: with_curve(run, lifted(FASTER, run["index"]))), None


def other_seed(honest, _):
    return changed(honest, lambda run: with_curve(run, lifted(OTHER_SEED, run["index"]))), None


def lifted(curve, index):
    return [curve[0], curve[1] + index / 8, *curve[2:]]


def calibrated(honest, _):
    """The curves are those that the band was made from."""
    curves = [list(run.quality) for run in DIGITS.reference_runs_at(32)]
    return changed(honest, lambda run: with_curve(run, curves[run["index"]])), None


def one_for_all(honest, _):
    curve = [each["quality"] for each in honest[0][0]["evaluations"]]
    return changed(honest, lambda run: with_curve(run, curve)), None


def earlier_curves(honest, published):
    """The curves of an earlier attempt on another clock, under the seeds of this one."""
    curves = [[each["quality"] for each in run["evaluations"]] for run in published["runs"]]
    again = zip(honest, curves, strict=False)
    lies = [with_events(with_curve(run, curve, pace=0.002)) for (run, _), curve in again]
    return [*lies, *honest[len(lies) :]], None


def free_energy(honest, _):
    sensors = {"energy_joules": -5.0}
    return honest, [run | {"telemetry": sensors} for run, _ in honest]


def never_posted(honest, _):
    return [], [run for run, _ in honest]


# What the server says to the report. Three lies are possible trainings, so the server takes the
# report, and hugo's worker contradicts it.
LIES = {
    shorter: "as posted",
    compressed: "s that passed",
    stretched: "s that passed",
    skipped: None,
    faster: None,
    other_seed: None,
    calibrated: "those of the calibrated run",
    one_for_all: "those of run 0 of the report",
    earlier_curves: "of verification",
    free_energy: "telemetry.energy_joules",
    never_posted: "expected 0, as posted",
}
STOPPED = {"kind": "infrastructure", "code": "worker_stopped", "message": "-", "next_step": "-"}


@pytest.fixture
def asked(world, lia, published):
    world.request("PATCH", f"/workers/{lia.name}", by="olivia", json={"paused": False})
    submission = ask(world)
    job, lease = begin(lia, world, submission)
    yield submission, job, lease
    send_report(world, lease, {"runs": [], "system": lia.system, "failure": STOPPED})
    world.post(f"/submissions/{submission}/withdrawal", {"reason": "a lie"}, by="alice")


def ask(world, *, batch_size=32):
    submission = world.submit(hyperparameters={"batch_size": batch_size})
    world.verify(submission)
    return submission


def begin(worker, world, submission):
    """Lease the attempt at a submission, after all that the server asks for by itself."""
    while True:
        job, lease = worker.begin()
        if world.verification(job["verification_id"])["submission_id"] == submission:
            return job, lease
        worker.report(job, lease, pace=0.001)


def measured_of(world, submission):
    view = world.get(f"/submissions/{submission}")
    rows = rows_of(world.get("/leaderboards/digits"))
    (row,) = (each for each in rows if each["submission_id"] == submission)
    assert view["evidence"] == row["evidence"]
    return row["tta_seconds"] if row["evidence"] == "measured" else None


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_is_not_published(lie, asked, world, lia, hugo, published):
    submission, job, lease = asked
    posted, reported, lasts = (*lie(train(lia, job), published), 1.0)[:3]
    post(lia, lease, posted, lasts=lasts)
    report = {"runs": reported or [run for run, _ in posted], "system": lia.system}
    answer = send_report(world, lease, report)

    if LIES[lie] is None:
        assert answer.is_success, answer.text
        check(world, hugo, job["verification_id"])
    else:
        assert answer.status_code == 422, answer.text
        assert LIES[lie] in answer.json()["detail"]
    view = world.verification(job["verification_id"])
    assert view["outcome"] != "verified", view["reasons"]
    assert measured_of(world, submission) is None


def send_report(world, lease, report):
    headers = {"Authorization": f"Bearer {lease['token']}"}
    headers |= {"Finishline-Fence": str(lease["fence"])}
    path = f"/attempts/{lease['attempt_id']}/report"
    return world.request("POST", path, json=report, headers=headers)


def test_a_second_report_changes_nothing(asked, world, lia, hugo):
    submission, job, lease = asked
    trainings = train(lia, job)
    post(lia, lease, trainings)
    runs = [run for run, _ in trainings]
    assert send_report(world, lease, {"runs": runs, "system": lia.system}).is_success
    better = [scaled(run, 0.5) for run in runs]
    send_report(world, lease, {"runs": better, "system": lia.system})
    check(world, hugo, job["verification_id"])

    view = world.verification(job["verification_id"])
    assert view["outcome"] == "verified", view["reasons"]
    # No run of an earlier lie counts either, with the same settings.
    told = sorted(run["tta_seconds"] for run in runs)
    assert told[0] <= measured_of(world, submission) <= told[-1]
