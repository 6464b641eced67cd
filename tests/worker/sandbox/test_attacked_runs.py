"""Attacks that end a run, with the box whole and without the protection that ends it.

A row is a number of the list in docs/trainings.md. Every attack is bounded: memory by 200 MiB,
children by their number and by their seconds.
"""

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.support.box_removals import remove
from tests.worker.sandbox.conftest import LIMITS, is_boxed
from worker.sandbox.bubblewrap import BOX_UID
from worker.sandbox.protocol import Limits

SHORT = Limits(
    **(vars(LIMITS) | {"memory_bytes": 96 << 20, "silence_seconds": 2.0, "run_seconds": 5.0})
)


class Attack(NamedTuple):
    """Code of `prepare` or `train`, the end of its run, and the protection that ends it."""

    row: int
    name: str
    end: str
    without: str
    code: str
    step: str = "train"


HOLD_IN_CHILDREN = """
for _ in range(5):
    if os.fork() == 0:
        held = os.urandom(1 << 20) * 40
        time.sleep(3)
        os._exit(0)
time.sleep(2)
"""
HOLD_IN_COMMON = """
held = os.urandom(1 << 20) * 50
for _ in range({}):
    if os.fork() == 0:
        time.sleep(2)
        os._exit(0)
time.sleep(1)
"""
HOLD_TABLES = """
held = mmap.mmap(-1, 80 << 30, mmap.MAP_PRIVATE, mmap.PROT_READ)
for at in range(0, 80 << 30, 2 << 20):
    held[at]
time.sleep(1)
"""
DRIP = """
for byte in frame(4, 2):
    end.sendall(bytes([byte]))
    time.sleep(0.2)
end.recv(25)
end.sendall(frame(6, 3, bytes(range(8))))
time.sleep(20)
"""
# All frames of a run, before its data are there, so that they wait when its clock starts.
AHEAD = "end.sendall(frame(2, 1) + frame(4, 2) + frame(6, 3, bytes(range(8)))); time.sleep(2)"
ATTACKS = [
    Attack(3, "memory of children", "memory_limit", "memory watch", HOLD_IN_CHILDREN),
    # Fifty children that share 900 MiB kept the watch from its next look for 3 s.
    Attack(3, "memory in common", "memory_limit", "memory watch", HOLD_IN_COMMON.format(10)),
    Attack(3, "page tables", "memory_limit", "memory watch", HOLD_TABLES),
    *(
        Attack(row, name, "protocol_broken", "frame checks", f"end.sendall({sent})", step)
        for row, name, sent, step in (
            (20, "a quality", "frame(8, 2, bytes(8))", "train"),
            (21, "early ask", "frame(4, 1)", "prepare"),
            (21, "predictions not asked for", "frame(6, 2, bytes(range(8)))", "train"),
            (21, "misnumbered", "frame(4, 9)", "train"),
            (21, "4 EiB", "frame(4, 2, length=2**62)", "train"),
            (21, "noise", "bytes(range(256)) * 8", "train"),
        )
    ),
    Attack(21, "a run ahead", "protocol_broken", "frames in their turn", AHEAD, "prepare"),
    Attack(22, "drip", "silence_time_limit", "one deadline", DRIP),
    Attack(22, "silence", "silence_time_limit", "silence limit", "time.sleep(30)"),
    Attack(23, "log flood", "log_limit", "log limit", "print('x' * 2_000_000)"),
    Attack(
        24,
        "endless evaluations",
        "protocol_broken",
        "evaluation limit",
        "for _ in range(5): yield lambda inputs: bytes(8)",
    ),
]


def module_of(attack):
    steps = {"prepare": "pass", "train": "pass"} | {attack.step: attack.code.strip()}
    body = {step: code.replace("\n", "\n    ") for step, code in steps.items()}
    return f"""
import mmap, os, time
from wire import channel, frame

end = channel()

def prepare(task):
    {body["prepare"]}

def train(prepared, data, seed):
    {body["train"]}
    yield lambda inputs: bytes(range(8))
"""


def end_of(run_code, attack):
    try:
        result = run_code(module_of(attack), limits=SHORT)
    except (MemoryError, OverflowError, ValueError) as error:
        return type(error).__name__
    assert len(result.log_tail) <= LIMITS.log_tail_bytes
    return result.code or result.status


attacks = pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: f"{one.row} {one.name}")


@attacks
def test_an_attack_ends_the_run(run_code, attack):
    begun = time.monotonic()

    assert end_of(run_code, attack) == attack.end
    assert time.monotonic() - begun < 10  # Long before a run that nobody ends.


@pytest.mark.nightly
@attacks
def test_the_attack_goes_on_without_its_protection(run_code, attack, monkeypatch, tmp_path):
    remove(attack.without, monkeypatch, tmp_path)

    assert end_of(run_code, attack) != attack.end


