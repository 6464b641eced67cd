"""What POST /api/v1/submissions refuses: with the place and what was expected, and no trace."""

import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from server.base.database import utc_now
from server.base.models import Token
from server.people.accounts import create_token
from tests.conftest import OWN_BENCHMARKS

SUBMISSIONS = "/api/v1/submissions"
Change = Callable[[Any], None]


@pytest.fixture
def no_trace(row_counts, stored_files, alice):
    """Asserts after the test that it left no row in any table and no file in the store."""
    before = row_counts()
    yield
    assert row_counts() == before
    assert stored_files() == []


@dataclass(frozen=True)
class Refused:
    """A change to an honest submission, and the problem it has to be answered with."""

    change: Change
    file: str
    field: str | None
    line: int | None
    expected: str
    message: str = ""


def set_claim(**fields):
    return lambda parts: parts.claim.update(fields)


def set_log(content, name="run_0.log"):
    return lambda parts: parts.logs.update({name: content})


def edit_log(old, new, name="run_0.log"):
    def change(parts):
        text = parts.logs[name].decode()
        assert text.count(old) == 1, f"{old} is there {text.count(old)} times"
        parts.logs[name] = text.replace(old, new).encode()

    return change


def without_logs(parts):
    parts.logs.clear()


def without_one_log(parts):
    del parts.logs["run_1.log"]


def with_two_runs(parts):
    del parts.logs["run_2.log"]
    parts.claim["runs"].remove("run_2.log")


def stop_twice(parts):
    lines = parts.logs["run_0.log"].rstrip().split(b"\n")
    parts.logs["run_0.log"] = b"\n".join([*lines, lines[-1]])


def set_system(name, value):
    return lambda parts: parts.claim["system"].update({name: value})


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run_0.log", content)
    return buffer.getvalue()


