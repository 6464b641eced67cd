"""A worker's log lines name the attempt under way."""

import json
import logging
from dataclasses import asdict

from finishline.rules.verification.messages import REPLAY_TASK
from worker.app import make_app
from worker.intake import WorkerState
from worker.logs import FORMATTERS, attempt_in_logs


def line(formatter, message="two\nlines"):
    record = logging.LogRecord("worker.outbox", logging.INFO, __file__, 1, message, (), None)
    return formatter.format(record)


def test_lines_name_the_attempt_until_it_is_over(make_job):
    formatter = FORMATTERS["json"]()
    job = make_job()
    with attempt_in_logs(job):
        inside = json.loads(line(formatter))
    outside = json.loads(line(formatter))

    assert (inside["attempt_id"], inside["verification_id"]) == (
        job.attempt_id,
        job.verification_id,
    )
    assert (inside["level"], inside["message"]) == ("info", "two\nlines")
    assert set(outside) == {"time", "level", "logger", "message"}


def test_text_has_one_line_for_a_message_and_the_ids_behind_it(make_job):
    formatter = FORMATTERS["text"]()
    job = make_job()
    with attempt_in_logs(job):
        text = line(formatter)

    ids = text.partition("INFO worker.outbox two\\nlines [")[2].rstrip("]").split()
    assert f"attempt_id={job.attempt_id}" in ids
    assert line(formatter).endswith("two\\nlines")


def test_a_message_becomes_an_attempt_that_the_lines_name(make_job):
    seen = []
    app = make_app(
        "memory://",
        name="grace",
        make_attempt=lambda _: seen.append(json.loads(line(FORMATTERS["json"]()))),
        state=WorkerState(),
    )
    job = make_job()
    app.tasks[REPLAY_TASK](asdict(job))
    assert [entry["attempt_id"] for entry in seen] == [job.attempt_id]
