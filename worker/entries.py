"""Train the code submissions of an attempt: fetch the grant, start the task, run by run."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from finishline.client.transport import FinishlineError
from finishline.devices import CARD_NAMES, accelerators_of, find_devices
from finishline.package_folder import package_folder
from finishline.places import find_folder, installed_server
from finishline.rules.run import Ledger
from finishline.rules.verification.messages import (
    BoxWord,
    Lease,
    PackageContent,
    ReplayEvaluation,
    ReplayJob,
    ReplayRun,
    TrainingGrant,
)
from worker.child_process import Host
from worker.failures import entry_failure, failure
from worker.link import WorkerLink
from worker.outbox import Announcer, StopReason
from worker.sandbox.course import Ask, RaceResult
from worker.sandbox.order import BoxUnavailableError, Order, installed_environments
from worker.sandbox.packages import PackageMissingError
from worker.sandbox.protocol import Limits
from worker.sandbox.start import check_box
from worker.sandbox.task import TaskBox, TaskError, task_module


def box_word(*, host: Host, off: str | None = None) -> BoxWord:
    """Test the sandbox: whose code this host trains, and in which environments. `off` skips it."""
    if off is not None:
        return BoxWord("off", off)
    word = check_box(host.box)
    if word.entries == "off":
        return word
    environments = installed_environments(compiler=host.has_compiler)
    found = {name: each.sha256 for name, each in environments.items()}
    return replace(word, environments=found)


@dataclass(frozen=True)
class Entries:
    """The code submissions of an attempt, with their orders and a running task."""

    job: ReplayJob
    grant: TrainingGrant
    orders: Mapping[str, Order]
    task: TaskBox

    def train(
        self, index: int, *, announcer: Announcer, stop: Callable[[], StopReason | None]
    ) -> ReplayRun:
        """Train run `index` in its own sandbox, and leave no process. A failure is a value."""
        training = self.job.trainings[index]
        announcer.announce(index, "run_started")
        factors = {
            name: bool(training.settings.get(name, usual))
            for name, usual in self.grant.packages[training.package].factors.items()
        }
        try:
            result = self.task.train(
                self.orders[training.package],
                nonce=bytes.fromhex(training.data_nonce or ""),
                seed=training.seed,
                benchmark_id=self.job.benchmark_id,
                target=self.job.target,
                factors=factors,
                control=training.is_control,
                on_start=lambda ledger: announcer.announce(
                    index, "phase", phase="train", seconds=0.0, ledger=asdict(ledger)
                ),
                on_ask=lambda ask: announcer.announce(
                    index, "evaluation", **asdict(evaluation_of(ask))
                ),
                stop=lambda: stop() is not None,
            )
        except (BoxUnavailableError, TaskError, PackageMissingError) as error:
            result = RaceResult("failed", (), Ledger(), code="box_unavailable", message=str(error))
        run = run_of(result, index=index, seed=training.seed, reason=stop())
        announcer.announce(
            index,
            "run_finished",
            status=run.status,
            seconds=result.seconds,
            ledger=run.ledger,
            failure=run.failure,
        )
        return run


def evaluation_of(ask: Ask) -> ReplayEvaluation:
    return ReplayEvaluation(
        epoch=float(ask.number),
        samples=None,
        seconds=ask.seconds,
        quality=ask.quality,
        ledger=asdict(ask.ledger),
        second_half=ask.second_half,
        predictions_sha256=ask.predictions_sha256,
    )


def run_of(result: RaceResult, *, index: int, seed: int, reason: StopReason | None) -> ReplayRun:
    """Report a run in a sandbox. `reason` says why the worker gave up, if it did."""
    status, why = result.status, None
    if status == "failed":
        why = entry_failure(result.code, result.message or "")
    elif status == "cancelled" and reason in ("worker_stopped", "time_limit"):
        status = "failed"
        if reason == "time_limit":
            why = failure("run_time_limit", "the run was stopped at the server's time limit")
        else:
            why = failure("worker_stopped", "the worker got a request to stop")
    ledger = result.ledger
    span = ledger.total() - ledger.init - ledger.compile - ledger.warmup
    return ReplayRun(
        index=index,
        seed=seed,
        status=status,
        evaluations=[evaluation_of(ask) for ask in result.asks],
        ledger=asdict(result.ledger),
        tta_seconds=result.seconds if status == "reached" else None,
        parent_seconds=span or None,
        processor_share=result.processor_share,
        failure=why,
        log_tail=result.log_tail,
    )


@contextmanager
def open_entries(lease: Lease, server: WorkerLink, *, host: Host) -> Iterator[Entries]:
    """Fetch the code submissions and the task of an attempt, and start the task.

    Raises BoxUnavailableError if this host cannot train them, FinishlineError if the server refuses
    them.
    """
    grant = server.training(lease)
    with ExitStack() as stack:
        orders = {}
        for name, content in grant.packages.items():
            package = {path: text.encode() for path, text in content.files.items()}
            folder = stack.enter_context(package_folder(package))
            orders[name] = _order(content, grant, folder, host)
        files = {
            name: _task_file(server, lease, name, sha256)
            for name, sha256 in grant.task_files.items()
        }
        folder = stack.enter_context(package_folder(files))
        try:
            module = task_module(folder, lease.job.benchmark_id, host.data_dir)
            task = stack.enter_context(TaskBox(module, backend=host.box))
        except (TaskError, PackageMissingError) as error:
            raise BoxUnavailableError(str(error)) from error
        yield Entries(lease.job, grant, orders, task)


def gpus_of(host: Host) -> tuple[str, ...]:
    """Return the UUID of the GPU of a host's containers. Only containers with NVIDIA's have one.

    A number would count all GPUs of the host, but a device counts the GPUs of a variable.
    """
    if host.box != "oci" or not host.device.startswith("cuda"):
        return ()
    found = accelerators_of(host.device, find_devices().accelerators)[:1]
    return tuple(each.uuid for each in found if each.uuid.startswith(CARD_NAMES))


def _order(content: PackageContent, grant: TrainingGrant, folder: Path, host: Host) -> Order:
    """Build an order. Raises BoxUnavailableError if exactly this environment is not here."""
    environment = installed_environments(compiler=host.has_compiler).get(content.environment)
    if environment is None or environment.sha256 != content.environment_sha256:
        raise BoxUnavailableError(f"environment {content.environment} is another one on this host")
    return environment.order(
        folder,
        module=content.module,
        limits=Limits.of_submission(grant, run_seconds=grant.run_seconds),
        backend=host.box,
        gpus=gpus_of(host),
    )


def _task_file(server: WorkerLink, lease: Lease, name: str, sha256: str) -> bytes:
    """Read a file of the task: shipped with this worker, else fetched and checked."""
    installed = installed_server()
    if installed is not None:
        path = find_folder(installed, "benchmarks") / lease.job.benchmark_id / name
        content = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
    content = server.task_file(lease, name)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise FinishlineError(f"The server sent another {name} than the benchmark names.")
    return content
