"""The pages: each answers, compressed or 304, and trusts no stranger; and withdrawals."""

import gzip
import html
import re

import pytest
from sqlalchemy import select

from server.base.http import is_known, takes_gzip
from server.base.models import AuditRecord
from tests.support.boards import rows_of
from tests.support.pages import BROWSER, words_of
from web.assets import static_asset


def test_a_page_has_headers_that_keep_it_to_itself(client):
    headers = client.get("/").headers

    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert "unsafe" not in headers["content-security-policy"]
    for directive in ("default-src", "object-src", "base-uri", "frame-ancestors"):
        assert policy[directive] == "'none'"
    for directive in ("script-src", "style-src", "connect-src", "font-src", "form-action"):
        assert policy[directive] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path", ["/nothing", "/benchmarks/mnist", "/submissions/nothing", "/verifications/nothing"]
)
def test_a_browser_gets_a_page_and_a_program_gets_json_for_what_is_not_there(path, client):
    page = client.get(path, headers=BROWSER)
    assert page.status_code == 404
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "404" in page.text

    program = client.get(path, headers={"Accept": "*/*"})
    assert program.status_code == 404
    assert program.headers["content-type"] == "application/problem+json"
    assert program.json()["title"] in ("Not found", "Not Found")
    of_api = client.get(f"/api/v1{path}", headers=BROWSER)
    assert of_api.status_code == 404
    assert of_api.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("query", "said", "kept"),
    [
        ({"sort": "luck"}, "Sort “luck”: Expected 'rank'", "luck"),
        ({"target": "high", "q": "cnn"}, "Target “high”: Expected a number.", 'value="high"'),
        ({"target": "140"}, "Expected a top1Accuracy: a percent from 0 to 100", 'value="140"'),
        ({"date_from": "May"}, "From “May”: No day; expected one like 2026-11-21", 'value="May"'),
        ({"price": "-1"}, "Your price “-1”: Expected greater than 0", 'value="-1"'),
        ({"cursor": "7.7"}, "Cursor “7.7”: The board has changed", ""),
        ({"sort": "<red>"}, "Sort “<red>”: Expected 'rank'", ""),
    ],
)
def test_a_query_that_makes_no_sense_gives_its_form_again(query, said, kept, client):
    response = client.get("/benchmarks/digits", params=query, headers=BROWSER)
    text = html.unescape(re.sub(r"<q>(.*?)</q>", r"“\1”", response.text))
    words = re.sub(r"\s+", " ", re.sub(r"</?[a-z][^>]*>", "", text.replace("<red>", "&red&")))

    assert response.status_code == 422
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert said.replace("<red>", "&red&") in words
    assert kept in response.text
    assert "<red>" not in response.text
    assert 'value="cnn"' in response.text or "q" not in query
    program = client.get("/benchmarks/digits", params=query)
    assert program.headers["content-type"] == "application/problem+json"
    assert program.status_code in (409, 422)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/benchmarks/digits", "/submissions", "/verifications"),
        *("/compare", "/workers", "/prices", "/search", "/docs/rules"),
    ],
)
def test_pages_ignore_unknown_parameters(path, client):
    plain = client.get(path, headers=BROWSER)

    assert client.get(f"{path}?fbclid=1", headers=BROWSER).status_code == plain.status_code


def test_api_refuses_unknown_parameters(client):
    assert client.get("/api/v1/leaderboards/digits?fbclid=1").status_code == 422
    assert client.get("/api/v1/leaderboards/digits.csv?fbclid=1").status_code == 422


