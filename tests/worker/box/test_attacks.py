"""Attempts to leave a box, as a package would make them; each tells how it ended."""

import ast
import os
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.worker.box.conftest import RunCode
from worker.box.start import BOX_UID

# Runs each attempt of `ATTEMPTS` and prints {name: result or error}.
HARNESS = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"

def outcome(attempt):
    try:
        return attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        return type(error).__name__

def prepare(task):
    print("RESULT", {name: outcome(attempt) for name, attempt in ATTEMPTS.items()})
"""


def attempt(run_code: RunCode, attempts: str) -> dict[str, object]:
    """Outcomes by name of attempts that are lambdas in the text of a dict."""
    code = textwrap.dedent(HARNESS) + f"\nATTEMPTS = {{{textwrap.dedent(attempts)}}}\n"
    result = run_code(code)
    line = next((each for each in result.log_tail.splitlines() if each.startswith("RESULT ")), "")
    assert line, result
    found: dict[str, object] = ast.literal_eval(line.removeprefix("RESULT "))
    assert result.status == "reached"  # The attempts leave the run as it is.
    return found


def test_files_of_the_box_cannot_be_written(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        """
        **{place: (lambda place=place: open(place + "/new", "w") and "written")
           for place in ("/", "/dev", "/usr/lib", "/packages", "/package", "/proc/sys/kernel")},
        "scratch": lambda: open("/scratch/new", "w") and "written",
        "sysctl": lambda: open("/proc/sys/kernel/hostname", "w").write("x"),
        """,
    )

    assert found.pop("scratch") == "written"
    assert set(found.values()) <= {"EROFS", "EACCES", "ENOENT", "EPERM"}, found


def test_files_of_the_host_are_absent(run_code: RunCode, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("labels")
    secret.chmod(0o644)
    names = ["/etc/shadow", "/etc/passwd", "/var/run/docker.sock", "/proc/kcore", "/sys/kernel"]
    names += ["/dev/mem", "/dev/kmsg", str(secret), str(Path.home() / ".ssh"), "/usr/local/lib"]

    found = attempt(
        run_code,
        f"**{{n: (lambda n=n: os.listdir(n) if os.path.isdir(n) else open(n)"
        f" and 'seen') for n in {names!r}}}",
    )

    assert set(found.values()) <= {"ENOENT", "EACCES", "EPERM"}, found


def test_the_environment_of_the_worker_stays_outside(
    run_code: RunCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FINISHLINE_WORKER_TOKEN", "fl_secret")

    found = attempt(run_code, "'names': lambda: sorted(os.environ)")

    names = found["names"]
    assert isinstance(names, list)
    assert not [name for name in names if "FINISHLINE" in name]
    assert len(names) <= 12


def test_only_the_environments_packages_can_be_imported(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        """
        **{name: (lambda name=name: str(__import__(name)))
           for name in ("sklearn", "worker", "server", "finishline", "pip", "psutil")},
        """,
    )

    assert set(found.values()) == {"ModuleNotFoundError"}, found


def test_no_network_can_be_reached(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        """
        **{name: (lambda family=getattr(socket, name): socket.socket(family) and "open")
           for name in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK")},
        "dns": lambda: socket.gethostbyname("example.org"),
        "abstract": lambda: socket.socket(socket.AF_UNIX).connect("\\0/tmp/dbus"),
        """,
    )

    assert found.pop("dns") != "done"
    assert found.pop("abstract") == "ECONNREFUSED"
    assert set(found.values()) == {"EAFNOSUPPORT"}, found


def test_forbidden_calls_are_refused(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        """
        "ptrace": lambda: call(101, 0, 0, 0, 0),
        "process_vm_readv": lambda: call(310, 1, 0, 0, 0, 0, 0),
        "memfd_create": lambda: call(319, b"x", 0),
        "memfd_secret": lambda: call(447, 0),
        "shmget": lambda: call(29, 0, 4096, 0o1600),
        "io_uring_setup": lambda: call(425, 8, 0),
        "bpf": lambda: call(321, 0, 0, 0),
        "perf_event_open": lambda: call(298, 0, 0, 0, 0, 0),
        "userfaultfd": lambda: call(323, 0),
        "keyctl": lambda: call(250, 0, 0, 0, 0, 0),
        "mount": lambda: call(165, b"x", b"/scratch", b"tmpfs", 0, 0),
        "unshare": lambda: call(272, 0x10000000),
        "chroot": lambda: call(161, b"/scratch"),
        "kexec_load": lambda: call(246, 0, 0, 0, 0),
        "open_by_handle_at": lambda: call(304, -1, 0, 0),
        "setns": lambda: call(308, 0, 0),
        "personality": lambda: call(135, 0x0040000),
        "sched_setaffinity": lambda: call(203, 0, 8, b"\\1" * 8),
        "settime": lambda: call(227, 0, 0),
        "clone_newuser": lambda: call(56, 0x10000000, 0, 0, 0, 0),
        "inotify": lambda: call(253),
        """,
    )

    assert set(found.values()) == {"EPERM"}, found


def test_clone3_falls_back_to_clone_whose_flags_are_checked(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        "'clone3': lambda: call(435, 0, 0), 'thread': lambda: __import__('threading')"
        ".Thread(target=int).start() or 'started'",
    )

    assert found == {"clone3": "ENOSYS", "thread": "started"}


def test_processes_outside_cannot_be_signalled_or_read(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        f"""
        "worker": lambda: os.kill({os.getpid()}, 0),
        "first": lambda: open("/proc/1/mem", "rb").read(1),
        "nice": lambda: os.nice(-5),
        "rise": lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-500"),
        "seen": lambda: len([name for name in os.listdir("/proc") if name.isdigit()]),
        "root": lambda: os.setuid(0),
        "stop": lambda: os.kill(1, signal.SIGSTOP),
        """,
    )

    assert found.pop("seen") in (2, 3, 4)  # bubblewrap's own, and the runner
    assert found.pop("stop") in (None, "EPERM")  # Ignored by a first process.
    assert set(found.values()) <= {"ESRCH", "EACCES", "EPERM", "EIO", "EINVAL"}, found


def test_a_fork_bomb_ends_at_the_limit(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        """
        "children": lambda: bomb(),
        }
