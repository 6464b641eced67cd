"""Both wheels in fresh environments and empty folders, as somebody without the source has them.

The wheel's own metadata decides which distributions a participant's environment gets; they are
copied from the running environment, so that nothing is fetched. The server's environment reads the
running one's, as torch alone is a gigabyte.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from server.pages.client_wheel import client_wheel
from tests.support.processes import asking, free_port, stop

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
NOT_SOURCE = (".*", "__pycache__", "build", "*.egg-info", "tests", "var", "runs")
LARGEST_MB = 60
MEASURED_OR_NOT = (0, 3)
SENTENCE = "install it with `pip install 'finishline-tta[stats]'`"


class Environment:
    """A fresh virtual environment, and programs run in it from an empty folder."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "environment", with_pip=False)
        self.bin = folder / "environment" / "bin"
        self.site = next((folder / "environment" / "lib").glob("python*")) / "site-packages"
        self.work = folder / "empty"
        self.work.mkdir()

    def install(self, wheel: Path) -> None:
        """Install a wheel without anything it asks for."""
        python = str(self.bin / "python")
        run_pip("--python", python, "install", "--no-index", "--no-deps", str(wheel))

    def start(self, *command: str, **settings: str) -> "subprocess.Popen[str]":
        """Start a program of the environment; no setting of the caller's reaches it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FINISHLINE_", "PYTHON"))}
        return subprocess.Popen(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.work,
            env=kept | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, codes: tuple[int, ...] = (0,), **settings: str) -> str:
        """Everything a program prints; it must end with one of these exit codes."""
        process = self.start(*command, **settings)
        printed, _ = process.communicate(timeout=500)
        assert process.returncode in codes, printed
        return printed


def run_pip(*arguments: str) -> None:
    """Run pip away from the checkout, whose *.egg-info would count as installed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "-q", *arguments],
        cwd="/",
        env={name: at for name, at in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def asked_for(requirements: list[str] | None, found: set[str]) -> set[str]:
    """The distributions that requirements lead to, extras left out."""
    for text in requirements or []:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate()):
            found.add(name)
            asked_for(distribution(name).requires, found)
    return found


def copy_distribution(name: str, site: Path) -> None:
    installed = distribution(name)
    for file in installed.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(installed.locate_file(file), target)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels by their first word, built from a copy of the source."""
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    run_pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder / "built"),
            str(source / "finishline"), str(source))  # fmt: skip
    return {path.name.split("-")[0]: path for path in (folder / "built").glob("*.whl")}


def test_a_server_hands_out_the_wheel_that_the_source_makes(wheels: dict[str, Path]) -> None:
    built = wheels["finishline_tta"]
    made = client_wheel()
    assert made.name == built.name
    with zipfile.ZipFile(built) as theirs, zipfile.ZipFile(io.BytesIO(made.content)) as ours:
        names = {name for name in theirs.namelist() if not name.endswith("RECORD")}
        assert {name for name in ours.namelist() if not name.endswith("RECORD")} == names
        different = [name for name in names if theirs.read(name) != ours.read(name)]
        # Its own metadata are those of the installation, which may be older than the source.
        assert [name for name in different if ".dist-info/" not in name] == []
        recorded = ours.read(f"{built.name.removesuffix('-py3-none-any.whl')}.dist-info/RECORD")
        assert len(recorded.decode().splitlines()) == len(names) + 1


@pytest.fixture(scope="module")
def participant(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A participant's environment: finishline-tta and what its metadata asks for."""
    environment = Environment(tmp_path_factory.mktemp("participant"))
    environment.install(wheels["finishline_tta"])
    metadata = next(environment.site.glob("finishline_tta-*.dist-info")) / "METADATA"
    lines = metadata.read_text().splitlines()
    requirements = [
        line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")
    ]
    for name in asked_for(requirements, set()):
        copy_distribution(name, environment.site)
    return environment


