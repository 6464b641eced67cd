"""What is told of a submission's way to its verdict, to whom, and that nothing else is."""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from rules.measurements import Canary, WorkerProbe
from server.database import Database, utc_now
from server.models import Delivery, NoticeEvent
from server.notices.spread import RECORD_WAIT
from server.verifications.overdue import expire_leases


def test_a_submission_tells_its_owner_of_each_step(
    hooks: Any,
    receiver: Any,
    alice: Any,
    bob: Any,
    replay: Any,
    make_report: Callable[..., Any],
    make_receiver: Callable[[], Any],
) -> None:
    others = make_receiver()
    hooks.make(alice, receiver.url)
    hooks.make(bob, others.url)
    grant = replay.claim().json()
    replay.report(grant, make_report(replay.seeds()))
    hooks.run(lambda: len(receiver.posts) == 3)

    assert receiver.kinds == ["verification.started", "verification.done", "submission.verified"]
    told = receiver.posts[2].event["data"]
    assert told["submission"]["id"] == replay.submission_id
    assert told["submission"]["status"] == "verified"
    assert told["submission"]["tta_seconds"] == pytest.approx(0.9, abs=0.2)
    assert told["links"]["api"] == f"/api/v1/submissions/{replay.submission_id}"
    started = receiver.posts[0].event["data"]
    assert started["attempt"] == {"number": 1, "worker": "walter-1"}
    assert started["verification"]["id"] == replay.verification_id
    assert others.posts == []
