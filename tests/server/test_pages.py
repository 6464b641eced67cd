"""The pages: each answers, none trusts what a stranger wrote, errors fit who asked."""

import gzip
import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

HOSTILE = '<script>alert("x")</script>\'"><img src=x onerror=alert(1)>'
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

pytestmark = pytest.mark.usefixtures("claims_are_numbered", "shown_claims")


def app_of(client: TestClient) -> FastAPI:
    return client.app  # type: ignore[return-value]


@pytest.fixture
def hostile(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient, olivia: Any
) -> dict[str, str]:
    """Addresses of pages that show what somebody hostile wrote wherever they could."""
    digits_submission.claim |= {
        "model": HOSTILE,
        "framework": HOSTILE,
        "notes": HOSTILE,
        "code_url": f"https://example.org/{HOSTILE}",
    }
    digits_submission.claim["system"] |= {
        "name": HOSTILE,
        "processor": HOSTILE,
        "accelerator": HOSTILE,
        "price_source": HOSTILE,
    }
    name = "<img src=x onerror=alert(1)>.log"
    digits_submission.logs[name] = digits_submission.logs.pop("run_0.log")
    digits_submission.claim["runs"][0] = name
    response = submit(digits_submission)
    assert response.status_code == 201, response.text
    submission_id = response.json()["id"]
    verification = client.post(
        f"/api/v1/submissions/{submission_id}/verifications",
        json={"reason": HOSTILE},
        headers=olivia.headers,
    ).json()
    return {
        "home": "/",
        "benchmark": f"/benchmarks/digits?q={'%3Cscript%3E'}",
        "board": "/benchmarks/digits",
        "submission": f"/submissions/{submission_id}",
        "verification": f"/verifications/{verification['id']}",
        "workers": "/workers",
    }


@pytest.mark.parametrize(
    "page", ["home", "benchmark", "board", "submission", "verification", "workers"]
)
def test_a_page_escapes_what_a_stranger_wrote(
    page: str,
    hostile: dict[str, str],
    client: TestClient,
    walter: Any,
    make_report: Callable[..., Any],
) -> None:
    system = vars(make_report([]).system) | {"worker": HOSTILE, "processor": HOSTILE}
    hello = {"system": system, "state": "idle"}
    client.post("/api/v1/workers/hello", json=hello, headers=walter.headers)
    response = client.get(hostile[page], headers=BROWSER)

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script>alert" not in response.text
    assert "<script>" not in response.text.replace('<script type="', "")
    assert "<img src=x" not in response.text
    if page in ("board", "submission", "workers"):
        assert "&lt;script&gt;alert" in response.text


