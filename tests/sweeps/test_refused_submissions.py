"""Uploads that the server refuses: the place, what was expected, and no trace."""

import gzip
import json
import re
import sqlite3
from contextlib import closing

import pytest

from tests.support.run_logs import SYSTEM

LOG, CLAIM = "run_0.log", "submission.json"
P5 = {"provider": "aws", "instance": "p5.48xlarge", "region": "us-east-1"}
ZIP = b"PK\x03\x04" + bytes(500)


@pytest.fixture
def send(world, folder):
    """Sends a changed submission. It must be refused as a problem, and leave no row and no file."""

    def send(change=lambda parts: None, *, files=list, **request):
        before = traces(folder)
        parts = world.parts()
        change(parts)
        if not request:
            request = {"files": files(parts.files()), "data": parts.form}
        answer = world.request("POST", "/submissions", by="alice", **request)
        assert answer.headers["content-type"] == "application/problem+json"
        assert traces(folder) == before
        return answer

    return send


def traces(folder):
    """The number of rows in each table of the server, and its stored files."""
    with closing(sqlite3.connect(folder / "finishline.db")) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        count = "SELECT count(*) FROM {}".format
        rows = {name: database.execute(count(name)).fetchone() for (name,) in names}
    return rows, sorted(path for path in (folder / "artifacts").rglob("*") if path.is_file())


def claim(**fields):
    return lambda parts: parts.claim.update(fields)


def system(**fields):
    return claim(system=SYSTEM | fields)


def log(content, name=LOG):
    return lambda parts: parts.logs.update({name: content})


def line(number, **fields):
    """Changes fields of a line of the first log. 9 is an accuracy, the last one the run_stop."""

    def change(parts):
        lines = parts.logs[LOG].splitlines()
        mark, _, record = lines[number - 1].partition(" ")
        lines[number - 1] = f"{mark} {json.dumps(json.loads(record) | fields)}"
        parts.logs[LOG] = "\n".join(lines)

    return change


def in_unit(factor):
    """Writes the times of the first log in another unit: thousands of milliseconds are seconds."""

    def change(parts):
        def scaled(found):
            return f'"time_ms": {float(found[1]) * factor}'

        parts.logs[LOG] = re.sub(r'"time_ms": ?([0-9.]+)', scaled, parts.logs[LOG])

    return change


def renamed(name):
    def change(parts):
        parts.logs = {name: parts.logs.pop(LOG)} | parts.logs
        parts.claim["runs"][0] = name

    return change


def recoded(parts, encoding):
    parts.logs[LOG] = parts.logs[LOG].encode(encoding)


def in_json(parts):
    lines = parts.logs[LOG].splitlines()
    parts.logs[LOG] = "\n".join(json.dumps({"log": f"{line}\n"}) for line in lines)


def stop_twice(parts):
    parts.logs[LOG] += parts.logs[LOG].splitlines()[-1]


def two_runs(parts):
    del parts.logs["run_2.log"]
    parts.claim["runs"].remove("run_2.log")


def same_log_twice(parts):
    parts.logs["run_1.log"] = parts.logs[LOG]


