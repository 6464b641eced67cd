"""The services of the compose file as plain processes: their own commands and environments."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress

import boto3
import psutil
import redis

from server.commands.services import broker_executable
from tests.deploy.conftest import ROOT
from tests.support.admin import run_admin
from tests.support.postgresql import running_postgresql
from tests.support.processes import asking, free_port, stop, wait_for

# Where Debian's package puts it, which a user's path may lack.
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
SERVERS = ("server-1", "server-2")
WORKERS = ("worker-cpu-1", "worker-cpu-2")
BUCKET = "results"


class Proxy:
    """nginx with the repository's configuration. Ports and folders are this test's."""

    def __init__(self, ports, folder):
        self.port = free_port()
        self._file = folder / "nginx.conf"
        self._log = folder / "proxy.log"
        text = (ROOT / "deploy/nginx.conf").read_text()
        servers = "".join(f"server 127.0.0.1:{port} max_fails=2 fail_timeout=5s;" for port in ports)
        for theirs, ours in (
            (r"resolver .*;", ""),
            (r"server server:8000 resolve .*;", servers),
            (r"listen 8080;", f"listen 127.0.0.1:{self.port};"),
            (r"(?<= )/tmp/", f"{folder}/nginx-"),
        ):
            text, count = re.subn(theirs, ours, text)
            assert count, f"deploy/nginx.conf has no {theirs}"
        self._file.write_text(text)

    def start(self):
        """Start nginx in the foreground."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [NGINX, "-c", self._file, "-g", "daemon off;"], stdout=log, stderr=log
            )