def test_a_page_has_headers_that_keep_it_to_itself(client: TestClient) -> None:
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
def test_a_browser_gets_a_page_and_a_program_gets_json_for_what_is_not_there(
    path: str, client: TestClient
) -> None:
    page = client.get(path, headers=BROWSER)
    assert page.status_code == 404
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "404" in page.text

    program = client.get(path, headers={"Accept": "*/*"})
    assert program.status_code == 404
    assert program.headers["content-type"] == "application/problem+json"
    assert program.json()["title"] in ("Not found", "Not Found")


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v1/submissions/nothing"])
def test_the_api_answers_json_to_a_browser_too(path: str, client: TestClient) -> None:
    response = client.get(path, headers=BROWSER)

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("query", "said", "kept"),
    [
        ({"sort": "luck"}, "Sort “luck”: expected 'rank'", "luck"),
        ({"target": "high", "q": "cnn"}, "Target “high”: expected a number", 'value="high"'),
        ({"target": "140"}, "expected a top1Accuracy from 0 to 100 (percent)", 'value="140"'),
        ({"date_from": "May"}, "From “May”: no day; expected one like 2026-11-21", 'value="May"'),
        ({"price": "-1"}, "Your price “-1”: expected greater than 0", 'value="-1"'),
        ({"cursor": "7.7"}, "Cursor “7.7”: The board has changed", ""),
        ({"colour": "<red>"}, "Colour “<red>”: unknown filter", ""),
    ],
)
def test_a_query_that_makes_no_sense_gives_its_form_again(
    query: dict[str, str], said: str, kept: str, client: TestClient
) -> None:
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
    ["/", "/benchmarks/digits", "/workers", "/api/v1/leaderboards/digits", "/api/v1/benchmarks"],
)
def test_head_is_answered_like_get_without_the_body(path: str, client: TestClient) -> None:
    asked = client.get(path)
    head = client.head(path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == asked.headers["content-type"]
    assert head.headers.get("etag") == asked.headers.get("etag")
    assert client.head("/api/v1/verifications/x/events").status_code == 405


def test_a_board_that_is_known_is_not_sent_again_and_travels_compressed(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient
) -> None:
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


def test_a_wrong_method_is_405_and_tells_the_right_one(client: TestClient) -> None:
    response = client.delete("/api/v1/benchmarks")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET"
    several = client.delete("/api/v1/submissions").headers["allow"]
    assert set(several.split(", ")) - {"HEAD"} == {"GET", "POST"}
    assert response.headers["content-type"] == "application/problem+json"
    # Next to it every name of a worker has a page.
    assert client.delete("/api/v1/workers/hello").headers["allow"] == "POST"
    assert app_of(client).openapi_schema is None, "to describe the whole API takes half a second"


def test_the_methods_of_an_address_are_those_that_are_described(client: TestClient) -> None:
    described = {
        path: {method.upper() for method in methods}
        for path, methods in app_of(client).openapi()["paths"].items()
        if "{" not in path
    }
    assert app_of(client).state.named_methods == described


@pytest.mark.parametrize(
    "chart", ["benchmarks/digits/charts/pareto.json", "submissions/{}/charts/curves.json"]
)
def test_charts_are_figures(
    chart: str, digits_submission: Any, submit: Callable[..., Any], client: TestClient
) -> None:
    submission_id = submit(digits_submission).json()["id"]
    response = client.get("/" + chart.format(submission_id))

    assert response.status_code == 200
    assert response.json()["data"]


def test_the_chart_of_a_replay_is_a_figure(replay: Any, client: TestClient) -> None:
    response = client.get(f"/verifications/{replay.verification_id}/charts/replay.json")

    assert response.status_code == 200
    assert {"data", "layout"} <= response.json().keys()


@pytest.fixture
def static_paths(replay: Any, client: TestClient) -> list[str]:
    """The addresses of the static files of a page that has all of them."""
    page = client.get(f"/verifications/{replay.verification_id}").text
    return re.findall(r'"(/static/[^"]+)"', page)


def test_every_static_file_of_a_page_is_served_for_ever(
    static_paths: list[str], client: TestClient
) -> None:
    names = {path.rsplit("/", 1)[-1] for path in static_paths}
    assert {"style.css", "charts.js", "replay.js", "plotly.min.js"} <= names
    for path in static_paths:
        response = client.get(path)
        assert response.status_code == 200, path
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_static_file_is_sent_compressed_to_who_reads_it(
    static_paths: list[str], client: TestClient
) -> None:
    path = next(path for path in static_paths if path.endswith(".css"))
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
        sent = b"".join(packed.iter_raw())

    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(sent) == plain.content
    assert len(sent) < len(plain.content)


def test_a_static_file_that_is_known_is_304(static_paths: list[str], client: TestClient) -> None:
    etag = client.get(static_paths[0]).headers["etag"]
    response = client.get(static_paths[0], headers={"If-None-Match": etag})

    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == etag


@pytest.mark.parametrize(
    "path", ["nothing.css", "../render.py", "%2e%2e/render.py", "..%2frender.py", "", "%00"]
)
def test_nothing_but_static_files_is_served(path: str, client: TestClient) -> None:
    assert client.get(f"/static/{path}").status_code == 404


def test_the_api_is_described_below_the_docs(client: TestClient) -> None:
    response = client.get("/docs/api")

    assert response.status_code == 200
    assert "unsafe" not in response.headers["content-security-policy"]
    assert 'data-openapi="/openapi.json"' in response.text
    for address in re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', response.text):
        assert client.get(address).status_code == 200, address
    assert re.findall(r"<script(?![^>]* src=)", response.text) == []