# The change, and the file, field, line and expected value of the first problem.
PLACES = {
    "unknown benchmark": (claim(benchmark="mnist"), CLAIM, "benchmark", None, "digits"),
    "unknown field": (claim(modle="x"), CLAIM, "modle", None, "one of"),
    "unknown division": (claim(division="sideways"), CLAIM, "division", None, "closed or open"),
    "benchmark beside the claim": (
        lambda parts: parts.form.update(benchmark="cifar10"), None, "benchmark", None, ""
    ),
    "model without a name": (claim(model=" "), CLAIM, "model", None, "1 to 4000 characters"),
    "model with a NUL": (claim(model="a\0b"), CLAIM, "model", None, "printable text"),
    "script for an address": (
        claim(code_url="javascript:alert(1)"), CLAIM, "code_url", None, "http(s)"
    ),
    "no system": (claim(system=None), CLAIM, "system", None, "a table"),
    "price above the limit": (
        system(price_usd_per_hour=1e300), CLAIM, "system.price_usd_per_hour", None, "to 1e+09"
    ),
    "price below 0": (
        system(price_usd_per_hour=-1.0), CLAIM, "system.price_usd_per_hour", None, "to 1e+09"
    ),
    "class that is not a name": (
        system(hardware_class="CPU <b>"), CLAIM, "system.hardware_class", None, "lower-case letters"
    ),
    "endless count": (
        system(processor_count=10**18), CLAIM, "system.processor_count", None, "from 1 to 1e+07"
    ),
    "fixed setting": (
        claim(hyperparameters={"epochs": 10}), CLAIM, "hyperparameters.epochs", None, "20"
    ),
    "setting beyond its limits": (
        claim(hyperparameters={"batch_size": 10**5}),
        CLAIM, "hyperparameters.batch_size", None, "from 16 to 256",
    ),
    "other batch size": (
        claim(hyperparameters={"batch_size": 64}), LOG, "global_batch_size", None, "64 as in the"
    ),
    "long claim": (claim(notes="x" * 300_000), CLAIM, None, None, "at most 262144 bytes"),
    "log not listed": (
        claim(runs=[LOG, "run_1.log"]), CLAIM, "runs", None, "every run log that is sent"
    ),
    "log not sent": (
        lambda parts: parts.logs.pop("run_1.log"),
        CLAIM, "runs", None, "every run log that is listed",
    ),
    "log listed twice": (
        claim(runs=[LOG, LOG, "run_1.log"]), CLAIM, "runs", None, "each of them once"
    ),
    "no logs": (lambda parts: parts.logs.clear(), CLAIM, "runs", None, "one log file for each run"),
    "too few runs": (two_runs, CLAIM, "runs", None, "3 runs of digits"),
    "same log twice": (same_log_twice, "run_1.log", "seed", None, "a different seed for every run"),
    "empty log": (log(b""), LOG, None, None, "one training run"),
    "white space for a log": (log(b" \n\n"), LOG, None, None, "one training run"),
    "random bytes for a log": (log(bytes(range(256))), LOG, "run_start", None, "exactly one"),
    "zip for a log": (log(ZIP), LOG, None, None, "plain text"),
    "gzip for a log": (log(gzip.compress(b"0" * 10**7)), LOG, None, None, "plain text"),
    "UTF-16 for a log": (lambda parts: recoded(parts, "utf-16-le"), LOG, None, None, "UTF-8"),
    "docker's JSON for a log": (in_json, LOG, None, 1, "jq -r"),
    "seed of 64 bits": (line(4, key="seed", value=2**64 - 1), LOG, "seed", 4, "to 922337203685477"),
    "long line": (line(1, value="x" * 20_000), LOG, None, 1, "at most 16,384 bytes"),
    "log of another benchmark": (line(2, value="resnet"), LOG, "submission_benchmark", 2, "digits"),
    "log of the other division": (
        line(3, value="open"), LOG, "submission_division", None, "'closed'"
    ),
    "negative time": (line(8, time_ms=-5), LOG, "time_ms", 8, "milliseconds since 1970"),
    "accelerators of another instance": (
        system(accelerator="H100", accelerator_count=16, cloud=P5),
        CLAIM, "system.accelerator_count", None, "8\u00a0×\u00a0H100",
    ),
    "seconds": (in_unit(1e-3), LOG, "time_ms", 7, "milliseconds since 1970"),
    "microseconds": (in_unit(1e3), LOG, "time_ms", 1, "milliseconds since 1970"),
    "nanoseconds": (in_unit(1e6), LOG, "time_ms", 1, "milliseconds since 1970"),
    "accuracy of NaN": (line(9, value=float("nan")), LOG, None, 9, "NaN"),
    "time that decreases": (
        line(11, time_ms=1_790_000_000_050), LOG, "time_ms", 11, "times that do not decrease"
    ),
    "infinite time": (line(32, time_ms=float("inf")), LOG, None, 32, "NaN"),
    "run_stop twice": (stop_twice, LOG, "run_stop", 33, "exactly one run_stop"),
    "success without the target": (line(30, value=97.49), LOG, "run_stop", None, "97.5"),
    "folder above": (renamed("../run_0.log"), "../run_0.log", "file name", None, LOG),
    "folder above a folder": (
        renamed("a/../../run_0.log"), "a/../../run_0.log", "file name", None, LOG
    ),
    "absolute name": (renamed("/etc/passwd"), "/etc/passwd", "file name", None, LOG),
    "name of a drive": (renamed("C:run_0.log"), "C:run_0.log", "file name", None, LOG),
    "backslash": (renamed("a\\run_0.log"), "a\\\\run_0.log", "file name", None, LOG),
    "long name": (renamed("x" * 201), "x" * 200, "file name", None, LOG),
}  # fmt: skip


