"""The real thing, from the wheels: `finishline up` with broker, server, worker and training.

The wheel's own metadata decides which distributions a participant's environment gets; they are
copied from the running environment, so that nothing is fetched. The server's environment reads the
running one's, as torch alone is a gigabyte.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.processes import asking, free_port, wait_for

ROOT = Path(__file__).parents[2]
# A busy machine posts and answers late: the server's clock allows for it.
SETTINGS = {"FINISHLINE_CLOCK_SLACK_SECONDS": "5"}
MEASURED_OR_NOT = (0, 3)
NOT_SOURCE = (".*", "__pycache__", "build", "*.egg-info", "tests", "var", "runs")


class Environment:
    """A fresh virtual environment, and programs run in it from an empty folder."""

    def __init__(self, folder):
        venv.create(folder / "environment", with_pip=False)
        self.bin = folder / "environment" / "bin"
        self.site = next((folder / "environment" / "lib").glob("python*")) / "site-packages"
        self.work = folder / "empty"
        self.work.mkdir()

    def install(self, wheel):
        """Install a wheel without anything it asks for."""
        python = str(self.bin / "python")
        run_pip("--python", python, "install", "--no-index", "--no-deps", str(wheel))

    def start(self, *command, **settings):
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

    def run(self, *command, codes=(0,), **settings):
        """Everything a program prints; it must end with one of these exit codes."""
        process = self.start(*command, **settings)
        printed, _ = process.communicate(timeout=500)
        assert process.returncode in codes, printed
        return printed


def run_pip(*arguments):
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


def asked_for(requirements, found):
    """The distributions that requirements lead to, extras left out."""
    for text in requirements or []:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate()):
            found.add(name)
            asked_for(distribution(name).requires, found)
    return found


def copy_distribution(name, site):
    installed = distribution(name)
    for file in installed.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(installed.locate_file(file), target)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Both wheels by their first word, built from a copy of the source."""
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    run_pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder / "built"),
            str(source / "finishline"), str(source))  # fmt: skip
    return {path.name.split("-")[0]: path for path in (folder / "built").glob("*.whl")}


@pytest.fixture(scope="session")
def participant(wheels, tmp_path_factory):
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


@pytest.fixture(scope="session")
def host(wheels, tmp_path_factory):
    """A server's environment: both wheels, everything else from the running environment."""
    environment = Environment(tmp_path_factory.mktemp("host"))
    for wheel in wheels.values():
        environment.install(wheel)
    here = Path(distribution("pydantic").locate_file("")).resolve()
    (environment.site / "third_party.pth").write_text(f"{here}\n")
    return environment


@dataclass
class Stack:
    """A running `finishline up`, whose services are ready."""

    process: "subprocess.Popen[str]"
    url: str
    var: Path

    def token(self, name):
        """A token that `up` made."""
        return (self.var / "tokens" / f"{name}.token").read_text().strip()

    def access(self, name):
        """The options of a command that reaches this server with such a token."""
        return ("--url", self.url, "--token", self.token(name))

    def get(self, path, *, by=None):
        """The JSON at a path of the API, as nobody or as whose token is named."""
        headers = {"Authorization": f"Bearer {self.token(by)}"} if by is not None else {}
        answer = asking.get(f"{self.url}/api/v1{path}", headers=headers, timeout=10.0)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def replay_of(self, submission_id):
        """The id of the one replay of a submission."""
        found = self.get(f"/submissions/{submission_id}")["verifications"]
        (replay,) = [each["id"] for each in found if each["kind"] == "replay"]
        return str(replay)

    def verify(self, submission_id):
        """Ask for a verification; its id."""
        answer = asking.post(
            f"{self.url}/api/v1/submissions/{submission_id}/verifications",
            headers={"Authorization": f"Bearer {self.token('organiser')}"},
            json={"reason": "test"},
            timeout=10.0,
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def cancel(self, verification_id):
        """Cancel a verification."""
        answer = asking.post(
            f"{self.url}/api/v1/verifications/{verification_id}/cancellation",
            headers={"Authorization": f"Bearer {self.token('organiser')}"},
            timeout=10.0,
        )
        assert answer.status_code == 200, answer.text

    def wait_until_ended(self, verification_id, *, seconds=400.0):
        """The verification once it has ended."""

        def ended():
            view = self.get(f"/verifications/{verification_id}")
            return view if view["state"] in ("done", "failed", "cancelled") else None

        return wait_for(ended, seconds=seconds, what=f"the end of {verification_id}", pause=0.3)

    def service(self, word):
        """The process of a service, which `up` starts itself."""
        return next(iter(self.children(word, recursive=False)), None)

    def children(self, *words, recursive=True):
        """The processes under `up` whose command line has all these words."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive):
            try:
                line = " ".join(child.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                found.append(child)
        return found


def finishline(*arguments, codes=(0,)):
    """What the command of the checkout prints."""
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in codes, done.stderr + done.stdout
    return done.stdout


def run_cli(*arguments, codes=(0,)):
    """The same with --json, parsed."""
    return json.loads(finishline(*arguments, "--json", codes=codes))


def read_until(process, words):
    """All that a program prints until these words are in it."""
    printed = ""
    for line in process.stdout:
        printed += line
        if words in printed:
            return printed
    raise AssertionError(printed)


@pytest.fixture(scope="session")
def stack(host):
    """A server with one worker; stopped by SIGTERM at the end."""
    port = free_port()
    process = host.start("finishline", "up", "--port", str(port), **SETTINGS)
    try:
        read_until(process, "Finishline is up")
        yield Stack(process, f"http://127.0.0.1:{port}", host.work / "var")
        left = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        _gone, alive = psutil.wait_procs(left, timeout=5)
        assert alive == [], "processes were left behind"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture
def boxed(stack):
    """Skip where the worker has no box; fail if it must have one."""
    if stack.get("/workers")["workers"][0]["box"]["entries"] == "off":
        assert not os.environ.get("FINISHLINE_REQUIRE_BOX")
        pytest.skip("this host has no box")


@pytest.fixture(scope="session")
def demo(host, stack):
    """What the demo prints; a time of a worker that drifted does not count."""
    program = ("python", "-P", "-m", "server.commands.demo")
    return host.run(*program, stack.url, str(stack.var), codes=MEASURED_OR_NOT)


@pytest.fixture(scope="session")
def trained(stack, demo):
    """The folder of the demo's claim: three real trainings of the digits reference."""
    (claim,) = stack.var.glob("demo-*/submission.json")
    return claim.parent


@pytest.fixture
def submit(stack):
    """Sends a folder to the stack as its demo submitter; the submission as the server shows it.

    The same folder sent again is the same submission.
    """

    def send(folder):
        return run_cli("submit", str(folder), *stack.access("demo"))

    return send
