"""Boards under an embargo, before its end and after it, and the feeds of the boards."""

import logging
import re
from copy import deepcopy
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest
from sqlalchemy import select, update

from server.base.database import utc_now
from server.base.http import CURRENT
from server.base.models import BenchmarkPhases, User
from server.benchmarks.in_force import PhaseWatch
from tests.support.boards import rows_of
from tests.support.build import taken
from tests.support.copies import serving
from tests.support.pages import BROWSER, sign_in
from tests.support.services import services_of

BOARD = "/api/v1/leaderboards/digits"
PREVIEW = f"{BOARD}/preview"
HOUR = timedelta(hours=1)
QUERIES = (
    "", "?metric=cost", "?metric=latency", "?division=open", "?q=ALICE", "?sort=model&order=desc",
    "?withdrawn=show", "?clock=dawnbench", "?target=95", "?price=2", "?prices_on=2026-01-01",
    "?limit=2&page=2",
)  # fmt: skip
# What a board that is asked for twice says of itself.
ONE_VERSION = ("version", "next_cursor", "preview")


@pytest.fixture
def send(digits_submission, submit, make_log):
    def made(pace, *, by=None, **claim):
        parts = deepcopy(digits_submission)
        parts.claim |= claim
        for index, name in enumerate(parts.logs):
            how = {"division": parts.claim["division"], "seconds_per_epoch": pace + 0.001 * index}
            parts.logs[name] = make_log(index, name=name, **how)
        return taken(submit(parts, by=by))["id"]

    return made


@pytest.fixture
def hidden(embargo, send, alice, bob):
    """Three that are hidden, the fastest first; one slower than the first was published before."""
    send(0.11, by=alice)
    embargo(timedelta(days=1))
    ids = [
        send(0.10, by=bob, model="zyzzyva 1"),
        send(0.12, by=alice, model="zyzzyva 2"),
        send(0.13, by=bob, model="zyzzyva 3", division="open"),
    ]
    withdrawn = send(0.09, by=alice, model="zyzzyva 4")
    address = f"/api/v1/submissions/{withdrawn}/withdrawal"
    assert alice.post(address, {"reason": "-"}).is_success
    return ids