@pytest.mark.parametrize(
    "path",
    ["/", "/benchmarks/digits", "/workers", "/api/v1/leaderboards/digits", "/api/v1/benchmarks"],
)
def test_head_is_answered_like_get_without_the_body(path, client):
    asked = client.get(path)
    head = client.head(path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == asked.headers["content-type"]
    assert head.headers.get("etag") == asked.headers.get("etag")
    assert client.head("/api/v1/verifications/x/events").status_code == 405


# Encodings and tags as RFC 9110 writes them.
@pytest.mark.parametrize(
    ("encodings", "is_taken"),
    [
        (b"compress, gzip", True),
        (b"", False),
        (b"compress;q=0.5, gzip;q=1.0", True),
        (b"gzip;q=1.0, identity; q=0.5, *;q=0", True),
        (b"gzip;q=0", False),
        (b"br, GZIP ; Q=0.000", False),
        (b"*;q=0, br", False),
        (b"gzip;q=0, *", False),
        (b"x-gzip", True),
        (b"br, gzipped", False),
    ],
)
def test_gzip_is_taken_where_it_is_named_with_a_weight(encodings, is_taken):
    assert takes_gzip({"headers": [(b"accept-encoding", encodings)]}) is is_taken


@pytest.mark.parametrize(
    ("tags", "is_same"),
    [
        (b'W/"xyzzy"', True),
        (b'"xyzzy"', True),
        (b'"r2d2xxxx", W/"xyzzy","c3piozzzz"', True),
        (b"*", True),
        (b'"r2d2xxxx"', False),
        (b"xyzzy", False),
    ],
)
def test_tags_are_compared_weakly_and_a_star_is_any(tags, is_same):
    assert is_known({"headers": [(b"if-none-match", tags)]}, 'W/"xyzzy"') is is_same


def test_a_known_board_is_not_sent_again(digits_submission, submit, client):
    submit(digits_submission)
    page = client.get("/benchmarks/digits")
    known = {"If-None-Match": f'"other", {page.headers["etag"]}'}
    with client.stream("GET", "/benchmarks/digits") as packed:
        sent = b"".join(packed.iter_raw())
    plain = client.get("/benchmarks/digits", headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(sent) == plain.content == page.content
    assert "content-encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["vary"]
    assert client.get("/benchmarks/digits", headers=known).status_code == 304
    submit(digits_submission)
    changed = client.get("/benchmarks/digits", headers=known)
    assert changed.status_code == 200
    assert changed.text.count("/submissions/") == 2 * page.text.count("/submissions/")
    assert " ago" not in page.text.split("<main")[1]


def test_a_wrong_method_is_405_and_tells_the_right_one(client):
    response = client.delete("/api/v1/workers")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET"
    several = client.delete("/api/v1/submissions").headers["allow"]
    assert set(several.split(", ")) - {"HEAD"} == {"GET", "POST"}
    assert response.headers["content-type"] == "application/problem+json"
    assert client.app.openapi_schema is None, "to describe the whole API takes half a second"


def test_every_static_file_of_a_page_is_served_for_ever(replay, client):
    page = client.get(f"/verifications/{replay.verification_id}").text
    paths = re.findall(r'"(/static/[^"]+)"', page)
    names = {path.rsplit("/", 1)[-1] for path in paths}
    assert {"style.css", "charts.js", "replay.js", "plotly-basic.min.js"} <= names
    for path in paths:
        response = client.get(path)
        assert response.status_code == 200, path
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["vary"] == "Accept-Encoding"
        etag = response.headers["etag"]
        known = client.get(path, headers={"If-None-Match": etag})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)
    for path in ("nothing.css", "../render.py", "%2e%2e/render.py", "..%2frender.py", "", "%00"):
        assert client.get(f"/static/{path}").status_code == 404, path


def test_every_text_is_sent_compressed_to_who_takes_it(client):
    style = re.search(r'"(/static/[^"]+\.css)"', client.get("/").text)[1]
    for path in (
        "/", "/benchmarks/digits", "/workers", "/docs/rules", "/docs/api", "/openapi.json",
        "/docs-assets/swagger-ui-bundle.js", "/no-such-page", "/api/v1/benchmarks",
        "/api/v1/benchmarks/digits.toml", style,
    ):  # fmt: skip
        browser = BROWSER | {"Accept-Encoding": "br, gzip"}
        with client.stream("GET", path, headers=browser) as packed:
            sent = b"".join(packed.iter_raw())
        plain = client.get(path, headers=BROWSER | {"Accept-Encoding": "identity"})

        assert packed.headers["content-encoding"] == "gzip", path
        assert "Accept-Encoding" in packed.headers["vary"], path
        assert packed.status_code == plain.status_code, path
        assert "content-encoding" not in plain.headers, path
        assert len(gzip.decompress(sent)) == len(plain.content) > len(sent), path


def test_the_api_is_described_below_the_docs(client):
    response = client.get("/docs/api")

    assert response.status_code == 200
    assert "unsafe" not in response.headers["content-security-policy"]
    assert 'data-openapi="/openapi.json"' in response.text
    for address in re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', response.text):
        assert client.get(address).status_code == 200, address
    assert re.findall(r"<script(?![^>]* src=)", response.text) == []


REASON = {"reason": "trained on the <test> set"}


@pytest.fixture
def withdraw(client, alice):
    def send(submission_id, *, by=None, body=REASON):
        address = f"/api/v1/submissions/{submission_id}/withdrawal"
        return client.post(address, json=body, headers=(by or alice).headers)

    return send


def board(client, query=""):
    found = client.get(f"/api/v1/leaderboards/digits{query}").json()
    return {entry["submission_id"]: entry for entry in rows_of(found)}


def test_withdrawn_is_readable(replay, submit, digits_submission, client, withdraw, alice, olivia):
    replay.finish()
    second = submit(digits_submission, batch_size=32).json()["id"]
    first = replay.submission_id
    assert set(board(client)) == {first, second}

    answer = withdraw(first)
    assert answer.status_code == 200, answer.text
    assert answer.json()["withdrawal"]["by"] == "alice"
    assert set(board(client)) == {second}
    assert set(board(client, "?withdrawn=show")) == {first, second}
    shown = board(client, "?withdrawn=show")[first]
    assert (shown["rank"], shown["unranked_reason"]) == (None, "withdrawn")
    assert shown["withdrawn"] is True
    assert board(client, "?withdrawn=show&target=90")[first]["rank"] is None
    kept = client.get("/api/v1/benchmarks/digits/records").json()["divisions"][0]["records"]
    assert (kept[0]["submission_id"], kept[0]["ended"]) == (first, "withdrawn")
    for address in ("/feed.atom", "/"):
        assert replay.verification_id not in client.get(address).text, address
        assert first not in client.get(address).text, address
    listed = {item["id"]: item for item in client.get("/api/v1/submissions").json()["submissions"]}
    assert listed[first]["withdrawal"]["reason"] == REASON["reason"]
    assert listed[first]["result"] == client.get(f"/api/v1/submissions/{first}").json()["result"]
    runs = client.get("/api/v1/benchmarks/digits/runs.json").json()["runs"]
    assert {run["submission_id"]: run["withdrawn"] for run in runs} == {first: True, second: False}
    assert client.get(f"/api/v1/submissions/{first}/runs/0/log").status_code == 200
    assert client.get(f"/api/v1/verifications/{replay.verification_id}/proof").status_code == 200

    back = f"/api/v1/submissions/{first}/reinstatement"
    assert client.post(back, json=REASON, headers=alice.headers).status_code == 403
    assert client.post(back, json=REASON, headers=olivia.headers).status_code == 200
    assert set(board(client)) == {first, second}
    assert client.post(back, json=REASON, headers=olivia.headers).status_code == 409


def test_what_has_started_goes_on_and_the_rest_is_cancelled(
    replay, submit, digits_submission, client, withdraw, make_report, olivia, database
):
    other = submit(digits_submission, batch_size=32).json()["id"]
    sides = {"challenger": other, "holder": replay.submission_id}
    asked = client.post("/api/v1/head-to-heads", json=sides, headers=olivia.headers)
    head_to_head = asked.json()["id"]
    seeds = replay.seeds()
    grant = replay.claim().json()
    assert withdraw(replay.submission_id).status_code == 200
    assert replay.view()["state"] == "running"
    assert client.get(f"/api/v1/verifications/{head_to_head}").json()["state"] == "cancelled"
    assert replay.report(grant, make_report(seeds)).status_code == 200
    assert set(board(client)) == {other}
    for address, body in (
        (f"/api/v1/submissions/{replay.submission_id}/verifications", {}),
        (f"/api/v1/submissions/{replay.submission_id}/verifications", {"kind": "latency"}),
        ("/api/v1/head-to-heads", sides),
    ):
        answer = client.post(address, json=body, headers=olivia.headers)
        assert answer.status_code == 409, address
        assert "withdrawn" in answer.json()["detail"]
    batch = {"submissions": [replay.submission_id], "reason": "all again"}
    answer = client.post("/api/v1/verifications/batch", json=batch, headers=olivia.headers)
    (skipped,) = answer.json()["skipped"]
    assert skipped["why"].endswith("is withdrawn and cannot be verified.")
    with database.read() as session:
        kept = session.scalars(select(AuditRecord).order_by(AuditRecord.id.desc())).first()
        assert (kept.actor, kept.action) == ("alice", "submission.withdraw")
        assert kept.after["cancelled"] == [head_to_head]


def test_who_may_withdraw(submit, digits_submission, client, withdraw, bob, olivia):
    submission_id = submit(digits_submission).json()["id"]
    assert withdraw(submission_id, by=bob).status_code == 403
    for body in ({}, {"reason": ""}, {"reason": "  "}, {"reason": 7}, REASON | {"undo": True}):
        assert withdraw(submission_id, body=body).status_code == 422
    assert set(board(client)) == {submission_id}
    assert withdraw(submission_id, by=olivia).status_code == 200
    again = withdraw(submission_id)
    assert again.status_code == 409
    assert again.json()["detail"] == f"Submission {submission_id} is withdrawn already."


def test_the_first_page_and_a_board_load_at_most_60_kb_in_all(digits_submission, submit, client):
    submit(digits_submission)
    for address in ("/", "/benchmarks/digits"):
        page = client.get(address).text
        files = {static_asset(path) for path in re.findall(r'="/static/([^"]+)"', page)}
        loaded = [gzip.compress(page.encode()), *(a.gzip_content for a in files if a is not None)]
        assert len(files) >= 5
        assert sum(map(len, loaded)) < 60_000


def test_a_replay_is_seen_from_the_queue_to_its_verdict(replay, make_report, client):
    link = f'href="/verifications/{replay.verification_id}"'
    queued = client.get("/").text
    assert link in queued
    assert "queued" in words_of(queued)
    assert "requested" in words_of(queued)

    grant = replay.claim().json()
    runs = len(replay.seeds())
    assert f"{runs} runs on walter-1" in words_of(client.get("/").text)
    event = {"sequence": 0, "run": 2, "kind": "evaluation", "epoch": 3.0, "quality": 85.5}
    assert replay.post(grant, [event]).status_code == 200
    running = client.get("/").text
    assert f"run 3 of {runs}, epoch 3, 85.5" in words_of(running)
    assert f'<progress max="{runs}" value="2"' in running

    replay.report(grant, make_report(replay.seeds()))
    ended = client.get("/").text
    assert ended.count(link) == 2  # The race, and the line of its verdict.
    assert "Under way" not in words_of(ended)
    assert re.search(r"(\d) of \1 replays reached top-1 accuracy 97.5", words_of(ended))
