"""One machine: its devices and their workers, the service of systemd, backup and restore."""

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from server.base.signing import load_signer
from server.commands.paths import VarPaths
from server.commands.service import quoted, unit_of
from server.commands.services import choose_workers
from server.submissions.rescoring import Summary
from tests.support.admin import run_admin

LISTED = "GPU 0: NVIDIA H100 (UUID: GPU-aa)\nGPU 1: NVIDIA H200 (UUID: GPU-bb)\n"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Put a program of some lines of shell before all others; the file it keeps its calls in."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def put(name, script):
        calls = folder / f"{name}.calls"
        (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{script}\n')
        (folder / name).chmod(0o755)
        return calls

    return put


@pytest.mark.parametrize(
    ("devices", "workers"),
    [
        ("cpu", {"local": ("cpu", "")}),
        ("cuda", {"local-cuda-0": ("cuda:0", "GPU-aa")}),
        ("cuda:1", {"local-cuda-1": ("cuda:0", "GPU-bb")}),
        ("cpu, cuda:1", {"local": ("cpu", ""), "local-cuda-1": ("cuda:0", "GPU-bb")}),
        ("all", {"local-cuda-0": ("cuda:0", "GPU-aa"), "local-cuda-1": ("cuda:0", "GPU-bb")}),
        ("cpu,cpu", {"local": ("cpu", ""), "local-2": ("cpu", "")}),
    ],
)
def test_each_worker_is_shown_its_own_accelerator_alone(tool, devices, workers):
    tool("nvidia-smi", f"printf '{LISTED}'")
    settings = [each.settings() for each in choose_workers(devices)]
    assert {
        each["FINISHLINE_WORKER_NAME"]: (each["FINISHLINE_DEVICE"], each["CUDA_VISIBLE_DEVICES"])
        for each in settings
    } == workers


def test_all_devices_of_a_host_without_accelerators_are_its_processor(tool):
    tool("nvidia-smi", "echo the driver is gone; exit 9")
    (worker,) = choose_workers("all")
    assert worker.name == "local"
    assert "the driver is gone" in worker.words


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ("cuda:2", "no cuda:2 on this machine; it has cpu, cuda:0 (NVIDIA H100), cuda:1"),
        ("cuda:0,cuda:0", "cuda:0 is named 2 times"),
        ("gpu", "'gpu' is no device; expected cpu, cuda:NUMBER or all"),
        ("", "'' is no device"),
    ],
)
def test_missing_device_is_one_sentence(tool, finishline, tmp_path, devices, told):
    tool("nvidia-smi", f"printf '{LISTED}'")
    ran = finishline("up", "--devices", devices, "--var", str(tmp_path / "v"))
    assert ran.code == 2
    assert told in ran.err
    assert not (tmp_path / "v").exists()


def test_a_service_is_printed_as_systemd_takes_it(finishline, tmp_path):
    odd = tmp_path / 'a "100 %" $folder'
    ran = finishline(
        *("admin", "service", "add", "--print", "--var", str(odd), "--devices", "all"),
        *(["--user", "daemon"] if os.geteuid() == 0 else []),
    )
    assert ran.code == 0, ran.err
    assert f'"--var" {quoted(str(odd))}' in ran.out
    assert "100 %%" in ran.out
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return
    unit = tmp_path / "finishline.service"
    unit.write_text(ran.out)
    checked = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture
def own_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return unit_of("finishline", None).file


def test_service_is_added_and_removed(tool, finishline, tmp_path, own_unit):
    calls = tool("systemctl", "")
    ran = finishline("admin", "service", "add", "--var", str(tmp_path / "v"), "--port", "8080")
    assert ran.code == 0, ran.err
    assert own_unit == tmp_path / "config/systemd/user/finishline.service"
    assert '"--port" "8080"' in own_unit.read_text()
    assert (tmp_path / "v").stat().st_mode & 0o777 == 0o700
    assert finishline("admin", "service", "remove").code == 0
    assert not own_unit.exists()
    assert calls.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable finishline",
        "--user restart finishline",
        "--user disable --now finishline",
        "--user daemon-reload",
    ]
    assert finishline("admin", "service", "remove").code == 6


