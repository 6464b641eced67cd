"""One attempt against a server that keeps what it is told, with a real training process."""

import threading

import pytest

from worker.intake import WorkerState
from worker.replay import replay


@pytest.fixture
def state():
    return WorkerState()


@pytest.fixture
def make_attempt(server_client, system, host, state):
    def make_attempt(job):
        replay(job, server=server_client, system=system, host=host, state=state)

    return make_attempt


def test_attempt_is_claimed_trained_and_reported(make_attempt, fake_server, make_job):
    make_attempt(make_job("climb", seeds=(11, 12, 13)))
    [claim] = fake_server.bodies("claim")
    assert claim == {"worker": "grace", "hardware_class": "cpu-test"}
    [report] = fake_server.bodies("report")
    assert report["failure"] is None
    assert [run["status"] for run in report["runs"]] == ["reached"] * 3
    assert [run["seed"] for run in report["runs"]] == [11, 12, 13]
    assert report["system"]["worker"] == "grace"


def test_events_are_numbered_without_gaps_across_the_runs(make_attempt, fake_server, make_job):
    make_attempt(make_job("climb", seeds=(1, 2)))
    events = fake_server.events()
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["run"] for event in events if event["kind"] == "run_started"] == [0, 1]
    assert [event["quality"] for event in events if event["kind"] == "evaluation"] == (
        [50.0, 80.0, 96.0, 98.0] * 2
    )


def test_everything_after_the_claim_carries_the_token_of_the_claim(
    make_attempt, fake_server, make_job
):
    make_attempt(make_job())
    assert fake_server.tokens("claim") == {"Bearer worker-token"}
    assert fake_server.tokens("evaluations") == {"Bearer attempt-token"}
    assert fake_server.tokens("report") == {"Bearer attempt-token"}


def test_every_post_of_a_claim_carries_its_fence(make_attempt, fake_server, make_job):
    fake_server.fence = 7
    make_attempt(make_job())
    assert fake_server.fences("evaluations") == {"7"}
    assert fake_server.fences("report") == {"7"}
    assert fake_server.fences("claim") == {None}


def test_each_run_trains_with_its_own_hyperparameters(make_attempt, fake_server, make_job):
    settings = ({"batch_size": 64}, {"batch_size": -1})  # The fake trainers refuse the second.
    make_attempt(make_job("climb", seeds=(1, 2), hyperparameters_by_run=settings))
    [report] = fake_server.bodies("report")
    assert [run["status"] for run in report["runs"]] == ["reached", "failed"]
    assert report["runs"][1]["failure"]["code"] == "bad_hyperparameter"


def test_attempt_that_is_taken_is_left_alone(make_attempt, fake_server, make_job):
    fake_server.answers["claim"] = [(409, {"detail": "another worker has it"})]
    make_attempt(make_job())
    assert [kind for kind, _, _ in fake_server.posts] == ["claim"]


@pytest.mark.parametrize("status", [401, 404])
def test_refused_claim_trains_nothing(make_attempt, fake_server, make_job, status):
    fake_server.answers["claim"] = [(status, {"detail": "no"})]
    make_attempt(make_job())
    assert [kind for kind, _, _ in fake_server.posts] == ["claim"]


def test_fenced_off_worker_kills_its_training_and_reports_nothing(
    make_attempt, fake_server, make_job
):
    fake_server.answers["evaluations"] = [(409, {"detail": "the lease ran out"})]
    make_attempt(make_job("hang", run_limit_seconds=60))
    assert fake_server.bodies("report") == []
    assert len(fake_server.bodies("evaluations")) == 1


def test_cancelled_attempt_stops_and_reports_nothing(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(200, {"proceed": False, "reason": "cancelled"})]
    make_attempt(make_job("hang", seeds=(1, 2), run_limit_seconds=60))
    assert fake_server.bodies("report") == []
    assert {event["run"] for event in fake_server.events()} == {0}
    assert fake_server.events()[-1]["status"] == "cancelled"


def test_attempt_over_the_servers_time_limit_fails_as_a_whole(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(200, {"proceed": False, "reason": "time_limit"})]
    make_attempt(make_job("hang", seeds=(1, 2), run_limit_seconds=60))
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "run_time_limit"
    assert len(report["runs"]) == 1


def test_hanging_training_does_not_stop_the_heartbeat(make_attempt, fake_server, make_job):
    fake_server.lease_seconds = 0.4  # a heartbeat every 0.1 s
    go_on, enough = (200, {"proceed": True}), (200, {"proceed": False, "reason": "time_limit"})
    fake_server.answers["evaluations"] = [*[go_on] * 5, enough]
    make_attempt(make_job("hang_at_start", run_limit_seconds=120))
    assert len(fake_server.bodies("evaluations")) > 5
    assert fake_server.bodies("report")[0]["runs"][0]["failure"]["code"] == "run_time_limit"


def test_stopped_worker_reports_the_attempt_as_stopped(make_attempt, fake_server, make_job, state):
    job = make_job("hang", seeds=(1, 2), run_limit_seconds=60)
    attempt = threading.Thread(target=make_attempt, args=(job,))
    attempt.start()
    fake_server.wait_for(lambda: any(e["kind"] == "evaluation" for e in fake_server.events()))
    state.stopping = True
    attempt.join(timeout=20)
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "worker_stopped"
    assert report["failure"]["kind"] == "infrastructure"
    assert len(report["runs"][0]["evaluations"]) == 1


def test_infrastructure_failure_ends_the_attempt(make_attempt, fake_server, make_job):
    make_attempt(make_job("killed", seeds=(1, 2, 3)))
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "child_died"
    assert len(report["runs"]) == 1
    assert report["runs"][0]["failure"] == report["failure"]


def test_diverged_run_counts_and_the_others_go_on(make_attempt, fake_server, make_job):
    make_attempt(make_job("diverge", seeds=(1, 2)))  # odd seeds diverge
    [report] = fake_server.bodies("report")
    assert report["failure"] is None
    assert [run["status"] for run in report["runs"]] == ["failed", "reached"]


def test_report_is_sent_until_it_is_accepted(make_attempt, fake_server, make_job):
    fake_server.answers["report"] = [(503, {}), (503, {}), (200, {})]
    make_attempt(make_job())
    first, second, third = fake_server.bodies("report")
    assert first == second == third


def test_events_survive_a_server_that_restarts(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(503, {})] * 3 + [(200, {"proceed": True})]
    make_attempt(make_job())
    posted = {event["sequence"] for event in fake_server.events()}
    assert posted == set(range(max(posted) + 1))
    assert fake_server.bodies("report")[0]["runs"][0]["status"] == "reached"
