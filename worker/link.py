"""The worker's side of the server's HTTP API: retry safe requests, raise for others."""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpx2

from finishline.rules.scoring.measurements import ProbeAnswer, WorkerProbe
from finishline.rules.verification.messages import (
    FENCE_HEADER,
    BatchAnswer,
    ClaimRequest,
    EvaluationBatch,
    HelloAnswer,
    Lease,
    ReplayReport,
    WorkerHello,
)
from worker.wire import decode, encode

log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0
CLAIM_PATIENCE_SECONDS = 30.0
PROBE_PATIENCE_SECONDS = 10.0
REPORT_PATIENCE_LEASES = 10.0
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0


class RefusedError(Exception):
    """The server answered, and the answer is no: trying again would not change it."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(f"the server answered {status}: {detail}")


class FencedOffError(RefusedError):
    """The attempt is not this worker's any more, or never was (409)."""


class TokenRefusedError(RefusedError):
    """The server does not take this worker's token (401), or not for this name (403)."""


REFUSALS = {401: TokenRefusedError, 403: TokenRefusedError, 409: FencedOffError}


class UnreachableError(Exception):
    """The server did not answer in time, however often it was asked.

    `asked_seconds` is how long the server asks to wait before the next try, 0 if it does not.
    """

    def __init__(self, message: str, *, asked_seconds: float = 0.0) -> None:
        self.asked_seconds = asked_seconds
        super().__init__(message)


class ServerClient:
    """Posts of one worker. Connection errors, 429 and 5xx are tried again, other answers are not.

    `wait` sleeps between tries.
    """

    def __init__(
        self,
        server_url: str,
        *,
        token: str,
        transport: httpx2.BaseTransport | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._token = token
        self._wait = wait
        self._http = httpx2.Client(
            base_url=f"{server_url}/api/v1/", timeout=REQUEST_SECONDS, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def hello(self, hello: WorkerHello) -> HelloAnswer:
        """Say that this worker is alive: one try, the next hello is a few seconds away."""
        content = self._post("workers/hello", encode(hello), token=self._token)
        # A server of the version before has no orders.
        return decode(content, HelloAnswer) if content else HelloAnswer()

    def probe(self, probe: WorkerProbe) -> ProbeAnswer:
        """Send this worker's own measurements; return the server's answer to its canary."""
        content = self._retry(
            "workers/probes",
            encode(probe),
            token=self._token,
            patience_seconds=PROBE_PATIENCE_SECONDS,
        )
        return decode(content, ProbeAnswer)

    def claim(self, attempt_id: str, request: ClaimRequest) -> Lease:
        """Take an attempt. Raises FencedOffError if it is taken, over or cancelled."""
        content = self._retry(
            f"attempts/{attempt_id}/claim",
            encode(request),
            token=self._token,
            patience_seconds=CLAIM_PATIENCE_SECONDS,
        )
        return decode(content, Lease)

    def post_events(self, grant: Lease, batch: EvaluationBatch) -> BatchAnswer:
        """Send events and renew the lease; gives up when the lease has run out."""
        content = self._retry(
            f"attempts/{grant.attempt_id}/evaluations",
            encode(batch),
            token=grant.token,
            fence=grant.fence,
            patience_seconds=grant.lease_seconds,
        )
        return decode(content, BatchAnswer)

    def report(self, grant: Lease, report: ReplayReport) -> None:
        """Upload the report; the server treats a second copy as the first one."""
        self._retry(
            f"attempts/{grant.attempt_id}/report",
            encode(report),
            token=grant.token,
            fence=grant.fence,
            patience_seconds=REPORT_PATIENCE_LEASES * grant.lease_seconds,
        )

    def _retry(
        self,
        path: str,
        content: bytes,
        *,
        token: str,
        patience_seconds: float,
        fence: int | None = None,
    ) -> bytes:
        give_up_at = time.monotonic() + patience_seconds
        wait_seconds = FIRST_WAIT_SECONDS
        while True:
            try:
                return self._post(path, content, token=token, fence=fence)
            except UnreachableError as error:
                left_seconds = give_up_at - time.monotonic()
                if wait_seconds > left_seconds:
                    raise
                # As long as the server asks, but not so long that no try is left.
                pause_seconds = max(wait_seconds, min(error.asked_seconds, left_seconds / 2))
                log.warning("%s; asking again in %.1f s", error, pause_seconds)
            self._wait(pause_seconds)
            wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)

    def _post(self, path: str, content: bytes, *, token: str, fence: int | None = None) -> bytes:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        if fence is not None:
            headers[FENCE_HEADER] = str(fence)
        try:
            answer = self._http.post(path, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise UnreachableError(f"{path}: the server cannot be reached ({error})") from error
        if answer.is_success:
            return answer.content
        if answer.status_code == 429 or answer.status_code >= 500:
            raise UnreachableError(
                f"{path}: the server answered {answer.status_code}",
                asked_seconds=_asked_seconds(answer),
            )
        refusal = REFUSALS.get(answer.status_code, RefusedError)
        raise refusal(answer.status_code, _detail(answer))


def _asked_seconds(answer: httpx2.Response) -> float:
    """The Retry-After of an answer, 0 if it has none in seconds."""
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _detail(answer: httpx2.Response) -> str:
    try:
        problem = answer.json()
    except ValueError:
        return answer.text[:200]
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return str(detail or problem)[:1_000]
