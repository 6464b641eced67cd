"""Both wheels in fresh environments, as somebody without the source has them."""

import json
import subprocess
import sys
import zipfile

import pytest

from tests.e2e.conftest import MEASURED_OR_NOT, run_pip
from tests.support.processes import asking

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
LARGEST_MB = 60


def test_the_wheels_hold_what_each_needs(wheels):
    light, whole = (
        set(zipfile.ZipFile(wheels[name]).namelist())
        for name in ("finishline_tta", "finishline_server")
    )
    for path, wheel in {
        "finishline/rules/archive/benchmarks/retinanet.toml": light,
        "finishline/py.typed": light,
        "finishline/files/benchmarks/digits.toml": light,
        "finishline/files/benchmarks/teacher/task.py": light,
        "finishline/rules/trainings/benchmark_template/reference/train.py.example": light,
        "server/files/benchmarks/digits.toml": whole,
        "server/files/benchmarks/teacher/reference/train.py": whole,
        "server/files/docs/start.md": whole,
        "server/files/docs/decisions/0017-one-job.md": whole,
        "server/files/docs/images/leaderboard.png": whole,
        "web/templates/base.html": whole,
        "web/templates/console/users.html": whole,
        "web/static/style.css": whole,
        "web/static/plotly-basic.min.js": whole,
        "web/static/plotly-LICENSE.txt": whole,
        "migrations/env.py": whole,
        "reference_models/digits.py": whole,
        "worker/__main__.py": whole,
    }.items():
        assert path in wheel, path
    tops = {path.split("/")[0] for path in whole if ".dist-info" not in path}
    assert tops == {"server", "worker", "web", "reference_models", "migrations"}
    assert {path.split("/")[0] for path in light if ".dist-info" not in path} == {"finishline"}


def test_a_wheel_is_built_of_the_source_archive_alone(wheels, tmp_path):
    source = wheels["finishline_tta"].parents[1] / "source" / "finishline"
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-P", "-c", build], cwd=source, check=True, capture_output=True)
    (archive,) = tmp_path.glob("finishline_tta-*.tar.gz")
    run_pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(archive))
    (made,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(made).namelist()) == set(
        zipfile.ZipFile(wheels["finishline_tta"]).namelist()
    )


def test_a_participant_installs_at_most_60_mb(participant):
    participant.run("python", "-m", "compileall", "-q", str(participant.site))  # As pip does.
    size = sum(path.stat().st_size for path in participant.site.rglob("*") if path.is_file())
    assert size <= LARGEST_MB * 1024 * 1024
    assert not (participant.site / "numpy").exists()


def test_a_participant_takes_part_in_a_server(participant, stack, trained, tmp_path):
    of_participant = {"FINISHLINE_URL": stack.url, "FINISHLINE_TOKEN": stack.token("demo")}

    needs = participant.run("finishline", "run", "digits", codes=(4,))
    assert "needs the distribution finishline-server" in needs
    checked = participant.run("finishline", "check", str(trained))
    assert "Accepted by the rules: digits closed" in checked
    # The files that the demo has sent: they are one submission.
    sent = participant.run("finishline", "submit", str(trained), "--json", **of_participant)
    verification = stack.replay_of(json.loads(sent[sent.index("{") :])["id"])
    watched = participant.run(
        "finishline", "verify", verification, "--watch", codes=MEASURED_OR_NOT, **of_participant
    )
    assert "Verdict: verified" in watched
    board = participant.run(
        "finishline", "board", "digits", "--division", "closed", **of_participant
    )
    assert "digits" in board.lower()

    participant.run("finishline", "proof", verification, **of_participant)


def test_a_server_from_the_wheels_shows_its_documents(stack):
    assert asking.get(f"{stack.url}/docs/start", headers={"Accept": "text/html"}).is_success
    assert asking.get(f"{stack.url}/docs/images/leaderboard.png").is_success