def bomb():
    children = []
    try:
        while len(children) < 500:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except OSError as error:
        return [len(children), errno.errorcode[error.errno]]
    finally:
        for pid in children:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return [len(children), "no limit"]
_ = {
        """,
    )

    count, error = found["children"]  # type: ignore[misc]
    assert count < 24
    assert error == "EAGAIN"


def test_scratch_and_shared_memory_are_as_large_as_their_limits(run_code: RunCode) -> None:
    found = attempt(
        run_code,
        """
        **{place: (lambda place=place: open(place + "/big", "wb").write(bytes(2 << 20)) or 0)
           for place in ("/scratch", "/dev/shm")},
        """,
    )

    assert set(found.values()) == {"ENOSPC"}, found


def test_the_data_cannot_be_written_or_truncated(run_code: RunCode) -> None:
    result = run_code(
        """
        import os

        def attempt(action):
            try:
                action()
            except OSError as error:
                return error.errno
            except TypeError:
                return "read-only"
            return "done"

        def train(prepared, data, seed):
            number = next(
                int(name) for name in os.listdir("/proc/self/fd")
                if "memfd" in os.readlink(f"/proc/self/fd/{name}")
            )
            print("RESULT", [
                attempt(lambda: data["x"].__setitem__(0, 5)),
                attempt(lambda: os.ftruncate(number, 0)),
                attempt(lambda: os.write(number, b"x")),
                attempt(lambda: os.write(os.open(f"/proc/self/fd/{number}", os.O_RDWR), b"x")),
            ])
            yield lambda inputs: bytes(range(8))
        """
    )

    assert "RESULT ['read-only', 1, 1, 1]" in result.log_tail or (
        "RESULT ['read-only', 1, 1, 13]" in result.log_tail
    ), result.log_tail


def test_memory_over_many_processes_ends_the_run(run_code: RunCode) -> None:
    result = run_code(
        """
        import os, time

        def prepare(task):
            for _ in range(6):
                if os.fork() == 0:
                    held = bytearray(os.urandom(1 << 20) * 80)
                    time.sleep(30)
            time.sleep(30)
        """
    )

    assert result.code == "memory_limit"
    assert result.peak_bytes > 256 << 20


def test_daemons_end_with_the_box(run_code: RunCode) -> None:
    result = run_code(
        """
        import os, time

        def prepare(task):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
        """
    )

    assert result.status == "reached"
    wait_until = time.monotonic() + 5
    while survivors := boxed_processes():
        assert time.monotonic() < wait_until, survivors
        time.sleep(0.05)


def boxed_processes() -> list[int]:
    """Processes of boxes that this process started, or of the box's own uid."""
    own = psutil.Process().children(recursive=True)
    others = [each for each in psutil.process_iter(["uids"]) if _is_boxed(each)]
    return [each.pid for each in {*own, *others} if "runner.py" in " ".join(_command(each))]


def _is_boxed(process: psutil.Process) -> bool:
    uids = process.info["uids"]
    return uids is not None and uids.real == BOX_UID


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_descriptors_sent_to_the_worker_are_dropped(run_code: RunCode) -> None:
    before = psutil.Process().num_fds()
    result = run_code(
        """
        import array, os, socket

        def train(prepared, data, seed):
            for number in range(3, 64):
                try:
                    channel = socket.socket(fileno=os.dup(number))
                    channel.getpeername()
                    break
                except OSError:
                    continue
            header = b"FLE1" + bytes([4]) + (2).to_bytes(4, "little") + bytes(8)
            socket.send_fds(channel, [header], [0, 1, 2])
            yield
        """
    )

    assert result.code in ("protocol_broken", "entry_died")
    assert psutil.Process().num_fds() <= before


def test_nothing_is_left_for_the_next_run(run_code: RunCode) -> None:
    leave = "import os\ndef prepare(task):\n    open('/scratch/note', 'w').write('hello')\n"
    look = "import os\ndef prepare(task):\n    print('LEFT', os.listdir('/scratch'))\n"

    run_code(leave)

    assert "LEFT []" in run_code(look).log_tail
