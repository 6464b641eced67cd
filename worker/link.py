"""The worker's side of the server's HTTP API: its posts, and the hellos between them."""

import logging
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2
import orjson
from pydantic import TypeAdapter

from finishline.client.transport import (
    API,
    NEVER,
    TIMEOUT,
    FinishlineError,
    NotAllowed,
    NotSignedIn,
    Retries,
    Transport,
    is_temporary,
)
from finishline.periodic import PeriodicThread
from finishline.rules.measurements import ProbeAnswer, WorkerProbe
from finishline.rules.verification.messages import (
    FENCE_HEADER,
    WORKER_PROTOCOL,
    BatchAnswer,
    BoxWord,
    ClaimRequest,
    EvaluationBatch,
    HelloAnswer,
    Lease,
    NextAttempt,
    ReplayReport,
    TrainingGrant,
    WorkerHello,
    WorkerSystem,
)
from worker.state import WorkerState, end_process

HELLO_SECONDS = 5.0
REQUEST_TIMEOUT = httpx2.Timeout(5.0)
CLAIM_RETRY_SECONDS = 30.0
PROBE_RETRY_SECONDS = 10.0
REPORT_RETRY_LEASES = 10.0
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
SERVER_FAULTS = range(500, 600)

NO_BOX = BoxWord()
_Message = TypeVar("_Message")
_Answer = TypeVar("_Answer")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TimedRetries:
    """Retries a request for some seconds, with pauses from 0.1 s doubling to 2 s."""

    seconds: float
    pause: Callable[[float], None] = time.sleep

    def attempt(self, request: Callable[[], _Answer]) -> _Answer:
        """Call `request` until it succeeds or time is up. Raises the last failure."""
        give_up_at = time.monotonic() + self.seconds
        wait_seconds = FIRST_WAIT_SECONDS
        while True:
            try:
                return request()
            except FinishlineError as error:
                left_seconds = give_up_at - time.monotonic()
                if not is_temporary(error, SERVER_FAULTS) or wait_seconds > left_seconds:
                    raise
                # As long as the server asks, with time for one more try.
                asked_seconds = min(error.retry_after_seconds or 0.0, left_seconds / 2)
                pause_seconds = max(wait_seconds, asked_seconds)
                log.warning("%s Trying again in %.1f s.", error.detail, pause_seconds)
            self.pause(pause_seconds)
            wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)


class Exchange(Transport):
    """Connections that exchange content, each with its lease's headers."""

    def exchange(
        self,
        path: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str],
        retries: Retries | TimedRetries,
        timeout: httpx2.Timeout = TIMEOUT,
    ) -> bytes:
        """Return the content at an API path, or the answer to posted JSON text."""
        method, request = "GET", dict[str, Any](headers=dict(headers))
        if content is not None:
            method, request = "POST", {"content": content, "timeout": timeout}
            request["headers"] = {"Content-Type": "application/json"} | dict(headers)
        return retries.attempt(lambda: self._request(method, API + path, **request).content)