LOG = "run_0.log"
CLAIM = "submission.json"
DECREASE = "times that do not decrease"
# In a log of make_log line 9 is the first accuracy, line 7 the run_start and the last the run_stop.
REFUSED = {
    "unknown benchmark": Refused(
        set_claim(benchmark="mnist"),
        CLAIM, "benchmark", None, " or ".join(OWN_BENCHMARKS), "mnist",
    ),
    "wrong division": Refused(
        set_claim(division="sideways"), CLAIM, "division", None, "closed or open", "sideways"
    ),
    "no logs": Refused(without_logs, CLAIM, "runs", None, "one log file for each run"),
    "an empty log": Refused(set_log(b""), LOG, None, None, "one training run", "empty"),
    "a log of white space": Refused(set_log(b" \n\n"), LOG, None, None, "one training run"),
    "a log of another benchmark": Refused(
        edit_log('"value":"digits"', '"value":"resnet"'),
        LOG, "submission_benchmark", 2, "digits", "resnet",
    ),
    "a log of the other division": Refused(
        edit_log('"value":"closed"', '"value":"open"'),
        LOG, "submission_division", None, "'closed'", "open",
    ),
    "an accuracy of NaN": Refused(
        edit_log('"value":14.8,', '"value":NaN,'), LOG, None, 9, "NaN", "broken JSON"
    ),
    "an infinite time": Refused(
        edit_log('"time_ms":1790000003112.0,"event_type":"INTERVAL_END","key":"run_stop"',
                 '"time_ms":Infinity,"event_type":"INTERVAL_END","key":"run_stop"'),
        LOG, None, 32, "NaN", "broken JSON",
    ),
    "a negative time": Refused(
        edit_log('"time_ms":1790000002310.0', '"time_ms":-5'), LOG, "time_ms", 8, "", "-5"
    ),
    "a time that decreases": Refused(
        edit_log('"time_ms":1790000002424.0', '"time_ms":1790000002313.0'),
        LOG, "time_ms", 11, DECREASE, "1790000002313",
    ),
    "two run_stops": Refused(stop_twice, LOG, "run_stop", 33, "exactly one run_stop", "second"),
    "a long line": Refused(
        edit_log('"key":"init_start","value":null', f'"key":"init_start","value":"{"x" * 20_000}"'),
        LOG, None, 1, "at most 16,384 bytes", "line of more than",
    ),
    "a zip for a log": Refused(
        set_log(zipped(b"0" * 10_000_000)), LOG, None, None, "plain text", "zip"
    ),
    "a gzip for a log": Refused(
        set_log(gzip.compress(b"0" * 10_000_000)), LOG, None, None, "plain text", "gzip"
    ),
    "random bytes for a log": Refused(
        set_log(bytes(range(256))), LOG, "run_start", None, "exactly one run_start"
    ),
    "a log that was listed but not sent": Refused(
        without_one_log, CLAIM, "runs", None, "every run log that is listed", "run_1.log"
    ),
    "a log that was sent but not listed": Refused(
        lambda parts: parts.logs.update({"extra.log": parts.logs[LOG]}),
        CLAIM, "runs", None, "every run log that is sent", "extra.log",
    ),
    "a log that is listed twice": Refused(
        set_claim(runs=[LOG, LOG, "run_1.log"]), CLAIM, "runs", None, "each run log once", LOG
    ),
    "the same log twice": Refused(
        lambda parts: parts.logs.update({"run_1.log": parts.logs[LOG]}),
        "run_1.log", "seed", None, "a different seed for every run",
        "seed 100 is also the seed of run_0.log",
    ),
    "another batch size in the logs": Refused(
        set_claim(hyperparameters={"batch_size": 32}),
        LOG, "global_batch_size", None, "32 as in the claim", "64",
    ),
    "too few runs": Refused(with_two_runs, CLAIM, "runs", None, "3 runs of digits", "2 runs"),
    "success without the target": Refused(
        edit_log('"value":98.1', '"value":97.49'),
        LOG, "run_stop", None, "97.5", "best quality is 97.49",
    ),
    "an unknown field": Refused(
        set_claim(modle="x"), CLAIM, "modle", None, "one of", "unknown field"
    ),
    "a price above every limit": Refused(
        set_system("price_usd_per_hour", 1e300),
        CLAIM, "system.price_usd_per_hour", None, "to 1e+09",
    ),
    "a price below nothing": Refused(
        set_system("price_usd_per_hour", -1.0),
        CLAIM, "system.price_usd_per_hour", None, "to 1e+09",
    ),
    "a hardware class that is no name": Refused(
        set_system("hardware_class", "CPU <test>"),
        CLAIM, "system.hardware_class", None, "lower-case letters, digits, dots and hyphens",
    ),
    "an endless count": Refused(
        set_system("processor_count", 10**18),
        CLAIM, "system.processor_count", None, "from 1 to 1e+07",
    ),
    "a model without a name": Refused(
        set_claim(model=" "), CLAIM, "model", None, "a text of 1 to 4000 characters"
    ),
    "a model with a NUL in its name": Refused(
        set_claim(model="a\0b"), CLAIM, "model", None, "printable text"
    ),
    "no system": Refused(set_claim(system=None), CLAIM, "system", None, "a table", "missing"),
    "a setting the closed division fixes": Refused(
        set_claim(hyperparameters={"epochs": 10}), CLAIM, "hyperparameters.epochs", None, "20"
    ),
    "a setting beyond its limits": Refused(
        set_claim(hyperparameters={"batch_size": 100_000}),
        CLAIM, "hyperparameters.batch_size", None, "from 16 to 256",
    ),
    "an address that is a script": Refused(
        set_claim(code_url="javascript:alert(1)"), CLAIM, "code_url", None, "http(s)"
    ),
}  # fmt: skip


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_bad_content_is_422_with_its_place(case, digits_submission, submit):
    case.change(digits_submission)
    response = submit(digits_submission)

    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == 422
    problem = body["problems"][0]
    assert (problem["file"], problem["field"], problem["line"]) == (
        case.file,
        case.field,
        case.line,
    )
    assert case.expected in problem["expected"]
    assert case.message in problem["message"]
    assert case.file in body["detail"]
    assert problem["message"] in body["detail"]


