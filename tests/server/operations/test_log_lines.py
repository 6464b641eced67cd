"""Log lines for people and as JSON, without secrets."""

import json
import logging
from contextvars import copy_context
from datetime import datetime, timedelta
from io import StringIO

import pytest

from server.base.database import Database, utc_now
from server.base.http import (
    CURRENT,
    FORMATTERS,
    RequestContext,
    configure_logging,
    current,
    is_first_telling,
)
from server.verifications.sweep import expire_leases

LOGGERS = ("server", "finishline", "web", "uvicorn", "uvicorn.error", "uvicorn.access", "celery")


@pytest.fixture
def written():
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTERS["json"]())
    logger = logging.getLogger("server")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(before)


def lines_of(lines, logger):
    return [line for line in lines if line["logger"] == logger]


def test_a_request_leaves_one_line_with_its_figures_and_no_secret(client, alice, written):
    address = "/api/v1/me?token=hidden-in-a-query"
    answer = client.get(address, headers=alice.headers | {"X-Request-ID": "abc-1.2_3"})
    (line,) = lines_of(written(), "server.access")

    assert answer.headers["X-Request-ID"] == "abc-1.2_3"
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)
    figures = (line["level"], line["message"], line["method"], line["route"], line["status"])
    assert figures == ("info", "GET /api/v1/me 200", "GET", "/api/v1/me", 200)
    assert line["bytes"] == len(answer.content)
    assert 0 < line["seconds"] < 60
    assert (line["request_id"], line["user_id"]) == ("abc-1.2_3", 1)
    everything = json.dumps(written())
    assert alice.secret not in everything
    assert "hidden-in-a-query" not in everything


def test_ids_of_what_it_is_about_are_in_every_line(replay, written, database):
    grant = replay.claim().json()
    *_, claim = lines_of(written(), "server.access")
    assert claim["attempt_id"] == grant["attempt_id"]
    assert claim["route"] == "/api/v1/attempts/{attempt_id}/claim"

    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(hours=1))
    expire_leases(database)
    (lost,) = lines_of(written(), "server.verifications.sweep")
    named = [lost[name] for name in ("attempt_id", "verification_id", "submission_id")]
    assert named == [grant["attempt_id"], replay.verification_id, replay.submission_id]
    assert "walter-1 went silent" in lost["message"]


def test_line_names_what_a_request_made(digits_submission, submit, client, olivia, written):
    submission_id = submit(digits_submission).json()["id"]
    asked = f"/api/v1/submissions/{submission_id}/verifications"
    verification_id = client.post(asked, headers=olivia.headers).json()["id"]
    lines = lines_of(written(), "server.access")

    named = [(line["submission_id"], line.get("verification_id")) for line in lines]
    assert named == [(submission_id, None), (submission_id, verification_id)]


def test_an_id_that_may_not_stand_in_a_log_is_replaced(client, written):
    sent = ["a" * 129, "a b", "a\tb", 'a"b', "é", ""]
    ids = [
        client.get("/api/v1/submissions/x%0Ay", headers={"X-Request-ID": wanted.encode("latin-1")})
        for wanted in sent
    ]
    given = [answer.headers["X-Request-ID"] for answer in ids]

    assert len(set(given)) == len(sent)
    assert set(given).isdisjoint(sent)
    assert [answer.json()["request_id"] for answer in ids] == given
    lines = lines_of(written(), "server.access")
    assert [line["request_id"] for line in lines] == given
    assert not any("submission_id" in line for line in lines)


def test_lines_of_a_failure_and_of_its_request_share_an_id(client, monkeypatch, written):
    def broken(_, *_viewer):
        raise ZeroDivisionError("by nought")

    client._transport.raise_server_exceptions = False
    monkeypatch.setattr(Database, "read", broken)
    answer = client.get("/api/v1/workers")
    (unforeseen,) = lines_of(written(), "server.base.error_answers")
    (access,) = lines_of(written(), "server.access")

    assert "ZeroDivisionError: by nought" in unforeseen["exception"]
    assert unforeseen["request_id"] == access["request_id"] == answer.headers["X-Request-ID"]
    assert access["status"] == 500
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = client.get("/workers", headers={"Accept": "text/html"})
    assert (page.status_code, "Content-Security-Policy" in page.headers) == (500, True)


def test_probes_that_went_well_are_quiet(client, written):
    client.get("/healthz")
    assert lines_of(written(), "server.access") == []
    client.post("/healthz")
    assert [line["status"] for line in lines_of(written(), "server.access")] == [405]


def test_a_text_line_is_one_line_and_a_traceback_follows():
    said = {"msg": "a\nforged line", "levelname": "WARNING", "levelno": logging.WARNING}
    record = logging.makeLogRecord(said | {"name": "server.base.errors", "attempt_id": "a1"})
    CURRENT.set(None)
    text = FORMATTERS["text"]().format(record)

    assert text.endswith("WARNING server.base.errors a\\nforged line [attempt_id=a1]")
    record.exc_info = (ZeroDivisionError, ZeroDivisionError("by nought"), None)
    lines = FORMATTERS["text"]().format(record).splitlines()
    assert lines[0].endswith("[attempt_id=a1]")
    assert lines[-1] == "ZeroDivisionError: by nought"


def test_the_settings_choose_format_and_level(settings, capsys):
    root = logging.getLogger()
    kept = {name: logging.getLogger(name) for name in LOGGERS}
    before = [(each, each.level, each.propagate, each.handlers[:]) for each in kept.values()]
    root_before = (root.level, root.handlers[:])
    filters = len(kept["uvicorn.error"].filters)
    try:
        configure_logging(settings.model_copy(update={"log_format": "json", "log_level": "debug"}))
        kept["server"].debug("ours")
        kept["celery"].debug("theirs")
        kept["celery"].info("theirs, worth a line")
        kept["uvicorn.error"].setLevel(logging.INFO)  # A server of tests changes it.
        copy_context().run(fail_and_tell, kept["uvicorn.error"])
        assert not kept["uvicorn.access"].hasHandlers()
        configure_logging(settings.model_copy(update={"log_level": "error"}))
        kept["server"].warning("unimportant")
        kept["server"].error("important")
    finally:
        root.setLevel(root_before[0])
        root.handlers[:] = root_before[1]
        for each, level, propagate, handlers in before:
            each.setLevel(level)
            each.propagate = propagate
            each.handlers[:] = handlers
        kept["uvicorn.error"].removeFilter(is_first_telling)
    *parsed, text = capsys.readouterr().err.splitlines()

    *lines, untold = [json.loads(line) for line in parsed]
    assert [line["message"] for line in lines] == ["ours", "theirs, worth a line"]
    assert untold["message"] == "a traceback that no line has"
    assert len(kept["uvicorn.error"].filters) == filters
    assert text.endswith("ERROR server important")


def fail_and_tell(logger):
    """A request that fails: its traceback is written, and then once more by who runs the server."""
    CURRENT.set(RequestContext({"type": "http", "headers": []}))
    failure = (ZeroDivisionError, ZeroDivisionError("by nought"), None)
    logger.error("a traceback that no line has", exc_info=failure)
    current().is_told = True
    logger.error("a traceback that our line has", exc_info=failure)