class WorkerLink:
    """Posts of one worker. It retries connection errors, 429 and 5xx.

    Raises FinishlineError: Conflict if the attempt belongs to another worker now, NotSignedIn or
    NotAllowed if the server refuses its token. `pause` sleeps between tries.
    """

    def __init__(
        self,
        server_url: str,
        *,
        token: str,
        transport: httpx2.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Exchange(server_url, token, timeout=REQUEST_TIMEOUT, transport=transport)
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def hello(self, hello: WorkerHello) -> HelloAnswer:
        """Say that this worker is alive. One try, as the next hello follows in a few seconds."""
        return decode(self._post("/workers/hello", hello), HelloAnswer)

    def probe(self, probe: WorkerProbe) -> ProbeAnswer:
        """Send this worker's own measurements. Return the server's answer to its canary."""
        content = self._post("/workers/probes", probe, retry_seconds=PROBE_RETRY_SECONDS)
        return decode(content, ProbeAnswer)

    def next(self, name: str, *, wait_seconds: float) -> str | None:
        """Wait for this worker's next attempt, None if the wait is over. One try."""
        path = f"/workers/{quote(name, safe='')}/next?wait={wait_seconds:.1f}"
        content = self._post(path, {}, timeout=httpx2.Timeout(5.0, read=wait_seconds + 10.0))
        return decode(content, NextAttempt).attempt_id if content else None

    def claim(self, attempt_id: str, worker: str) -> Lease:
        """Lease an attempt. Raises Conflict if it is taken, over or cancelled."""
        path = f"/attempts/{quote(attempt_id, safe='')}/claim"
        request = ClaimRequest(worker, WORKER_PROTOCOL)
        return decode(self._post(path, request, retry_seconds=CLAIM_RETRY_SECONDS), Lease)

    def post_events(
        self, lease: Lease, batch: EvaluationBatch, *, once: bool = False
    ) -> BatchAnswer:
        """Send events and renew the lease: one try, or until the lease has run out."""
        path = f"/attempts/{lease.attempt_id}/evaluations"
        seconds = None if once else lease.lease_seconds
        return decode(self._post(path, batch, retry_seconds=seconds, lease=lease), BatchAnswer)

    def report(self, lease: Lease, report: ReplayReport) -> None:
        """Upload the report. The server treats a second copy as the first one."""
        seconds = REPORT_RETRY_LEASES * lease.lease_seconds
        path = f"/attempts/{lease.attempt_id}/report"
        self._post(path, report, retry_seconds=seconds, lease=lease)

    def training(self, lease: Lease) -> TrainingGrant:
        """Fetch the code submissions and limits of an attempt."""
        content = self._get(f"/attempts/{lease.attempt_id}/training", lease)
        return decode(content, TrainingGrant)

    def task_file(self, lease: Lease, name: str) -> bytes:
        return self._get(f"/attempts/{lease.attempt_id}/task/{quote(name)}", lease)

    def _get(self, path: str, lease: Lease) -> bytes:
        return self._transport.exchange(
            path, headers=_headers(lease), retries=TimedRetries(lease.lease_seconds, self._pause)
        )

    def _post(
        self,
        path: str,
        message: object,
        *,
        retry_seconds: float | None = None,
        lease: Lease | None = None,
        timeout: httpx2.Timeout = REQUEST_TIMEOUT,
    ) -> bytes:
        """Post with the token of this worker, and with a lease's fence."""
        headers = {} if lease is None else _headers(lease)
        retries = NEVER if retry_seconds is None else TimedRetries(retry_seconds, self._pause)
        try:
            return self._transport.exchange(
                path, orjson.dumps(message), headers=headers, retries=retries, timeout=timeout
            )
        except FinishlineError as error:
            if error.status is not None and retry_seconds is not None:  # Else once, and often.
                log.info("%s: the server answered %d", path, error.status)
            raise


def _headers(lease: Lease) -> dict[str, str]:
    return {"Authorization": f"Bearer {lease.token}", FENCE_HEADER: str(lease.fence)}


def decode(content: bytes, kind: type[_Message]) -> _Message:
    """Read a message from JSON. Raises pydantic's ValidationError naming the field."""
    return TypeAdapter(kind).validate_json(content)


@dataclass(eq=False)
class HelloThread:
    """Says hello at the start, every five seconds, on request, and when the worker stops.

    If the server refuses the token or the protocol, `end` ends the process. The first hello is over
    when this is entered, and then the caller ends the process.

    An unreachable server is logged when it goes and when it is back.
    """

    server: WorkerLink
    system: WorkerSystem
    state: WorkerState
    box: BoxWord = NO_BOX
    polls: bool = False
    every_seconds: float = HELLO_SECONDS
    end: Callable[[], object] = end_process

    def __post_init__(self) -> None:
        self._heard, self._paused, self._unconfirmed = True, False, False
        self._thread = PeriodicThread("hello", self.every_seconds, self._say_again, last_step=True)

    def __enter__(self) -> Self:
        self._say()
        if self.state.refused is None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.state.stopping = True
        self._thread.stop()

    def say_soon(self) -> None:
        """Say hello at once, in the thread of this class: the worker has become free."""
        self._thread.wake()

    def _say_again(self) -> None:
        self._say()
        if self.state.refused is not None and not self._thread.is_stopping:
            self._thread.end()
            self.end()

    def _say(self) -> None:
        word = self.state.word()
        hello = WorkerHello(self.system, word, self.box, self.polls, WORKER_PROTOCOL)
        try:
            answer = self.server.hello(hello)
        except (FinishlineError, ValueError) as error:
            ends = f"{str(error).rstrip('.')}. This worker ends"
            if isinstance(error, NotSignedIn | NotAllowed):
                self.state.refused = (
                    f"{ends}; give it a token of role worker in FINISHLINE_WORKER_TOKEN or "
                    "FINISHLINE_WORKER_TOKEN_FILE."
                )
            elif isinstance(error, FinishlineError) and error.status in (422, 426):
                self.state.refused = f"{ends}."
            if self.state.refused is not None:
                log.error(self.state.refused)
                return
            if self._heard:
                log.warning("the sign-on was not heard: %s", error)
            self._heard = False
            return
        if not self._heard:
            log.info("the server hears this worker again")
        self._heard = True
        self._follow(answer)

    def _follow(self, answer: HelloAnswer) -> None:
        paused = answer.order == "pause"
        if paused != self._paused:
            log.info("asked to %s%s", answer.order, f": {answer.why}" if answer.why else "")
        self._paused = paused
        self.state.roof_wanted = answer.roof_wanted
        if answer.unconfirmed != self._unconfirmed:
            log.info(
                "this worker is unconfirmed and is sent nothing; an organiser confirms it with "
                f"`finishline admin worker set {shlex.quote(self.system.worker)} confirm`"
                if answer.unconfirmed
                else "an organiser confirmed this worker: it is sent attempts"
            )
        self._unconfirmed = answer.unconfirmed
