"""What `finishline up` tells its services."""

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest
from uvicorn.main import main

from finishline.cli.up.paths import VarPaths
from finishline.cli.up.services import DRAINED, Plan, RedisAddress, server_service, worker_service
from worker import intake


@pytest.mark.parametrize(("chosen", "told"), [(None, "off"), ("canary", "canary")])
def test_its_worker_measures_nothing_of_itself_unless_it_is_asked_to(
    chosen: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FINISHLINE_MEASURE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("FINISHLINE_MEASURE", chosen)
    broker = RedisAddress(socket_path=tmp_path / "redis.sock")
    plan = Plan(VarPaths(tmp_path), host="127.0.0.1", port=8000, broker=broker)

    service = worker_service(plan, tmp_path / "worker.token", "redis://w:p@host/0")

    assert service.environment["FINISHLINE_MEASURE"] == told
    assert service.environment["FINISHLINE_ROOF_FILE"] == str(tmp_path / "roofs.json")
    assert service.farewells[DRAINED] == "was drained and leases no attempts until it is resumed"
    assert f'log.info("{DRAINED}")' in inspect.getsource(intake), "what a drained worker says"


def test_its_server_believes_no_client_that_says_it_is_a_proxy(tmp_path: Path) -> None:
    """uvicorn believes X-Forwarded-For of clients on this machine unless it is told not to."""
    broker = RedisAddress(socket_path=tmp_path / "redis.sock")
    plan = Plan(VarPaths(tmp_path), host="127.0.0.1", port=8000, broker=broker)

    command = server_service(plan).command
    options = uvicorn_options(command[command.index("uvicorn") + 1 :])

    assert options["proxy_headers"] is False


def uvicorn_options(arguments: Sequence[str]) -> dict[str, object]:
    """What uvicorn's own command line makes of arguments."""
    return main.make_context("uvicorn", list(arguments)).params