def test_memory_in_common_counts_once(run_code):
    package = module_of(Attack(3, "", "", "", HOLD_IN_COMMON.format(3)))

    result = run_code(package, limits=SHORT)

    assert result.status == "reached", result
    assert result.peak_bytes > 50 << 20


def test_memory_that_a_process_hides_counts_whole(run_code, monkeypatch):
    """PR_SET_DUMPABLE hides them from a worker that may not trace the process, on most kernels."""
    read = Path.read_text

    def read_text(path, *given, **named):
        if path.name == "smaps_rollup":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", read_text)

    assert end_of(run_code, Attack(3, "", "", "", HOLD_IN_CHILDREN)) == "memory_limit"


@pytest.fixture
def host_folder():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


DAEMON = """
    import os, time

    def prepare(task):
        os.dup2(0, 1), os.dup2(0, 2)
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, b"here")
                time.sleep(30)
            os._exit(0)
        os.read(reader, 4)
"""
SPINNERS = """
    import os, time

    def train(prepared, data, seed):
        os.dup2(0, 1), os.dup2(0, 2)
        for _ in range(4):
            if os.fork() == 0:
                while time.process_time() < 20: pass
                os._exit(0)
        while time.process_time() < 0.3: pass
        yield lambda inputs: bytes(range(8))
"""


@pytest.mark.parametrize("code", [DAEMON, SPINNERS], ids=["27 daemon", "26 spinners"])
@pytest.mark.parametrize("without", [None, "process namespace"])
def test_processes_left_behind_end_with_the_box(run_code, code, without, monkeypatch, host_folder):
    if without is not None:
        remove(without, monkeypatch, host_folder)
    try:
        result = run_code(code)

        assert result.status == "reached"
        assert code is DAEMON or result.seconds >= 0.3  # They cost the package's own time.
        wait_seconds = 5.0 if without is None else 0.5
        assert bool(survivors(wait_seconds)) is (without is not None)
    finally:
        for process in survivors(0.0):
            process.kill()


def survivors(wait_seconds):
    give_up_at = time.monotonic() + wait_seconds
    while found := [each for each in psutil.process_iter() if is_boxed(each)]:
        if time.monotonic() >= give_up_at:
            break
        time.sleep(0.02)
    return found


def test_other_processes_of_the_user_leave_the_box_its_own(run_code):
    """A limit to the user's processes would let no box start on a desktop."""
    uid = BOX_UID if os.geteuid() == 0 else None
    hundred = "for _ in $(seq 100); do sleep 60 & done; echo started; wait"
    with subprocess.Popen(
        ["/bin/sh", "-c", hundred], user=uid, stdout=subprocess.PIPE, start_new_session=True
    ) as others:
        assert others.stdout.readline() == b"started\n"
        try:
            result = run_code(
                """
                import os, time

                def prepare(task):
                    for _ in range(20):
                        if os.fork() == 0:
                            time.sleep(60)
                """
            )
        finally:
            os.killpg(others.pid, signal.SIGKILL)

    assert (result.status, result.code) == ("reached", None)


@pytest.mark.parametrize("without", [None, "plain recv"])
def test_descriptors_sent_to_the_worker_are_dropped(run_code, without, monkeypatch, tmp_path):
    if without is not None:
        remove(without, monkeypatch, tmp_path)
    before = open_files()
    result = run_code(
        """
        import socket, time
        from wire import channel, frame

        def train(prepared, data, seed):
            socket.send_fds(channel(), [frame(7, 2)], [0, 0, 0])
            time.sleep(1)
            yield
        """
    )

    assert result.status == "not_reached"
    held = open_files() - before
    for number in held:
        os.close(number)
    assert len(held) == (0 if without is None else 3)


def open_files():
    found = set()
    for number in range(1024):
        with suppress(OSError):
            os.fstat(number)
            found.add(number)
    return found


@pytest.mark.parametrize("without", [None, "fresh /scratch"])
def test_no_note_is_left_for_the_next_run(run_code, without, monkeypatch, host_folder):
    if without is not None:
        remove(without, monkeypatch, host_folder)
    run_code("def prepare(task):\n    open('/scratch/note', 'w').write('hello')\n")

    found = run_code("import os\ndef prepare(task):\n    print('LEFT', os.listdir('/scratch'))\n")

    assert ("LEFT []" in found.log_tail) is (without is None)


@pytest.mark.parametrize("without", [None, "read-only binds"])
def test_reading_the_package_leaves_no_trace_in_its_times(run_code, without, monkeypatch, tmp_path):
    if without is not None:
        remove(without, monkeypatch, tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    here, read = tmp_path / "read", package / "read"
    for path in (here, read):
        path.write_text("x")
        os.utime(path, (1, path.stat().st_mtime))

    run_code("def prepare(task):\n    open('/package/read').read()\n")

    here.read_text()
    if here.stat().st_atime == 1:
        pytest.skip("this file system keeps no time of reading")
    assert (read.stat().st_atime == 1) is (without is None)
