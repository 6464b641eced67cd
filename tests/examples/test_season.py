"""The example series: packages whose manifests form one chain, an idea each."""

import os
import subprocess
from pathlib import Path

import pytest

from finishline.client.files import read_folder
from finishline.rules.trainings.package import read_package

EXAMPLES = Path(__file__).parents[2] / "examples"
SEASON = EXAMPLES / "season"


@pytest.mark.parametrize(
    ("series", "benchmark", "packages"), [("season", "teacher", 6), ("fashion", "fashion", 5)]
)
def test_each_package_of_a_series_is_based_on_the_one_before(series, benchmark, packages):
    folders = sorted(path for path in (EXAMPLES / series).iterdir() if path.is_dir())
    assert len(folders) == packages
    parent, wrong = None, []
    for folder in folders:
        files, unread = read_folder(folder)
        package, problems = read_package(files, benchmarks=[benchmark])
        assert package is not None, problems
        assert unread == []
        if package.manifest.based_on != parent:
            wrong.append(f'{folder.name}/training.toml: expected based_on = "{parent}"')
            break  # This package's own hash will change with the line.
        parent = f"sha256:{package.sha256}"
    assert wrong == []


def test_the_script_submits_in_order(tmp_path):
    stub = tmp_path / "finishline"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    stub.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([SEASON / "submit.sh"], env={"PATH": path}, check=True)

    folders = sorted(path.name for path in SEASON.iterdir() if path.is_dir())
    said = (tmp_path / "said").read_text().splitlines()
    assert said == [f"submit {name}/" for name in folders]
