"""The files that a box sees of the host's interpreter and libraries."""

import sys

from worker.sandbox.packages import Bind, interpreter_binds, masked_folders

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