@pytest.mark.parametrize(("change", "file", "field", "at", "expected"), PLACES.values(), ids=PLACES)
def test_bad_content_names_its_place(change, file, field, at, expected, send):
    answer = send(change)
    body = answer.json()
    problem = body["problems"][0]

    assert answer.status_code == body["status"] == 422
    assert (problem["field"], problem["line"]) == (field, at)
    assert file in (None, problem["file"])
    assert expected in problem["expected"]
    assert problem["message"] in body["detail"]


def test_every_log_reports_its_problems(send):
    def change(parts):
        parts.logs |= {LOG: b"", "run_2.log": b" \n"}

    body = send(change).json()

    assert [problem["file"] for problem in body["problems"]] == [LOG, "run_2.log"]
    assert "1 more" in body["detail"]


def sent_as(content):
    return lambda files: [("submission", ("mine.json", content)), *files[1:]]


# The change of the files, and the file, field and line of the problem.
FILES = {
    "no claim": (lambda files: files[1:], None, "submission", None),
    "two claims": (lambda files: [files[0], *files], None, "submission", None),
    "unknown part": (lambda files: [*files, ("weights", ("w", b"1"))], None, "weights", None),
    "file for a text": (
        lambda files: [*files, ("benchmark", ("b", b"digits"))], None, "benchmark", None
    ),
    "one name twice": (lambda files: [*files, files[1]], LOG, "logs", None),
    "broken claim": (sent_as(b'{"benchmark": "digits",\n"division" "x"}'), "mine.json", None, 2),
    "empty claim": (sent_as(b""), "mine.json", None, 1),
    "list for a claim": (sent_as(b"[]"), "mine.json", None, 1),
    "claim that is not text": (sent_as(b"\xff"), "mine.json", None, 1),
}  # fmt: skip


@pytest.mark.parametrize(("files", "file", "field", "at"), FILES.values(), ids=FILES)
def test_other_parts_name_their_place(files, file, field, at, send):
    answer = send(files=files)
    problem = answer.json()["problems"][0]

    assert answer.status_code == 422
    assert (problem["file"], problem["field"], problem["line"]) == (file, field, at)


FORM = {"Content-Type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="logs"; filename="run_0.log"\r\n\r\n'


def body(content, **headers):
    return {"content": content, "headers": FORM | headers}


def as_it_is(parts):
    pass


# A change, or a request of its own, with the status and words of the refusal.
BODIES = {
    "large log": (log(b"x" * (2**20 + 1)), {}, 413, "run log may have at most 1 MiB"),
    "large request": (
        lambda parts: parts.logs.update(dict.fromkeys(parts.logs, b"x" * 1_500_000)),
        {}, 413, "at most 4 MiB",
    ),
    "large stream": (
        as_it_is, body(iter([PART, *[b"x" * 65536] * 100])), 413, "at most 4 MiB"
    ),
    "many logs": (
        lambda parts: parts.logs.update({f"{k}.log": b"x" for k in range(4)}),
        {}, 413, "at most 5 logs",
    ),
    "compressed": (as_it_is, body(b"x", **{"Content-Encoding": "gzip"}), 415, "uncompressed"),
    "JSON": (as_it_is, body(b"{}", **{"Content-Type": "application/json"}), 415, "multipart"),
    "zip": (as_it_is, body(b"{}", **{"Content-Type": "application/zip"}), 415, "multipart"),
    "no boundary": (as_it_is, body(b"no boundary"), 400, ""),
    "broken part": (as_it_is, body(b"--b\r\nbroken\r\n\r\nx\r\n--b--\r\n"), 400, ""),
}  # fmt: skip


@pytest.mark.parametrize(("change", "request_", "status", "words"), BODIES.values(), ids=BODIES)
def test_bad_body_is_refused(change, request_, status, words, send):
    answer = send(change, **request_)

    assert answer.status_code == status, answer.text
    assert words in answer.text


@pytest.mark.parametrize("chunked", [False, True])
def test_large_json_needs_no_token_to_be_refused(chunked, world):
    content = b"[" + b"1," * 1_000_000 + b"1]"
    answer = world.request(
        "POST",
        "/tokens",
        content=iter([content]) if chunked else content,
        headers={"Content-Type": "application/json"},
    )

    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
