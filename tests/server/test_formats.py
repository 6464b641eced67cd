"""Formats that other programs read: Parquet, badges, headers for other sites, text files."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from server.pages.files import VALID_DAYS
from tests.support.boards import rows_of

ORIGIN = "access-control-allow-origin"


@pytest.fixture
def board(replay, client):
    replay.train()
    found = client.get("/api/v1/leaderboards/digits").json()
    assert found["entries"]
    return found


def read_parquet(answer):
    from pyarrow import parquet

    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    return parquet.read_table(io.BytesIO(answer.content)).to_pylist(maps_as_pydicts="strict")


def as_json(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def test_a_board_and_every_run_are_the_same_as_parquet(board, client):
    rows = read_parquet(client.get("/api/v1/leaderboards/digits.parquet?limit=1"))

    assert [as_json(row) for row in rows] == rows_of(board)
    assert client.get("/api/v1/leaderboards/nothing.parquet").status_code == 404
    rows = read_parquet(client.get("/api/v1/runs.parquet"))
    runs = client.get("/api/v1/benchmarks/digits/runs.json").json()["runs"]
    assert [as_json(row) for row in rows] == runs
    assert len(rows) == 3


def test_a_board_without_entries_is_a_file_with_its_columns(client):
    from pyarrow import parquet

    answer = client.get("/api/v1/leaderboards/digits.parquet")
    table = parquet.read_table(io.BytesIO(answer.content))

    assert table.num_rows == 0
    assert {"rank", "submitter", "system", "tta_seconds"} <= set(table.column_names)


def test_a_badge_for_shields_has_the_words_of_the_picture(board, client):
    address = f"/submissions/{rows_of(board)[0]['submission_id']}/badge"
    answer = client.get(f"{address}.json")
    badge = answer.json()

    assert set(badge) == {"schemaVersion", "label", "message", "labelColor", "color"}
    assert (badge["schemaVersion"], badge["label"]) == (1, "digits")
    assert badge["message"] in client.get(f"{address}.svg").text
    again = client.get(f"{address}.json", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert client.get("/submissions/nothing/badge.json").status_code == 404


PUBLIC = ("/", "/api/v1/benchmarks", "/api/v1/leaderboards/digits", "/benchmarks/digits",
          "/api/v1/nothing", "/feed.atom", "/static/style.css", "/healthz")  # fmt: skip


@pytest.mark.parametrize("path", PUBLIC)
def test_pages_of_other_sites_read_without_a_token_alone(client, alice, path):
    """Twice, because a board comes from the cache the second time."""
    for _ in range(2):
        assert client.get(path).headers[ORIGIN] == "*"
        assert ORIGIN not in alice.get(path).headers
        assert ORIGIN not in client.head(path).headers
        assert ORIGIN not in client.post(path).headers
        etag = client.get(path).headers.get("etag")
        if etag is not None:
            same = client.get(path, headers={"If-None-Match": etag})
            assert (same.status_code, same.headers[ORIGIN]) == (304, "*")


def test_no_preflight_passes(client):
    asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
    for more in ({}, {"Access-Control-Request-Headers": "authorization"}):
        answer = client.options("/api/v1/benchmarks", headers=asked | more)
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path", "title"),
    [
        ("GET", "/api/v1/leaderboards/digits?limit=0", "Refused"),
        ("GET", "/api/v1/submissions/nothing", "Not found"),
        ("GET", "/api/v1/nothing", "Not Found"),
        ("POST", "/api/v1/submissions", "Not signed in"),
        ("DELETE", "/api/v1/benchmarks", "Method Not Allowed"),
    ],
)
def test_the_type_of_a_problem_leads_to_its_explanation(client, method, path, title):
    problem = client.request(method, path).json()
    page, _, anchor = problem["type"].partition("#")
    explained = client.get(page)

    assert problem["title"] == title
    assert explained.status_code == 200
    assert f'id="{anchor}"' in explained.text


@pytest.mark.parametrize(
    ("method", "path", "sent", "words"),
    [
        ("GET", "/api/v1/nothing", {}, "nothing at this address. /docs/http-api lists"),
        ("GET", "/nothing", {}, "There is nothing at this address."),
        ("DELETE", "/api/v1/benchmarks", {}, "takes another method: GET, POST."),
        ("GET", "/api/v1/submissions?cursor=x", {}, "next_cursor of the previous page"),
        ("GET", "/api/v1/submissions?limit=x", {}, "Expected a whole number"),
        ("POST", "/api/v1/invitations", {}, "Expected a JSON object"),
        ("POST", "/api/v1/invitations", {"content": "{}"}, "Content-Type: application/json"),
        ("POST", "/api/v1/invitations", {"json": []}, "Expected a JSON object"),
        ("POST", "/api/v1/invitations", {"json": {"last_day": "x"}}, "such as 2026-11-21"),
        ("GET", "/api/v1/calibrations/x", {}, "`finishline benchmark calibrate list`"),
        ("DELETE", "/api/v1/tokens/999", {}, "`finishline admin token list`"),
        ("GET", f"/api/v1/verifications/{'x' * 5_000}", {}, "`finishline show SUBMISSION`"),
    ],
)
def test_a_refusal_is_a_sentence_with_the_next_step(client, olivia, method, path, sent, words):
    answer = client.request(method, path, headers=olivia.headers, **sent)

    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 400


def test_a_text_for_programs_names_documents_that_are_there(client):
    text = client.get("/llms.txt").text
    site = str(client.base_url).rstrip("/")
    links = [line.split("](")[1].split(")")[0] for line in text.splitlines() if "](" in line]

    assert text.startswith("# Finishline\n\n> ")
    assert len(links) > 20
    for link in links:
        assert client.get(link.removeprefix(site)).status_code == 200, link


def test_a_weakness_can_be_reported(client):
    answer = client.get("/.well-known/security.txt")
    fields = [line.split(": ", 1) for line in answer.text.splitlines()]
    named = dict(fields)

    assert len(named) == len(fields), "each field once"
    assert answer.headers["content-type"].startswith("text/plain")
    expires = datetime.fromisoformat(named["Expires"].replace("Z", "+00:00"))
    assert timedelta() < expires - datetime.now(UTC) < timedelta(days=VALID_DAYS)
    page, _, anchor = named["Contact"].removeprefix(str(client.base_url)).partition("#")
    assert f'id="{anchor}"' in client.get(page).text