class Topology:
    """Two servers behind one port, two workers, PostgreSQL, Redis and an S3 store.

    Commands, environments, secrets and the broker's configuration are those of the repository;
    addresses and folders are this test's.
    """

    def __init__(self, compose, dockerfile, folder):
        self._compose, self._dockerfile, self._folder = compose, dockerfile, folder
        self._resources = ExitStack()
        self._database = self._resources.enter_context(running_postgresql())
        self._broker_port, self._store_port = free_port(), free_port()
        self._ports = {name: free_port() for name in SERVERS}
        self._proxy = Proxy(self._ports.values(), folder)
        self.processes = {}
        self.url = f"http://127.0.0.1:{self._proxy.port}"
        for part in ("run", "redis", "deploy"):
            (folder / part).mkdir()
        script = shutil.copy(ROOT / "deploy/make-secrets.sh", folder / "deploy")
        subprocess.run(["/bin/sh", script], check=True, capture_output=True)
        self._write_broker_configuration()

    def _write_broker_configuration(self):
        text = (ROOT / self._compose["configs"]["redis"]["file"]).read_text()
        text = text.replace("dir /data", f"dir {self._folder / 'redis'}")
        text = text.replace("bind * -::*", f"bind 127.0.0.1\nport {self._broker_port}")
        (self._folder / "redis.conf").write_text(text)

    def url_of(self, server):
        """The address of one server."""
        return f"http://127.0.0.1:{self._ports[server]}"

    def secret(self, name):
        """A secret as the script made it."""
        return (self._folder / "secrets" / name).read_text().strip()

    def here(self, text, *, name):
        """A text of the compose file with the addresses and folders of this test."""
        for theirs, ours in (
            (r"postgresql\+psycopg://.*", self._database),
            (r"redis://redis:6379", f"redis://127.0.0.1:{self._broker_port}"),
            (r"http://proxy:8080", self.url),
            (r"http://store:3900", f"http://127.0.0.1:{self._store_port}"),
            (r"/run/finishline", str(self._folder / "run")),
            (r"/run/secrets", str(self._folder / "secrets")),
            (r"/etc/redis.conf", str(self._folder / "redis.conf")),
            (r"redis-server\b", broker_executable()),
            (r"/app/var", str(self._folder / "var")),
            (r"^8000$", str(self._ports.get(name, 0))),
            (r"^0\.0\.0\.0$", "127.0.0.1"),
            (r"\bpython\b", sys.executable),
            (r"\$\{FINISHLINE_PUBLIC_URL:-\}", self.url),
            (r"\$\{FINISHLINE_EDGE_SUBNET:-.*\}", "127.0.0.1"),
            (r"\$\{\w+:-\}", ""),
            (r"\$\$", "$"),
        ):
            text = re.sub(theirs, lambda _, ours=ours: ours, text)
        return text

    def _service(self, name):
        return self._compose["services"][re.sub(r"-\d$", "", name)]

    def environment(self, name):
        """The environment of a service, on top of this process's; containers differ in name."""
        own = self._service(name).get("environment", {})
        made = os.environ | {key: self.here(value, name=name) for key, value in own.items()}
        if name in WORKERS:
            made |= {"FINISHLINE_WORKER_NAME": name, "FINISHLINE_MEASURE": "off"}
        # A busy machine posts late: the server's clock allows for it.
        return made | {"FINISHLINE_DRAIN_SECONDS": "0", "FINISHLINE_CLOCK_SLACK_SECONDS": "5"}

    def command(self, name):
        """The command of a service: its own, or its image's."""
        service = self._service(name)
        image = self._dockerfile[service.get("build", {}).get("target", "server")]
        command = service.get("entrypoint", []) + (service.get("command") or image_command(image))
        return [self.here(part, name=name) for part in command]

    def start(self, name):
        """Start a service; its output goes to a log in the test's folder."""
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(name),
                env=self.environment(name),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )
        self.processes[name] = process
        return process

    def start_store(self):
        """An S3 store of moto's in the place of the composed one, with its bucket."""
        with (self._folder / "store.log").open("ab") as log:
            self.processes["store"] = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from moto.server import main; main()"),
                    *("-H", "127.0.0.1", "-p", str(self._store_port)),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        address = f"http://127.0.0.1:{self._store_port}"
        self.wait(lambda: asking.get(address, timeout=5).status_code < 500, "the store")
        self.s3().create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "finishline"}
        )

    def s3(self):
        """A client of the store with the credentials that the server has."""
        credentials = dict(re.findall(r"^(\w+) = (\w+)$", self.secret("store_credentials"), re.M))
        address = f"http://127.0.0.1:{self._store_port}"
        return boto3.client("s3", endpoint_url=address, region_name="finishline", **credentials)

    def start_all(self):
        """Start everything in the order that the file asks for; both workers are alive then."""
        self.start("redis")
        migrate = self.start("migrate")
        self.start_store()
        assert migrate.wait(timeout=60) == 0, self.log("migrate")
        for name in SERVERS:
            self.start(name)
        for name in SERVERS:
            self.wait_until_ready(name)
        self.processes["proxy"] = self._proxy.start()
        for name in WORKERS:
            self.start(name)
        self.wait(lambda: self._alive_workers() == len(WORKERS), "two workers to be alive")
        for name in WORKERS:
            self._administer("confirm-worker", name, "--user", "worker")

    def wait_until_ready(self, server):
        """Return once a server says that it is ready."""
        url = f"{self.url_of(server)}/readyz"
        self.wait(lambda: asking.get(url, timeout=5).status_code == 200, f"{server} to be ready")

    def wait(self, condition, what, *, seconds=120):
        """What a condition returns once it is true."""
        return wait_for(condition, seconds=seconds, what=what)

    def _alive_workers(self):
        answer = asking.get(f"{self.url}/api/v1/workers", timeout=5)
        return sum(worker["alive"] for worker in answer.json()["workers"])

    def broker(self, *, password):
        """A connection to the broker."""
        return redis.Redis(port=self._broker_port, password=password, socket_timeout=2)

    def is_training(self, worker):
        """Whether a worker trains at this moment."""
        with suppress(psutil.Error, KeyError):
            return bool(psutil.Process(self.processes[worker].pid).children())
        return False

    def kill(self, name):
        """End a service without a word, as a loss of power does."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(timeout=10)

    def make_token(self, role):
        """A token, made as an operator makes one."""
        return str(json.loads(self._administer("token", "--user", role, "--role", role))["token"])

    def _administer(self, *arguments):
        """What the server's administration prints."""
        said = run_admin(self.environment("server-1"), *arguments)
        assert said.code == 0, said.err
        return said.out

    def log(self, name):
        """What a service has printed."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def stop(self):
        """Stop everything, last started first."""
        for process in reversed(self.processes.values()):
            stop(process)
        self._resources.close()


def image_command(instructions):
    """The command an image runs by default."""
    line = next(line for line in instructions if line.startswith("CMD "))
    return json.loads(line.removeprefix("CMD "))