@pytest.mark.usefixtures("no_trace")
def test_every_problem_of_every_log_is_told_at_once(digits_submission, submit):
    digits_submission.logs["run_0.log"] = b""
    edit_log('"value":"digits"', '"value":"resnet"', "run_2.log")(digits_submission)
    response = submit(digits_submission)

    assert [p["file"] for p in response.json()["problems"]] == ["run_0.log", "run_2.log"]
    assert "1 more" in response.json()["detail"]


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../run_0.log", "../run_0.log"),
        ("a/../../run_0.log", "a/../../run_0.log"),
        ("/etc/passwd", "/etc/passwd"),
        ("C:run_0.log", "C:run_0.log"),
        ("a\\run_0.log", "a\\\\run_0.log"),
        ("run\x00.log", "run\\x00.log"),
        ("x" * 201, "x" * 200),
    ],
)
def test_a_file_name_that_leads_elsewhere_is_422(name, shown, digits_submission, submit):
    digits_submission.logs[name] = digits_submission.logs.pop("run_0.log")
    digits_submission.claim["runs"][0] = name
    response = submit(digits_submission)

    assert response.status_code == 422, response.text
    (problem,) = response.json()["problems"]
    if "\x00" not in name:  # The client library escapes a NUL before it sends it.
        assert (problem["file"], problem["field"]) == (shown, "file name")
        assert "run_0.log" in problem["expected"]


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize(
    ("claim", "line"),
    [(b'{"benchmark": "digits",\n"division" "closed"}', 2), (b"", 1), (b"[]", 1), (b"\xff", 1)],
)
def test_json_that_is_broken_names_its_line(claim, line, digits_submission, client, alice):
    files = [("submission", ("mine.json", claim)), *digits_submission.files()[1:]]
    response = client.post(SUBMISSIONS, files=files, headers=alice.headers)

    assert response.status_code == 422
    (problem,) = response.json()["problems"]
    assert (problem["file"], problem["line"]) == ("mine.json", line)
    assert problem["expected"] == "a JSON object"


@pytest.mark.usefixtures("no_trace")
def test_one_name_for_two_logs_is_422(digits_submission, client, alice):
    files = digits_submission.files()
    response = client.post(SUBMISSIONS, files=[*files, files[1]], headers=alice.headers)

    assert response.status_code == 422
    (problem,) = response.json()["problems"]
    assert (problem["file"], problem["field"]) == ("run_0.log", "logs")
    assert "sent twice" in problem["message"]


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda files: files[1:], "submission"),
        (lambda files: [files[0], *files], "submission"),
        (lambda files: [*files, ("weights", ("w.bin", b"1"))], "weights"),
        (lambda files: [*files, ("benchmark", ("b.txt", b"digits"))], "benchmark"),
    ],
    ids=["no JSON", "two JSONs", "an unknown part", "a file for a text"],
)
def test_other_parts_than_asked_for_are_422(change, field, digits_submission, client, alice):
    response = client.post(
        SUBMISSIONS, files=change(digits_submission.files()), headers=alice.headers
    )

    assert response.status_code == 422, response.text
    assert response.json()["problems"][0]["field"] == field


@pytest.mark.usefixtures("no_trace")
def test_a_benchmark_beside_the_json_may_not_contradict_it(digits_submission, submit):
    digits_submission.form["benchmark"] = "cifar10"
    response = submit(digits_submission)

    assert response.status_code == 422
    assert response.json()["problems"][0]["field"] == "benchmark"


@pytest.mark.usefixtures("no_trace")
def test_a_log_over_the_limit_is_413(digits_submission, submit):
    # One line without an end, 200 MB in real life; the limit of this server is 1 MiB.
    digits_submission.logs["run_0.log"] = b"x" * (1024 * 1024 + 1)
    response = submit(digits_submission)

    assert response.status_code == 413
    assert response.json()["detail"] == ("run_0.log has 1.0 MiB; a run log may have at most 1 MiB.")


@pytest.mark.usefixtures("no_trace")
def test_a_request_over_the_limit_is_413_by_its_stated_length(digits_submission, submit):
    for name in digits_submission.logs:
        digits_submission.logs[name] = b"x" * 1_500_000
    response = submit(digits_submission)

    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"] == "A request to this address may have at most 4 MiB."
    assert response.headers["connection"] == "close"


@pytest.mark.usefixtures("no_trace")
def test_a_request_over_the_limit_is_413_while_it_streams_in(client, alice):
    def body():
        yield b'--b\r\nContent-Disposition: form-data; name="logs"; filename="run_0.log"\r\n\r\n'
        for _ in range(100):
            yield b"x" * 65536

    response = client.post(
        SUBMISSIONS,
        content=body(),
        headers=alice.headers | {"Content-Type": "multipart/form-data; boundary=b"},
    )

    assert "content-length" not in response.request.headers
    assert response.status_code == 413, response.text
    assert response.json()["detail"] == "A request to this address may have at most 4 MiB."


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_json_body_over_its_smaller_limit_is_413_without_a_token(chunked, client):
    content = b"[" + b"1," * 1_000_000 + b"1]"
    response = client.post(
        "/api/v1/tokens",
        content=iter([content]) if chunked else content,
        headers={"Content-Type": "application/json"},
    )

    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.usefixtures("no_trace")
