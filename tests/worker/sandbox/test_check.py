"""The self-test of a host: who may use its box, what a box sees, and in one sentence why not."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from finishline.rules.verification.messages import BoxWord
from tests.support.box_removals import remove
from worker.sandbox import bubblewrap, local, start
from worker.sandbox.bubblewrap import BOX_UID
from worker.sandbox.order import BoxUnavailableError
from worker.sandbox.packages import Bind, interpreter_binds, masked_folders
from worker.sandbox.start import LEAKS, check_box


@pytest.fixture(autouse=True)
def _fresh():
    check_box.cache_clear()
    yield
    check_box.cache_clear()


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(bubblewrap, "SEARCHED", f"{tmp_path}:{bubblewrap.SEARCHED}")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # The box's uid starts them too.
    return tmp_path


def test_this_host_passes():
    state = check_box()

    assert state.entries in ("known", "anyone")
    assert state.why is None or state.why.startswith(
        "only for approved users, as no memory cgroup bounds it: "
    )


def test_a_package_without_a_box_is_told_so_though_its_task_has_one(monkeypatch, capsys):
    def told(state, *, plain):
        monkeypatch.setattr(local, "check_box", lambda: state)
        with suppress(BoxUnavailableError):
            local.require_box(plain=plain)
        event = json.loads(capsys.readouterr().out)
        return event["entries"], event["why"]

    known, off = BoxWord("known", "no cgroup"), BoxWord("off", "no bubblewrap")
    assert told(known, plain=True) == ("off", "--plain")
    assert told(known, plain=False) == ("known", "no cgroup")
    assert told(off, plain=True) == ("off", "no bubblewrap")
    with pytest.raises(BoxUnavailableError, match="no bubblewrap"):
        local.require_box(plain=True)


def test_a_host_without_bubblewrap_or_a_filter_is_off(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "riscv64")
        assert str(check_box()) == "off: no filter for riscv64"
    check_box.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(check_box()).startswith("off: bubblewrap 0.8 is needed; on Debian 12")


def refusing(said):
    return f"[ \"$1\" = --version ] && echo bubblewrap 0.8.0 && exit 0\necho '{said}' >&2\nexit 1"


TOO_OLD = "bubblewrap 0.8 is needed; on Debian 12"
REFUSED = "namespaces are refused to ordinary users; in a"
NO_UID = "worker runs as root, and this host does not let it"


@pytest.mark.parametrize(
    ("program", "text", "why"),
    [
        *(("bwrap", f"echo '{version}'", TOO_OLD)
          for version in ("bubblewrap 0.6.2", "bubblewrap 0.7", "", "unknown")),
        ("bwrap", refusing("bwrap: No permissions to create new namespace, likely because the "
                           "kernel does not allow non-privileged user namespaces."), REFUSED),
        ("bwrap", refusing("bwrap: setting up uid map: Permission denied"), REFUSED),
        ("bwrap", refusing("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"),
         REFUSED),
        *((name, f"echo '{name}: Operation not permitted' >&2; exit 1", NO_UID)
          for name in ("unshare", "setpriv")),
    ],
)  # fmt: skip
def test_a_host_that_makes_no_box_is_off(fakes, program, text, why):
    if why == NO_UID and os.geteuid() != 0:
        pytest.skip("tells of a worker that runs as root")
    (fakes / program).write_text(f"#!/bin/sh\n{text}\n")
    (fakes / program).chmod(0o755)

    assert str(check_box()).startswith(f"off: {why}")


@pytest.mark.parametrize(
    ("leak", "without"),
    [
        ("sees_host", "list of mounts"),
        ("opens_network", "seccomp"),
        ("reaches_parent", "process namespace"),
        ("traces", "mask of /proc/1"),
        ("makes_namespace", "seccomp, --disable-userns"),
        ("writes_outside", "--remount-ro /"),
    ],
)
def test_a_box_that_leaks_is_off(monkeypatch, tmp_path, leak, without):
    uid = BOX_UID if os.geteuid() == 0 else None
    tmp_path.chmod(0o755)
    remove(without, monkeypatch, tmp_path)
    with subprocess.Popen(["/bin/sleep", "60"], user=uid) as neighbour:
        try:
            state = check_box()
        finally:
            neighbour.kill()

    assert state.entries == "off"
    assert LEAKS[leak] in state.why


def test_a_box_without_limits_is_off(monkeypatch, tmp_path):
    text = start.RUNNER.read_text()
    limitless = tmp_path / "runner.py"
    limitless.write_text(text.replace("    resource.setrlimit(", "    (lambda *_: None)("))
    assert limitless.read_text() != text
    monkeypatch.setattr(start, "RUNNER", limitless)

    assert str(check_box()) == (
        "off: a sandbox leaks: it can start more processes than its limit; it can hold more memory "
        "than its limit"
    )


LABELS = "site-packages/sklearn/datasets/data/digits.csv.gz"


def test_no_packages_of_the_host_are_seen_wherever_they_lie(tmp_path, monkeypatch):
    base, system = tmp_path / "versions" / "3.11.7", tmp_path / "usr" / "lib64"
    program = base / "bin" / "python3.11"
    seen = [program, base / "lib/python3.11/os.py", base / "include/python3.11/Python.h"]
    hidden = [
        base / "lib/python3.11" / LABELS,
        base / "envs/mine/lib/python3.11" / LABELS,  # Where pyenv has its environments.
        system / "python3.11" / LABELS,  # Where Fedora has its packages.
    ]
    for path in (*seen, *hidden):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(sys, "base_prefix", str(base))
    monkeypatch.setattr(sys, "_base_executable", str(program))
    binds, started = interpreter_binds()
    binds.append(Bind(system, str(system)))
    masks = masked_folders(binds)

    def is_seen(path):
        inside = any(path.is_relative_to(bind.source) for bind in binds)
        return inside and not any(path.is_relative_to(mask) for mask in masks)

    assert started == str(program)
    assert [is_seen(path) for path in seen] == [True, True, True]
    assert [is_seen(path) for path in hidden] == [False, False, False]
