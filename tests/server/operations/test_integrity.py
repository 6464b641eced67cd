"""`python -m server.admin check` finds what was lost, changed or left over, and names it."""

import argparse
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text, update

from server.base.artifacts import ArtifactStore
from server.base.models import BenchmarkDefinition, Evidence, SigningKey, Verification
from server.base.settings import Settings
from server.operations import commands
from server.operations.integrity import check_server, look_first
from tests.support.services import services_of

EVERYTHING = argparse.Namespace(command="check", no_files=False, no_proofs=False)


@pytest.fixture
def served(replay: Any, make_report: Callable[..., Any], client: TestClient) -> TestClient:
    """A server with a verified submission."""
    claimed = replay.claim().json()
    assert replay.report(claimed, make_report(replay.seeds())).json()["outcome"] == "verified"
    return client


def test_a_server_as_it_should_be_has_no_fault(
    served: TestClient, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = settings.artifacts_dir / "ab" / ("ab" * 32)
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_bytes(b"its row comes in a moment")
    assert commands.run_command(services_of(served), EVERYTHING) == 0
    answer = capsys.readouterr().out
    assert '"files": 4, "proofs": 1' in answer
    assert '"faults": 0, "orphans": 0' in answer


def test_files_that_are_lost_changed_or_left_over_are_named(
    served: TestClient, replay: Any, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = served.get(f"/api/v1/submissions/{replay.submission_id}").json()["runs"]
    lost, changed = (settings.artifacts_dir / each["log_sha256"][:2] / each["log_sha256"]
                     for each in runs[:2])  # fmt: skip
    lost.unlink()
    changed.write_bytes(changed.read_bytes() + b" ")
    orphan = settings.artifacts_dir / "ff" / ("ff" * 32)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"nobody's")
    os.utime(orphan, (1e9, 1e9))

    findings = check_server(services_of(served), files=True, proofs=False)
    submission = f"named by submission {replay.submission_id} as"
    faults = {fault.split(":")[0]: fault for fault in findings.faults}
    assert faults.keys() == {lost.name, changed.name}
    assert "cannot be read" in faults[lost.name]
    assert faults[lost.name].endswith(f"{submission} run_0.log")
    assert "its content has hash" in faults[changed.name]
    assert faults[changed.name].endswith(f"{submission} run_1.log")
    assert findings.orphans == [f"{orphan.name}: no row names this file"]
    assert commands.run_command(services_of(served), EVERYTHING) == 1
    assert f"fault: {lost.name}" in capsys.readouterr().err


def test_a_folder_without_any_of_the_logs_is_named_before_a_key_is_made(
    served: TestClient, tmp_path: Path
) -> None:
    services = services_of(served)
    elsewhere = dataclasses.replace(services, artifacts=ArtifactStore(tmp_path / "elsewhere"))
    for command in ("check", "export", "backup"):
        with pytest.raises(RuntimeError, match=r"elsewhere: is FINISHLINE_ARTIFACTS_DIR"):
            look_first(elsewhere, argparse.Namespace(command=command))
        look_first(services, argparse.Namespace(command=command))
    look_first(elsewhere, argparse.Namespace(command="export", keep_missing=True))
    look_first(elsewhere, argparse.Namespace(command="restore"))


def test_what_was_changed_in_the_database_is_named(served: TestClient, replay: Any) -> None:
    services = services_of(served)
    check_server(services, files=False, proofs=False)  # The key is listed from here on.
    with services.database.write() as session:
        session.execute(text("DROP TRIGGER audit_log_refuses_update"))
        session.execute(text("UPDATE audit_log SET reason = 'another' WHERE id = 1"))
        session.execute(update(SigningKey).values(public_key="ab" * 32))
        session.execute(update(BenchmarkDefinition).values(content="title = 'changed'"))
    faults = check_server(services, files=False, proofs=False).faults
    assert [fault.split(":")[0].split(" ")[0] for fault in faults] == [
        "audit", "signing", "definition",
    ]  # fmt: skip
    assert "record 1.sha256" in faults[0]


def test_a_proof_that_does_not_hold_is_named(served: TestClient, replay: Any) -> None:
    services = services_of(served)
    with services.database.write() as session:
        evidence = session.get_one(Evidence, replay.verification_id)
        changed = dict(evidence.submission)
        changed["result"] = changed["result"] | {"tta_seconds": 0.001}
        evidence.submission = changed
        session.execute(update(Verification).values(nonce="ab" * 16))
    faults = check_server(services, files=False, proofs=True).faults
    assert faults
    assert {fault.split(",")[0] for fault in faults} == {f"proof of {replay.verification_id}"}
    assert {"score", "seal"} <= {fault.split(", ")[1].split(":")[0] for fault in faults}
