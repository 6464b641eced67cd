import pytest

from finishline.cli.up.lifecycle import Lifecycle, Phase, RestartPolicy, first_start

POLICY = RestartPolicy(
    max_deaths=5, window_seconds=30.0, first_wait_seconds=0.25, longest_wait_seconds=8.0
)


def ready(now: float = 0.0) -> Lifecycle:
    return first_start(now).answered()


def test_service_that_exits_before_it_ever_answered_is_given_up_at_once() -> None:
    assert first_start(0.0).died(1.0, POLICY, on_its_own=True).phase is Phase.GIVEN_UP


def test_service_killed_before_it_ever_answered_is_started_again() -> None:
    life = first_start(0.0).died(1.0, POLICY, on_its_own=False)
    assert life.phase is Phase.WAITING
    assert life.restart_at == 1.25


def test_service_that_was_ready_is_started_again_even_if_it_exits_on_its_own() -> None:
    life = ready().died(10.0, POLICY, on_its_own=True)
    assert life.phase is Phase.WAITING
    assert not life.is_due(10.24)
    assert life.is_due(10.25)


def test_wait_doubles_with_every_death_up_to_the_longest() -> None:
    waits = [POLICY.wait_seconds(deaths) for deaths in (1, 2, 3, 4, 7)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 8.0]


def test_five_deaths_in_thirty_seconds_are_too_many() -> None:
    life = ready()
    for at in (0.0, 7.0, 14.0, 21.0):
        life = life.died(at, POLICY, on_its_own=True).started(at).answered()
    assert life.died(29.9, POLICY, on_its_own=True).phase is Phase.GIVEN_UP


def test_a_death_thirty_seconds_ago_no_longer_counts() -> None:
    life = ready()
    for at in (0.0, 7.0, 14.0, 21.0):
        life = life.died(at, POLICY, on_its_own=True).started(at).answered()
    fifth = life.died(30.0, POLICY, on_its_own=True)
    assert fifth.phase is Phase.WAITING
    assert fifth.deaths == (7.0, 14.0, 21.0, 30.0)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.READY, Phase.GIVEN_UP])
def test_only_a_waiting_service_is_due(phase: Phase) -> None:
    assert not Lifecycle(phase=phase, started_at=0.0, restart_at=0.0).is_due(100.0)
