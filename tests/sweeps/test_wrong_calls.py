"""Wrong calls of the command: each ends with a sentence, a hint and the documented exit code.

The calls are the examples that each help ends with. The servers are one of another kind, one that
says no, one of this kind that another token is for, and none at all.
"""

import io
import json
import os
import re
import shlex
import signal
import sys
import threading
from itertools import cycle
from pathlib import Path

import pytest
import uvicorn

import finishline
from tests.support.processes import wait_for
from tests.support.serving import serving

EXAMPLES = (Path(finishline.__file__).parent / "cli" / "examples.txt").read_text().splitlines()
COMMANDS = [line.partition(":")[0] for line in EXAMPLES]
GROUPS = [name for name in COMMANDS if any(other.startswith(f"{name} ") for other in COMMANDS)]
CALLS = [
    [*name.split(), *shlex.split(call)]
    for name, _, calls in (line.partition(":") for line in EXAMPLES)
    for call in calls.split("|")
    if name not in GROUPS or name == "account"
]
# What works on this machine alone, or begins with a file that a test has to make first.
LOCAL = {
    "init", "run", "check", "convert", "login", "logout", "score", "up", "worker", "bench",
    "benchmark init", "benchmark check", "benchmark add", "benchmark fetch", "import", "submit",
    "proof proof.zip", "compare old", "admin backup", "admin restore", "admin export",
    "admin rescore", "admin check", "admin service", "admin price add", "admin invite add --from",
}  # fmt: skip
ASKING = [
    call for call in CALLS
    if not any(name.split() == call[: len(name.split())] for name in LOCAL)
]  # fmt: skip
# An error names a command, an option, a page or what was expected.
HINT = re.compile(r"`[^`]+`|--[a-z]|[Ee]xpected|[Hh]int|[Nn]ame an?|or /[a-z]|FINISHLINE_[A-Z]+")
MISSING = "nowhere"


def named(calls):
    return [pytest.param(call, id=" ".join(call)) for call in calls]


@pytest.fixture(autouse=True)
def _nobody(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("FINISHLINE_URL", "FINISHLINE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("fl_typed"))


def require_sentence(ran, code, *, hint=True):
    """The command ended with this code, and with a sentence on stderr that says what to do."""
    assert ran.code == code, ran.err + ran.out
    if ran.err.startswith("{"):
        error = json.loads(ran.err)["error"]
        assert (error["exit_code"], ran.out) == (code, "")
        message = f"error: {error['message']}"
    else:
        message, *_ = ran.err.splitlines()
    assert message.startswith("error: "), ran.err
    assert message.endswith((".", "?", "`")) or "; " in message, ran.err
    assert not hint or HINT.search(ran.err), ran.err


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_option_is_wrong_usage(name, command):
    require_sentence(command(*name.split(), "--no-such-option"), 2)


@pytest.mark.parametrize("name", ["", *GROUPS])
def test_unknown_name_is_wrong_usage(name, command):
    if name not in ("benchmark calibrate", "bench"):  # Which take the id of a benchmark, too.
        require_sentence(command(*name.split(), "no-such-name"), 2)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("trainig", "finishline run"), ("training chek", "finishline check"),
        ("leaderbord digits", "finishline board"), ("workrs", "finishline admin worker list"),
        ("bord", "board"), ("admin usr list", "user"), ("quotas list", "admin quota list"),
        ("webhok list", "finishline account webhook"), ("benchmark phases x", "benchmark phase"),
        ("verfy s1", "verify"),
    ],
)  # fmt: skip
def test_mistyped_name_is_answered_with_the_one_that_is_meant(words, meant, command):
    ran = command(*words.split())
    require_sentence(ran, 2)
    assert meant in ran.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (f"check {MISSING}", 1), (f"submit {MISSING}", 1),
        (f"run {MISSING}", 6), (f"run {MISSING}.toml", 6), (f"run ./{MISSING}", 6),
        (f"compare {MISSING} x/y", 4),
        (f"convert {MISSING} --from csv --benchmark digits --out out", 1),
        (f"convert {MISSING} --from tfevents --benchmark digits --out out", 1),
        ("convert a.csv --from csv --benchmark nowhere --out out", 6),
        (f"import mlperf {MISSING}", 1), (f"import dawnbench {MISSING}", 1),
        (f"proof {MISSING}.zip", 1), (f"proof --log {MISSING}", 1), (f"proof {MISSING} --key k", 2),
        (f"benchmark check {MISSING}", 2), (f"benchmark add {MISSING}", 2),
        (f"benchmark check {MISSING} --write", 2), ("check .", 1), ("submit .", 1),
        (f"admin price add {MISSING}.csv", 1), (f"admin invite add --from {MISSING}.csv", 1),
        (f"check . --benchmarks-dir {MISSING}", 1), (f"check {MISSING}.toml", 2),
        ("bench train nowhere", 6), ("bench kernels nowhere.toml", 2),
        (f"admin restore {MISSING} --var .", 1), ("benchmark fetch nowhere --check", 6),
        (f"login {MISSING}", 2), ("login http://127.0.0.1:9", 4), ("logout", 2),
        ("logout --profile none", 2), ("proof .", 1),
    ],
)  # fmt: skip
def test_missing_file_is_named(words, code, command):
    require_sentence(command(*words.split(), "--url", "http://127.0.0.1:9"), code)