def read(person, query=""):
    answer = person.get(PREVIEW + query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def without(board):
    return {name: value for name, value in board.items() if name not in ONE_VERSION}


def test_preview_is_the_later_board(hidden, client, embargo, olivia, ada, bob, database, caplog):
    before = {query: read(olivia, query) for query in QUERIES}
    assert read(ada) == before[""]
    whole = [entry["submission_id"] for entry in rows_of(before[""])]
    assert (whole[0], whole[2]) == tuple(hidden[:2])
    assert len(rows_of(client.get(BOARD).json())) == 1

    # It says what is hidden and until when.
    until = client.get("/api/v1/benchmarks/digits/phases").json()["phases"]["embargo_until"]
    found = read(olivia, "?limit=2")["preview"]
    assert (found["embargo_until"], found["hidden"]) == (until, hidden[:1])
    assert found["hidden_total"] == 2
    minute = f"{until[:10]} {until[11:19].removesuffix(':00')} UTC"
    assert found["note"] == (
        f"Only organisers see this: the board as if its embargo, until {minute}, had ended. "
        "2 of its 3 submissions are hidden from the public."
    )
    open_division = before["?division=open"]["preview"]
    assert (open_division["hidden"], open_division["hidden_total"]) == (hidden[2:], 1)
    assert "1 of its 1 submission is hidden" in open_division["note"]
    withdrawn = read(olivia, "?withdrawn=show&limit=2&page=2")["preview"]
    assert (withdrawn["hidden_total"], len(withdrawn["hidden"])) == (3, 2)

    # Its pages follow each other.
    first = olivia.get(f"{PREVIEW}?limit=2")
    assert first.headers["X-Total-Count"] == "3"
    [following] = re.findall(r'<(.*)>; rel="next"', first.headers["Link"])
    assert following.startswith(f"{PREVIEW}?")
    second = olivia.get(following).json()
    both = rows_of(first.json()) + rows_of(second)
    assert [entry["submission_id"] for entry in both] == whole
    assert (second["preview"]["hidden"], second["next_cursor"]) == (hidden[1:2], None)
    assert olivia.get(f"{PREVIEW}?cursor=x").status_code == 422

    # The server's log says who looks.
    looks = []
    caplog.set_level(logging.INFO, "server.boards.board")
    caplog.handler.addFilter(lambda line: looks.append((line.getMessage(), CURRENT.get())) or True)
    read(olivia)
    bob.get(PREVIEW)
    sign_in(client, ada)
    page = "/console/leaderboards/digits/preview"
    assert client.get(page, headers=BROWSER).status_code == 200
    embargo(None)
    for query, board in before.items():
        assert without(board) == without(client.get(BOARD + query).json()), query
    read(olivia)
    with database.read() as session:
        ids = {user.name: user.id for user in session.scalars(select(User))}
    sentence = "the board of digits was looked at under embargo"
    seen = [at.noted["user_id"] for told, at in looks if told == sentence]
    assert seen == [ids["olivia"], ids["ada"]]


def test_without_an_embargo_it_is_the_board(send, client, olivia, embargo):
    assert without(read(olivia)) == without(client.get(BOARD).json())
    send(0.11)
    embargo(timedelta(days=1))
    for until in (timedelta(days=1), None):
        embargo(until)
        board = read(olivia)
        assert without(board) == without(client.get(BOARD).json())
        assert board["preview"]["hidden"] == []
        assert board["preview"]["note"] == ("Nothing is under embargo: this is the public board.")


NAMES = {"a": "http://www.w3.org/2005/Atom"}


def read_feed(content):
    return ET.fromstring(content)  # noqa: S314  the server under test wrote it


def entries(content):
    found = {}
    for entry in read_feed(content).findall("a:entry", NAMES):
        link = entry.find("a:link", NAMES)
        assert link is not None
        title, name = (entry.findtext(f"a:{tag}", "", NAMES) for tag in ("title", "id"))
        found[name] = (title, link.get("href") or "")
    return found


def test_records_and_verdicts_are_told_once_each(replay, client):
    replay.train()
    response = client.get("/feed.atom")

    assert response.headers["content-type"] == "application/atom+xml; charset=utf-8"
    told = entries(response.content)
    record = f"http://testserver/submissions/{replay.submission_id}"
    verdict = f"http://testserver/verifications/{replay.verification_id}"
    assert sorted(link for _, link in told.values()) == sorted([record, verdict])
    assert any("record of" in title and "alice" in title for title, _ in told.values())
    assert any(title.endswith(": measured") for title, _ in told.values())
    assert entries(client.get("/benchmarks/digits/feed.atom").content) == told
    assert entries(client.get("/benchmarks/grammar/feed.atom").content) == {}


def test_unchanged_feed_is_304(digits_submission, publish, client):
    known = {"If-None-Match": client.get("/feed.atom").headers["etag"]}
    unchanged = client.get("/feed.atom", headers=known)
    assert (unchanged.status_code, unchanged.content) == (304, b"")

    digits_submission.claim["model"] = '</title><script>alert("x")</script>'
    publish(digits_submission)
    changed = client.get("/feed.atom", headers=known)
    assert changed.status_code == 200
    summary = read_feed(changed.content).findtext("a:entry/a:summary", "", NAMES)
    assert summary.startswith('</title><script>alert("x")</script>')
    assert b"<script>" not in changed.content


def test_links_are_those_of_the_public_address_where_one_is_set(settings):
    site = "https://finishline.example.org/"
    with serving(settings.model_copy(update={"public_url": site})) as client:
        links = read_feed(client.get("/feed.atom").content).findall("a:link", NAMES)

    assert [link.get("href") for link in links] == [f"{site}feed.atom", site]


def shown(client):
    return {entry["submission_id"] for entry in rows_of(client.get(BOARD).json())}


def test_results_appear_at_the_date(embargo, submit, digits_submission, client, database, settings):
    before = submit(digits_submission).json()["id"]
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    watch = services_of(client).of(PhaseWatch)
    watch.look_once()
    first = client.get(BOARD)
    assert shown(client) == {before}
    assert client.get(BOARD, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    # What was published before the embargo stays; the counts give the hidden one away no more.
    assert client.get("/api/v1/benchmarks/digits").json()["submissions"] == 1
    with serving(settings) as other:
        assert shown(other) == {before}
        with database.write() as session:
            session.execute(update(BenchmarkPhases).values(embargo_until=utc_now()))
        services_of(other).of(PhaseWatch).look_once()
        assert shown(other) == {before, hidden}
        assert shown(client) == {before, hidden}
        assert client.get(BOARD).json()["version"] > first.json()["version"]
        version = client.get(BOARD).json()["version"]
        watch.look_once()
        assert client.get(BOARD).json()["version"] == version
    assert client.get(f"/api/v1/submissions/{hidden}").json()["under_embargo"] is False
    # What was shown once is not hidden again. One that is moved holds on, and one that is taken
    # away is over at once.
    embargo(HOUR)
    later = submit(digits_submission).json()["id"]
    embargo(2 * HOUR)
    watch.look_once()
    assert shown(client) == {before, hidden}
    embargo(None)
    assert shown(client) == {before, hidden, later}


def test_members_of_the_organisation_see_it(embargo, submit, digits_submission, bob, ada):
    for name in ("Example Labs", "Other Labs"):
        ada.post("/api/v1/organisations", {"name": name})

    def move(name, organisation):
        answer = ada.patch(f"/api/v1/users/{name}", {"organisation": organisation})
        assert answer.status_code == 200, answer.text

    def bob_gets(method="GET", more="", json=None):
        return bob.ask(method, f"/api/v1/submissions/{hidden}{more}", json).status_code

    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    move("alice", "Example Labs")
    assert bob_gets() == 404
    move("bob", "Example Labs")
    assert bob_gets() == 200
    # To see is not to change: it is refused as another's, not as what is not there.
    assert bob_gets("POST", "/withdrawal", json={"reason": "not mine"}) == 403
    assert bob_gets("POST", "/verifications", json={}) == 403
    assert hidden not in bob.get(BOARD).text
    move("bob", "Other Labs")
    assert bob_gets() == 404
    # Whoever is in none shares none with others who are in none.
    move("alice", None)
    move("bob", None)
    assert bob_gets() == 404
    assert bob_gets("POST", "/withdrawal", json={"reason": "not mine"}) == 404