@pytest.fixture(scope="module")
def host(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A server's environment: both wheels, everything else from the running environment."""
    environment = Environment(tmp_path_factory.mktemp("host"))
    for wheel in wheels.values():
        environment.install(wheel)
    here = Path(distribution("pydantic").locate_file("")).resolve()
    (environment.site / "third_party.pth").write_text(f"{here}\n")
    return environment


@dataclass
class Served:
    """A server that goes on after its demo."""

    url: str
    printed: str


@pytest.fixture(scope="module")
def served(host: Environment) -> Iterator[Served]:
    """`finishline up --demo` from the wheels. Its time counts on a quiet machine alone."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    process = host.start(
        "finishline", "up", "--demo", "--port", str(port), FINISHLINE_CLOCK_SLACK_SECONDS="5"
    )
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "The server keeps running" in line:
            break
    assert process.poll() is None, "".join(lines)
    yield Served(url, "".join(lines))
    stop(process)  # type: ignore[arg-type]
    process.stdout.close()


def test_the_wheels_hold_what_each_needs(wheels: dict[str, Path]) -> None:
    light, whole = (
        set(zipfile.ZipFile(wheels[name]).namelist())
        for name in ("finishline_tta", "finishline_server")
    )
    for path, wheel in {
        "finishline/rules/archive/benchmarks/mlperf-v5.1-retinanet.toml": light,
        "finishline/py.typed": light,
        "finishline/files/benchmarks/digits.toml": light,
        "finishline/files/benchmarks/teacher/task.py": light,
        "finishline/rules/trainings/benchmark_template/reference/train.py.example": light,
        "server/files/benchmarks/digits.toml": whole,
        "server/files/examples/season/6_in_place/train.py": whole,
        "server/files/benchmarks/teacher/reference/train.py": whole,
        "server/files/docs/start.md": whole,
        "server/files/docs/decisions/0017-one-job.md": whole,
        "server/files/docs/images/home.png": whole,
        "web/templates/base.html": whole,
        "web/templates/console/users.html": whole,
        "web/static/style.css": whole,
        "web/static/plotly-basic.min.js": whole,
        "web/static/plotly-LICENSE.txt": whole,
        "web/fonts/DejaVuSans.ttf": whole,
        "web/fonts/LICENSE.txt": whole,
        "migrations/env.py": whole,
        "migrations/script.py.mako": whole,
        "reference_models/digits.py": whole,
        "worker/__main__.py": whole,
    }.items():
        assert path in wheel, path
    tops = {path.split("/")[0] for path in whole if ".dist-info" not in path}
    assert tops == {"server", "worker", "web", "reference_models", "migrations"}
    assert {path.split("/")[0] for path in light if ".dist-info" not in path} == {"finishline"}


def test_a_wheel_is_built_of_the_source_archive_alone(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    source = wheels["finishline_tta"].parents[1] / "source" / "finishline"
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-P", "-c", build], cwd=source, check=True, capture_output=True)
    (archive,) = tmp_path.glob("finishline_tta-*.tar.gz")
    run_pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(archive))
    (made,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(made).namelist()) == set(
        zipfile.ZipFile(wheels["finishline_tta"]).namelist()
    )


def test_a_participant_installs_at_most_60_mb(participant: Environment) -> None:
    participant.run("python", "-m", "compileall", "-q", str(participant.site))  # As pip does.
    size = sum(path.stat().st_size for path in participant.site.rglob("*") if path.is_file())
    assert size <= LARGEST_MB * 1024 * 1024
    assert not (participant.site / "numpy").exists()


def test_the_demo_runs_from_the_wheels_in_an_empty_folder(
    served: Served, host: Environment
) -> None:
    assert "Verdict: verified" in served.printed
    assert "4. The leaderboard" in served.printed
    assert {path.name for path in host.work.iterdir()} == {"var"}


def test_a_participant_takes_part_in_a_server(
    participant: Environment, host: Environment, served: Served
) -> None:
    tokens = host.work / "var" / "tokens"
    of_participant = {
        "FINISHLINE_URL": served.url,
        "FINISHLINE_TOKEN": (tokens / "demo.token").read_text().strip(),
    }
    (claim,) = host.work.glob("var/demo-*/submission.json")
    runs = claim.parent

    needs = participant.run("finishline", "run", "digits", codes=(4,))
    assert "needs the distribution finishline-server" in needs
    checked = participant.run("finishline", "check", str(runs))
    assert "Accepted by the rules: digits closed" in checked
    # The files that the demo has sent: they are one submission.
    sent = participant.run("finishline", "submit", str(runs), "--json", **of_participant)
    submission = json.loads(sent[sent.index("{") :])["id"]
    found = asking.get(f"{served.url}/api/v1/submissions/{submission}").json()
    (verification,) = [each["id"] for each in found["verifications"]]
    watched = participant.run(
        "finishline", "verify", verification, "--watch", codes=MEASURED_OR_NOT, **of_participant
    )
    assert "Verdict: verified" in watched
    board = participant.run("finishline", "leaderboard", "digits", **of_participant)
    assert "digits" in board.lower()

    proof = participant.run("finishline", "check-proof", verification, codes=(4,), **of_participant)
    assert SENTENCE in proof
    for name in ("numpy", "scipy"):
        copy_distribution(name, participant.site)
    participant.run("finishline", "check-proof", verification, **of_participant)


def test_a_server_from_the_wheels_shows_its_documents(served: Served) -> None:
    assert asking.get(f"{served.url}/docs/start", headers={"Accept": "text/html"}).is_success
    assert asking.get(f"{served.url}/docs/images/home.png").is_success
