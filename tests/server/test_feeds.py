"""The feeds: what happened on the boards, readable by any feed reader."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.base.settings import Settings

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

NAMES = {"a": "http://www.w3.org/2005/Atom"}


def read(content: bytes) -> ET.Element:
    return ET.fromstring(content)  # noqa: S314  the server under test wrote it


def entries(content: bytes) -> dict[str, tuple[str, str]]:
    """Title and link of each entry by its id."""
    found = {}
    for entry in read(content).findall("a:entry", NAMES):
        link = entry.find("a:link", NAMES)
        assert link is not None
        title, name = (entry.findtext(f"a:{tag}", "", NAMES) for tag in ("title", "id"))
        found[name] = (title, link.get("href") or "")
    return found


def test_records_and_verdicts_are_told_once_each(
    replay: Any, make_report: Callable[..., Any], client: TestClient
) -> None:
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    response = client.get("/feed.atom")

    assert response.headers["content-type"] == "application/atom+xml; charset=utf-8"
    told = entries(response.content)
    record = f"http://testserver/submissions/{replay.submission_id}"
    verdict = f"http://testserver/verifications/{replay.verification_id}"
    assert sorted(link for _, link in told.values()) == sorted([record, verdict])
    assert any("record of" in title and "alice" in title for title, _ in told.values())
    assert any(title.endswith(": verified") for title, _ in told.values())
    assert entries(client.get("/benchmarks/digits/feed.atom").content) == told
    assert entries(client.get("/benchmarks/grammar/feed.atom").content) == {}


def test_a_feed_that_did_not_change_is_304_and_one_that_did_is_not(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient
) -> None:
    known = {"If-None-Match": client.get("/feed.atom").headers["etag"]}
    unchanged = client.get("/feed.atom", headers=known)
    assert (unchanged.status_code, unchanged.content) == (304, b"")

    digits_submission.claim["model"] = '</title><script>alert("x")</script>'
    assert submit(digits_submission).status_code == 201
    changed = client.get("/feed.atom", headers=known)
    assert changed.status_code == 200
    summary = read(changed.content).findtext("a:entry/a:summary", "", NAMES)
    assert summary.startswith('</title><script>alert("x")</script>')
    assert b"<script>" not in changed.content


def test_pages_name_their_feeds_and_an_unknown_benchmark_has_none(client: TestClient) -> None:
    link = '<link rel="alternate" type="application/atom+xml"'
    page = client.get("/benchmarks/digits").text

    assert page.count(link) == 2
    assert 'href="/benchmarks/digits/feed.atom"' in page
    assert client.get("/").text.count(link) == 1
    assert client.get("/benchmarks/nothing/feed.atom").status_code == 404


def test_links_are_those_of_the_public_address_where_one_is_set(settings: Settings) -> None:
    public = settings.model_copy(update={"public_url": "https://finishline.example.org/"})
    with TestClient(create_app(public, dispatch=False)) as client:
        links = read(client.get("/feed.atom").content).findall("a:link", NAMES)

    assert [link.get("href") for link in links] == [
        "https://finishline.example.org/feed.atom",
        "https://finishline.example.org/",
    ]
