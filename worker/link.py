"""The worker's side of the server's HTTP API: retry safe requests, raise for others."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpx2

from finishline.client.transport import NEVER, Patience, Retries, Transport
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

REQUEST_TIMEOUT = httpx2.Timeout(5.0)
CLAIM_PATIENCE_SECONDS = 30.0
PROBE_PATIENCE_SECONDS = 10.0
REPORT_PATIENCE_LEASES = 10.0


class WorkerLink:
    """Posts of one worker. Connection errors, 429 and 5xx are tried again, other answers are not.

    Raises FinishlineError: Conflict where an attempt is not this worker's any more, NotSignedIn or
    NotAllowed where the server does not take its token. `pause` sleeps between tries.
    """

    def __init__(
        self,
        server_url: str,
        *,
        token: str,
        transport: httpx2.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Transport(server_url, token, timeout=REQUEST_TIMEOUT, transport=transport)
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transport.close()

    def hello(self, hello: WorkerHello) -> HelloAnswer:
        """Say that this worker is alive: one try, the next hello is a few seconds away."""
        content = self._post("/workers/hello", encode(hello), retries=NEVER)
        # A server of the version before has no orders.
        return decode(content, HelloAnswer) if content else HelloAnswer()

    def probe(self, probe: WorkerProbe) -> ProbeAnswer:
        """Send this worker's own measurements; return the server's answer to its canary."""
        content = self._post(
            "/workers/probes",
            encode(probe),
            retries=Patience(PROBE_PATIENCE_SECONDS, self._pause),
        )
        return decode(content, ProbeAnswer)

    def claim(self, attempt_id: str, request: ClaimRequest) -> Lease:
        """Take an attempt. Raises Conflict if it is taken, over or cancelled."""
        content = self._post(
            f"/attempts/{attempt_id}/claim",
            encode(request),
            retries=Patience(CLAIM_PATIENCE_SECONDS, self._pause),
        )
        return decode(content, Lease)

    def post_events(self, lease: Lease, batch: EvaluationBatch) -> BatchAnswer:
        """Send events and renew the lease; gives up when the lease has run out."""
        content = self._post(
            f"/attempts/{lease.attempt_id}/evaluations",
            encode(batch),
            lease=lease,
            retries=Patience(lease.lease_seconds, self._pause),
        )
        return decode(content, BatchAnswer)

    def report(self, lease: Lease, report: ReplayReport) -> None:
        """Upload the report; the server treats a second copy as the first one."""
        self._post(
            f"/attempts/{lease.attempt_id}/report",
            encode(report),
            lease=lease,
            retries=Patience(REPORT_PATIENCE_LEASES * lease.lease_seconds, self._pause),
        )

    def _post(
        self,
        path: str,
        content: bytes,
        *,
        retries: Retries | Patience,
        lease: Lease | None = None,
    ) -> bytes:
        """Post with the token of this worker, or with that and the fence of a lease."""
        headers = {}
        if lease is not None:
            headers = {"Authorization": f"Bearer {lease.token}", FENCE_HEADER: str(lease.fence)}
        return self._transport.post_bytes(path, content, headers=headers, retries=retries)
