"""The sending side of a real Redis that answers and takes nothing."""

from urllib.parse import unquote

import pytest
import redis
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError

from finishline.rules.verification.messages import queue_of
from server.base.broker import Broker
from tests.support.processes import running_broker, wait_for

pytestmark = pytest.mark.nightly


@pytest.fixture
def socket_path():
    with running_broker() as path:
        yield path


def test_a_broker_that_is_full_or_only_reads_is_told_from_one_that_takes_messages(socket_path):
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


def test_a_closed_broker_has_no_connection_left_and_opens_one_when_it_sends_again(socket_path):
    with redis.Redis(unix_socket_path=str(socket_path)) as operator:

        def is_alone():
            return len(operator.client_list()) == 1

        for _ in range(2):  # The second shares with the first what is kept by address.
            broker = Broker(f"redis+socket://{socket_path}")
            broker.send_attempt("attempt-1", "grace")
            assert not is_alone()
            broker.close()
            wait_for(is_alone, seconds=20, what="connections to be closed", pause=0.01)
        assert operator.llen(queue_of("grace")) == 2


@pytest.mark.parametrize("name", ["grace", "a b*?[x]~\u00e9/%2F:@"])
def test_a_workers_account_reaches_its_own_queue_and_nothing_else(socket_path, name):
    broker = Broker(f"redis+socket://{socket_path}")
    url = broker.make_account(name)
    other = broker.make_account(f"{name}2")
    broker.send_attempt("attempt-1", f"{name}2")
    broker.close()
    password = unquote(url.rpartition("@")[0].rpartition(":")[2])
    assert password not in other
    with redis.Redis(
        unix_socket_path=str(socket_path), username=queue_of(name), password=password
    ) as worker:
        worker.lpush(queue_of(name), "mine")
        assert worker.brpop(queue_of(name), timeout=1) is not None
        theirs = queue_of(f"{name}2")
        refused = [
            ("BRPOP", theirs, 1),
            ("RPOP", theirs),
            ("LPUSH", theirs, "garbage"),
            ("LLEN", theirs),
            ("DEL", theirs),
            ("SADD", f"_kombu.binding.{theirs}", "x"),
            ("HGET", f"unacked/{theirs}", "x"),
            ("HGET", "unacked", "x"),
            ("EVAL", "return redis.call('rpop', KEYS[1])", 1, theirs),
            ("FLUSHALL",),
            ("KEYS", "*"),
            ("SCAN", 0),
            ("CONFIG", "GET", "*"),
            ("ACL", "LIST"),
            ("MONITOR",),
            ("SHUTDOWN",),
        ]
        for command in refused:
            with pytest.raises(NoPermissionError):
                worker.execute_command(*command)
        script = worker.script_load("return redis.call('rpop', ARGV[1])")
        with pytest.raises(redis.ResponseError, match="No permissions"):
            worker.evalsha(script, 0, theirs)
    with redis.Redis(unix_socket_path=str(socket_path)) as operator:
        assert operator.llen(theirs) == 1
