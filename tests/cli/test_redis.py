import os
import subprocess
import time
from pathlib import Path

import pytest
import redis

from finishline.cli.up.paths import prepare_var
from finishline.cli.up.services import (
    RedisAddress,
    choose_redis_address,
    redis_answers,
    redis_command,
)


def test_a_short_var_gets_a_socket_in_it(tmp_path: Path) -> None:
    address = choose_redis_address(prepare_var(tmp_path / "v"))
    assert address.socket_path == tmp_path / "v" / "redis" / "redis.sock"
    assert address.url == f"redis+socket://{tmp_path}/v/redis/redis.sock"


@pytest.mark.parametrize("name", ["long" * 30, "with space", "per%cent", "grün"])
def test_a_var_whose_path_no_socket_can_have_gets_a_short_one(tmp_path: Path, name: str) -> None:
    short = Path("/tmp/fl-test")  # noqa: S108  (nothing is written there)
    address = choose_redis_address(prepare_var(tmp_path / name), short)
    assert address.socket_path == short / "redis.sock"


def test_a_machine_with_long_temporary_paths_gets_a_port(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 30)
    address = choose_redis_address(prepare_var(long), long)
    assert address.socket_path is None
    assert address.url == f"redis://127.0.0.1:{address.port}/0"


@pytest.mark.processes
@pytest.mark.parametrize("on_socket", [True, False])
def test_the_embedded_broker_answers_and_keeps_nothing_on_disk(
    tmp_path: Path, on_socket: bool
) -> None:
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


def _write_one_key(address: RedisAddress) -> None:
    url = address.url.replace("redis+socket", "unix")
    with redis.Redis.from_url(url) as client:
        assert client.set("key", "value")
        assert client.config_get("appendonly") == {"appendonly": "no"}