def test_more_logs_than_allowed_are_413(digits_submission, submit):
    digits_submission.logs |= {f"more_{index}.log": b"x" for index in range(3)}
    response = submit(digits_submission)

    assert response.status_code == 413
    assert "at most 6 files" in response.json()["detail"]


@pytest.mark.usefixtures("no_trace")
def test_a_json_over_256_kib_is_refused(digits_submission, submit):
    digits_submission.claim["notes"] = "x" * 300_000
    response = submit(digits_submission)

    assert response.status_code == 422
    assert response.json()["problems"][0]["expected"] == "at most 262144 bytes"


@pytest.mark.usefixtures("no_trace")
def test_a_compressed_request_is_415(digits_submission, client, alice):
    sent = client.build_request("POST", SUBMISSIONS, files=digits_submission.files())
    response = client.post(
        SUBMISSIONS,
        content=gzip.compress(sent.read()),
        headers=alice.headers
        | {"Content-Type": sent.headers["content-type"], "Content-Encoding": "gzip"},
    )

    assert response.status_code == 415
    assert "send the body uncompressed" in response.json()["detail"]


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/zip"])
def test_another_media_type_is_415(kind, client, alice):
    response = client.post(
        SUBMISSIONS, content=b"{}", headers=alice.headers | {"Content-Type": kind}
    )

    assert response.status_code == 415
    assert "multipart/form-data" in response.json()["detail"]


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize(
    "body", [b"", b"no boundary in here", b"--b\r\nbroken header\r\n\r\nx\r\n--b--\r\n"]
)
def test_a_multipart_body_that_is_broken_is_refused(body, client, alice):
    response = client.post(
        SUBMISSIONS,
        content=body,
        headers=alice.headers | {"Content-Type": "multipart/form-data; boundary=b"},
    )

    assert response.status_code in (400, 422), response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ({}, "This needs an API token"),
        ({"Authorization": "Basic YTpi"}, "This needs an API token"),
        ({"Authorization": "Bearer fl_wrong"}, "not known here"),
    ],
    ids=["no token", "another scheme", "a wrong token"],
)
def test_without_a_good_token_it_is_401(header, sentence, digits_submission, client):
    response = client.post(SUBMISSIONS, files=digits_submission.files(), headers=header)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert sentence in response.json()["detail"]


@pytest.fixture
def mallory(database):
    """Somebody whose token's time is over: the token's id, and the headers to send it with."""
    with database.write() as session:
        made = create_token(
            session, user_name="mallory", role="submitter", expires_in=timedelta(days=-1)
        )
        return made.token.id, {"Authorization": f"Bearer {made.secret}"}


def test_an_expired_token_is_401_and_says_when(
    digits_submission, client, mallory, row_counts, stored_files
):
    before = row_counts()
    yesterday = (utc_now() - timedelta(days=1)).strftime("%Y-%m-%d")
    response = client.post(SUBMISSIONS, files=digits_submission.files(), headers=mallory[1])

    assert response.status_code == 401
    assert f"expired on {yesterday}" in response.json()["detail"]
    assert (row_counts(), stored_files()) == (before, [])


def test_a_revoked_token_is_401(digits_submission, client, database, mallory, stored_files):
    token_id, headers = mallory
    with database.write() as session:
        token = session.get_one(Token, token_id)
        token.expires_at, token.revoked_at = None, utc_now()
    response = client.post(SUBMISSIONS, files=digits_submission.files(), headers=headers)

    assert response.status_code == 401
    assert "revoked" in response.json()["detail"]
    assert stored_files() == []


def test_a_worker_cannot_submit(digits_submission, client, walter, row_counts, stored_files):
    before = row_counts()
    response = client.post(SUBMISSIONS, files=digits_submission.files(), headers=walter.headers)

    assert response.status_code == 403
    assert "role submitter, organiser or admin; yours is worker" in response.json()["detail"]
    assert (row_counts(), stored_files()) == (before, [])
