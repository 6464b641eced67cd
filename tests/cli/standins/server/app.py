"""An ASGI application that answers what `up --demo` asks."""

import json
import os
from datetime import UTC, datetime
from typing import Any

OUTCOME = os.environ.get("STANDIN_OUTCOME", "verified")
WORKERS: dict[str, dict[str, Any]] = {}
SUBMISSION = {
    "id": "s1", "benchmark": "digits", "division": "closed", "status": "claimed",
    "result": {"tta_display": "0:00:01", "tta_seconds": 0.9, "reached": 1, "started": 1},
}  # fmt: skip
VERIFICATION = {
    "id": "v1", "submission_id": "s1", "state": "queued", "seal": "ab12", "runs_planned": 1,
    "target": {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"},
    "control_points": [{"index": 1, "lower": 90.0, "upper": 99.0}],
}  # fmt: skip
ENDED = VERIFICATION | {
    "state": "done", "outcome": OUTCOME, "reasons": [{"code": "chosen", "message": "By the test."}],
}  # fmt: skip
REPLAY = {"attempt": 1, "run": 0, "kind": "evaluation", "epoch": 1.0, "quality": 98.0}
IS_MEASURED = OUTCOME == "verified"
ROW = {
    "rank": 1 if IS_MEASURED else None, "submission_id": "s1", "status": OUTCOME,
    "submitter": "demo", "evidence": "measured" if IS_MEASURED else "claimed",
    "check": None if IS_MEASURED else "contradicted", "verification_id": "v1",
    "measured_seconds": 1.1, "measured_low_seconds": 1.0, "measured_high_seconds": 1.2,
    "measured_runs": 3, "claimed_seconds": 0.9,
}  # fmt: skip
BOARD = {"entries": [ROW]}
STREAM = "".join(
    f"id: {number}\nevent: {name}\ndata: {json.dumps(document)}\n\n"
    for number, (name, document) in enumerate(
        [("state", VERIFICATION), ("replay", REPLAY), ("end", ENDED)]
    )
)


def answer(method, path, headers):
    """The document for a request, text for a stream, None for nothing there."""
    role = headers.get(b"authorization", b"").decode().removeprefix("Bearer fl_")
    documents = {
        "GET /healthz": {"status": "ok"},
        "GET /api/v1/me": {"user": role, "role": role},
        # As from a server that members alone read.
        "GET /api/v1/workers": {"workers": list(WORKERS.values())} if role == "worker" else None,
        "POST /api/v1/submissions": SUBMISSION if role == "submitter" else None,
        "POST /api/v1/submissions/s1/verifications": VERIFICATION if role == "organiser" else None,
        "GET /api/v1/verifications/v1/events": STREAM,
        "GET /api/v1/leaderboards/digits": BOARD,
    }
    if role == "worker":
        documents |= {f"GET /api/v1/workers/{name}": {"worker": WORKERS[name]} for name in WORKERS}
    return documents.get(f"{method} {path}")


async def app(scope, receive, send):
    """Answer one request."""
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/api/v1/workers/hello":
        name = json.loads(body)["name"]
        now = datetime.now(UTC).isoformat()
        WORKERS[name] = {"name": name, "alive": True, "last_seen_at": now}
    document = answer(scope["method"], scope["path"], dict(scope["headers"]))
    text = document if isinstance(document, str) else json.dumps(document)
    status = 404 if document is None else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})
