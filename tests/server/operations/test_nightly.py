"""Copies of every night: dated, pruned, one at a time, and told of to Prometheus."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.base.broker import Broker
from server.base.errors import ConflictError
from server.operations import copies
from server.operations.backup import back_up, find_backup
from server.operations.copies import last_copy_at, only_one
from server.operations.export import export
from tests.support.services import services_of

FIRST = datetime(2030, 1, 1, 2, 0, tzinfo=UTC)


@pytest.fixture
def settings(settings, tmp_path):
    return settings.model_copy(update={"exports_dir": tmp_path / "exports"})


@pytest.fixture
def clock(monkeypatch):
    """What the time is, one night later each time it is asked for twice."""
    moments = [FIRST + timedelta(days=number // 2) for number in range(30)]
    monkeypatch.setattr(copies, "utc_now", lambda: moments.pop(0))
    return moments


def metric(client, name):
    families = text_string_to_metric_families(client.get("/metrics").text)
    found = {sample.name: sample.value for family in families for sample in family.samples}
    return found.get(f"finishline_{name}")


def test_the_latest_copies_stay(client, digits_submission, submit, settings, clock, monkeypatch):
    monkeypatch.setattr(Broker, "ask", lambda _: None)
    folder = settings.exports_dir
    assert metric(client, "export_last_success_timestamp_seconds") == 0
    folder.mkdir()
    for other in ("notes", "export-20290101T020000Z", ".finishline-x.partial"):
        (folder / other).mkdir()
    submit(digits_submission)
    paths = [export(services_of(client), folder, keep=2)[0] for _ in range(3)]

    names = [path.name for path in paths]
    assert names == [f"export-2030010{day}T020000Z" for day in (1, 2, 3)]
    # A dated folder without a manifest is none of ours to remove.
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock", "export-20290101T020000Z", *names[1:], "notes",
    ]  # fmt: skip
    logs = [sorted(path for path in each.glob("logs/*/*")) for each in paths[1:]]
    assert len(logs[0]) == 4
    assert [path.stat().st_ino for path in logs[0]] == [path.stat().st_ino for path in logs[1]]
    kept = settings.artifacts_dir.glob("??/*")
    assert not {path.stat().st_ino for path in kept} & {path.stat().st_ino for path in logs[0]}
    latest = datetime(2030, 1, 3, 2, tzinfo=UTC).timestamp()
    assert metric(client, "export_last_success_timestamp_seconds") == latest
    assert metric(client, "backup_last_success_timestamp_seconds") is None


def test_a_damaged_log_is_copied_again(client, digits_submission, submit, settings, clock):
    submit(digits_submission)
    first, _ = export(services_of(client), settings.exports_dir)
    damaged = min(first.glob("logs/*/*"))
    content = damaged.read_bytes()
    damaged.write_bytes(b"damaged")
    second, _ = export(services_of(client), settings.exports_dir)
    assert (second / damaged.relative_to(first)).read_bytes() == content


def test_a_failed_copy_removes_none(client, digits_submission, submit, settings, tmp_path, clock):
    folder = tmp_path / "exports"
    submit(digits_submission)
    first, _ = export(services_of(client), folder, keep=1)
    for path in (*settings.artifacts_dir.glob("??/*"), *first.glob("logs/*/*")):
        path.unlink()
    with pytest.raises(ValueError, match="not in the artifact store"):
        export(services_of(client), folder, keep=1)
    assert first.is_dir()
    assert last_copy_at(folder, "export") == FIRST.timestamp()
    assert [path for path in folder.iterdir() if "partial" in path.name] == []


def test_two_do_not_run_at_once(client, tmp_path):
    with only_one(tmp_path), pytest.raises(ConflictError, match="Another"):
        export(services_of(client), tmp_path)


def test_exports_and_backups_of_one_folder_leave_each_other_alone(client, tmp_path, clock):
    services = services_of(client)
    kept, _ = back_up(services, tmp_path)
    for _ in range(2):
        made, _ = export(services, tmp_path, keep=1)
    assert sorted(path.name for path in tmp_path.glob("*-*Z")) == [kept.name, made.name]
    assert find_backup(tmp_path, None) == kept