def test_a_service_that_systemd_refuses_leaves_no_unit(tool, finishline, tmp_path, own_unit):
    tool("systemctl", "echo Failed to connect to bus >&2; exit 1")
    ran = finishline("admin", "service", "add", "--var", str(tmp_path / "v"))
    assert ran.code == 4
    assert "Failed to connect to bus" in ran.err
    assert not own_unit.exists()


@pytest.mark.parametrize(
    ("root", "options", "told"),
    [
        (True, (), "--user; root should run none"),
        (False, ("--user", "somebody"), "--user is for root"),
        (False, ("--name", "../x"), "small letters"),
    ],
)
def test_a_service_of_another_or_of_root_is_refused(finishline, monkeypatch, root, options, told):
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    ran = finishline("admin", "service", "add", "--print", *options)
    assert ran.code == 2
    assert told in ran.err


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A var folder with a database, as `finishline up` leaves it."""
    var = tmp_path_factory.mktemp("served") / "a folder"
    paths = VarPaths(var)
    paths.artifacts.mkdir(parents=True)
    for command in (["migrate"], ["token", "--user", "ada", "--role", "admin"]):
        assert run_admin(paths.environment(), *command).code == 0
    load_signer(paths.signing_key)
    return var


def test_a_backup_is_restored_elsewhere_with_its_accounts(served, finishline, tmp_path):
    made = finishline("admin", "backup", "--var", str(served), "--json")
    assert made.code == 0, made.err
    assert Path(json.loads(made.out)["path"]).parent == served / "backups"

    fresh = tmp_path / "fresh"
    ran = finishline("admin", "restore", str(served / "backups"), "--var", str(fresh))

    assert ran.code == 0, ran.err
    assert f"finishline up --var {fresh}" in ran.out
    assert b"ada" in VarPaths(fresh).database.read_bytes()
    again = finishline("admin", "restore", str(served / "backups"), "--var", str(fresh))
    assert again.code == 1
    assert "a restore replaces nothing" in again.err


def test_a_backup_of_no_server_and_a_restore_of_no_backup_are_refused(finishline, tmp_path):
    refused = finishline("admin", "backup", "--var", str(tmp_path))
    assert (refused.code, "There is no file" in refused.err) == (1, True)
    ran = finishline("admin", "restore", str(tmp_path / "none"), "--var", str(tmp_path / "v"))
    assert (ran.code, f"No backup in {tmp_path / 'none'}" in ran.err) == (1, True)
    assert not VarPaths(tmp_path / "v").database.exists()


def test_a_backup_for_which_the_disk_is_too_small_leaves_nothing(served, finishline, tmp_path):
    whole, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200 * 1024, most))
    try:
        ran = finishline("admin", "backup", str(tmp_path / "b"), "--var", str(served))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole, most))
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert [path.name for path in (tmp_path / "b").iterdir()] == [".lock"]


def test_server_of_a_folder_is_rescored(served, finishline, tmp_path):
    ran = finishline("admin", "rescore", "--var", str(served), "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == {
        "definition": "stored", "dry_run": True, "submissions": 0, "unchanged": 0, "changed": [],
        "failed": [],
    }  # fmt: skip
    ran = finishline("admin", "rescore", "--var", str(served), "--benchmark", "mnist")
    assert ran.code == 1
    assert ran.err.startswith("error: Nothing was rescored: There is no benchmark 'mnist'")


def test_failed_rescoring_fails_the_command(served, finishline, monkeypatch):
    def rescore(*_, progress, **__):
        progress("b: not read")
        failed = [{"id": "b", "error": "run_0.log cannot be read"}]
        return Summary("current", dry_run=False, submissions=2, changed=["a"], failed=failed)

    monkeypatch.setattr("server.commands.administer.rescore_submissions", rescore)
    ran = finishline("admin", "rescore", "--var", str(served), "--definition", "current")
    assert (ran.code, ran.out.splitlines()[0]) == (1, "b: not read")
    assert ran.out.endswith(": 1 changed, 0 unchanged, 1 failed.\n")