@pytest.mark.parametrize("call", named(ASKING[::2]))
def test_silent_server_is_named(call, command):
    ran = command(*call, "--url", "http://127.0.0.1:9")
    require_sentence(ran, 4)
    assert "http://127.0.0.1:9" in ran.err


ANOTHER = [
    (200, b"<html>welcome</html>"), (200, b'{"message": "welcome"}'), (200, b"[1, 2]"),
    (302, b""), (404, b"{}"), (401, b""), (500, b"<html>down</html>"), (503, b""),
]  # fmt: skip


@pytest.fixture(scope="module")
def another():
    """A server of another program, with an answer that a test puts in."""
    answer = []
    with serving(lambda *_: (answer[-1][0], {}, answer[-1][1]), version=None) as url:
        yield url, answer


@pytest.mark.parametrize(("answer", "call"), [*zip(cycle(ANOTHER), ASKING, strict=False)])
def test_server_of_another_program_is_named(answer, call, command, another):
    url, answers = another
    answers.append(answer)
    ran = command(*call, "--url", url)
    require_sentence(ran, 4)
    assert url in ran.err


@pytest.fixture(scope="module")
def site(world):
    """The address of a server of this kind."""
    config = uvicorn.Config(world.client.app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, seconds=60.0, what="the server to listen", pause=0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)


PUBLIC = {"show", "board", "compare", "proof", "benchmark", "verify"}
READS = {"list", "show", "compare", "phase"}


@pytest.mark.parametrize("call", named(ASKING[::2]))
def test_token_of_another_server_is_told(call, command, site):
    ran = command(*call, "--url", site, "--token", "fl_" + "a" * 43)
    if ran.code in (0, 6):  # Reading needs no token.
        assert call[0] in PUBLIC or READS & set(call), ran.out
    else:
        require_sentence(ran, 5)
        assert "finishline login" in ran.err


@pytest.mark.parametrize("call", named(ASKING[1::2]))
def test_what_is_not_there_or_not_allowed_is_told(call, command, site, world):
    ran = command(*call, "--url", site, "--token", world.secrets["alice"])
    if ran.code:
        assert ran.code in (1, 2, 5, 6), ran.err
        require_sentence(ran, ran.code)


@pytest.mark.parametrize("call", named(ASKING[::9]))
def test_interrupted_call_says_so(call, command):
    def interrupt(*_):
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
        threading.Event().wait(0.3)
        return 200, {}, b"{}"

    with serving(interrupt) as url:
        ran = command(*call, "--url", url)
    assert (ran.code, ran.err) == (130, "Interrupted by Ctrl-C.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("name", COMMANDS[::3])
def test_full_disk_is_told_in_a_sentence(name, command, monkeypatch):
    with Path("/dev/full").open("w", buffering=1) as output:
        monkeypatch.setattr(sys, "stdout", output)
        ran = command(*name.split(), "--help")
    require_sentence(ran, 1, hint=False)
    assert "No space left on device" in ran.err


@pytest.mark.parametrize("name", COMMANDS[1::3])
def test_closed_pipe_is_no_failure(name, command, monkeypatch):
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "w", buffering=1) as output:
        monkeypatch.setattr(sys, "stdout", output)
        ran = command(*name.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
