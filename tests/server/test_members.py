"""A server that members alone read: every address, as strangers of each kind and as members."""

import re
import threading
from datetime import timedelta
from itertools import cycle, islice

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.base.database import utc_now
from server.base.models import ConsoleSession, Token
from server.base.settings import Settings
from server.people.accounts import hash_token
from tests.support.every_address import (
    CANARY,
    addresses,
    carol,
    hidden,
    organisations,
    told,
)

__all__ = ["carol", "hidden", "organisations"]
COOKIE = "finishline_console"
ORIGIN = {"Origin": "http://testserver"}
# Addresses that need no account; under the last ones a lease is asked for.
OPEN = re.compile(
    r"/(healthz|readyz|favicon\.ico|robots\.txt|\.well-known/security\.txt|static/.*|console/sign-in(/with|/callback)?"
    r"|join/.*|mail/(confirm|unsubscribe)/.*|api/v1/attempts/.*)"
)
# As caches, browsers and scripts ask.
EVERY_WAY = (
    ("GET", {}),
    ("GET", {"If-None-Match": "*"}),
    ("GET", {"Accept": "text/html"}),
    ("GET", {"Accept-Encoding": "gzip", "Origin": "https://else.example"}),
    ("HEAD", {}),
    ("OPTIONS", {}),
    ("POST", {}),
)


@pytest.fixture
def settings(settings):
    """Settings of a server that members alone read."""
    return settings.model_copy(update={"reads": "members"})


@pytest.fixture
def sign_in(client):
    """Signs somebody in; returns the header of their browser."""

    def cookie_of(person):
        sent = {"token": person.secret}
        answer = client.post("/console/sign-in", data=sent, headers=ORIGIN, follow_redirects=False)
        secret = answer.cookies[COOKIE]
        client.cookies.clear()
        return {"Cookie": f"{COOKIE}={secret}"}

    return cookie_of


@pytest.fixture
def strangers(make_person, sign_in, database):
    """Headers of everybody who is no member, by the reason."""
    people = {name: make_person(name, "organiser") for name in ("expired", "revoked", "removed")}
    idle = make_person("idle", "organiser")
    cookies = {f"session of {name}": sign_in(person) for name, person in people.items()}
    cookies["idle session"] = sign_in(idle)
    ended = hash_token(cookies["idle session"]["Cookie"].partition("=")[2])
    with database.write() as session:
        session.get_one(ConsoleSession, ended).last_seen_at = utc_now() - timedelta(hours=13)
        for name in people:
            token = session.query(Token).filter(Token.user.has(name=name)).one()
            if name == "expired":
                token.expires_at = utc_now()
            elif name == "revoked":
                token.revoked_at = utc_now()
            else:
                token.user.disabled_at = utc_now()
    return (
        {"nobody": {}, "bad token": {"Authorization": "Bearer fl_none"}}
        | {"bad session": {"Cookie": f"{COOKIE}=none"}}
        | {"other scheme": {"Authorization": "Basic YQ=="}}
        | {f"token of {name}": person.headers for name, person in people.items()}
        | cookies
    )  # fmt: skip


def is_stream(address):
    return address.endswith("/events")


def test_no_address_tells_a_stranger_anything_and_members_read_as_they_do_elsewhere(
    hidden, client, settings, strangers, sign_in, bob
):
    browser = sign_in(bob)
    everywhere = {address for _, address in addresses(client, hidden)}
    everywhere |= {"/docs-assets/swagger-ui.css", "/nothing", "/api/v1/nothing"}
    # One layer in front of all asks who it is: everybody comes to many addresses, in every way.
    read, next_member, next_stranger = 0, cycle((bob.headers, browser)), cycle(strangers)
    next_way = cycle(EVERY_WAY)
    public = settings.model_copy(update={"reads": "public"})
    with TestClient(create_app(public, dispatch=False)) as elsewhere:
        for address in sorted(everywhere):
            is_open = OPEN.fullmatch(address.partition("?")[0]) is not None
            if not is_open and not is_stream(address):
                person = next(next_member)
                here = client.get(address, headers=person, follow_redirects=False)
                there = elsewhere.get(address, headers=person, follow_redirects=False)
                assert here.status_code == there.status_code, address
                cached = here.headers.get("cache-control", "")
                assert "private" in cached or "no-store" in cached, address
                assert "public" not in cached, address
                read += here.status_code == 200
            for who in {"nobody", next(next_stranger)}:
                headers = strangers[who]
                for method, more in (EVERY_WAY[0], *islice(next_way, 2)):
                    answer = client.request(
                        method, address, headers=headers | more, follow_redirects=False
                    )
                    text = answer.text.replace(address, "")
                    where = f"{method} {address} as {who}: {answer.status_code} {text[:200]}"
                    assert not any(word in text for word in (CANARY, *told(hidden))), where
                    if is_open:
                        continue
                    if answer.status_code == 303:
                        assert answer.headers["location"].startswith("/console/sign-in?"), where
                    else:
                        assert answer.status_code == 401, where
                        assert answer.headers["www-authenticate"] == "Bearer", where
                    assert "etag" not in answer.headers, where
    assert read > 100


def test_pages_lead_to_the_sign_in_and_everything_else_is_401(client, replay, alice):
    for page in ("/", "/benchmarks/digits", f"/submissions/{replay.submission_id}", "/docs/api"):
        answer = client.get(page, headers={"Accept": "text/html"}, follow_redirects=False)
        assert answer.status_code == 303, page
    for other in (
        "/feed.atom", "/openapi.json", "/metrics", "/api/v1/benchmarks", "/api/v1/prices.csv",
        f"/submissions/{replay.submission_id}/badge.svg",
        "/benchmarks/digits/charts/runs", "/docs/images/none.png",
        f"/api/v1/verifications/{replay.verification_id}/proof",
        f"/api/v1/verifications/{replay.verification_id}/events",
    ):  # fmt: skip
        answer = client.get(other, follow_redirects=False)
        assert answer.status_code == 401, other
        assert answer.headers["content-type"] == "application/problem+json", other
    # After the sign-in the page asked for is shown.
    asked = client.get("/benchmarks/digits?sort=model", follow_redirects=False)
    form = client.get(asked.headers["location"])
    assert 'name="next" value="/benchmarks/digits?sort=model"' in form.text
    sent = {"token": alice.secret, "next": "/benchmarks/digits?sort=model"}
    came = client.post("/console/sign-in", data=sent, headers=ORIGIN)
    assert (came.status_code, came.url.path) == (200, "/benchmarks/digits")
    # Never somewhere else.
    for bad in ("//evil.example", "/\\evil.example", "https://evil.example/", "/api/v1/me"):
        answer = client.post(
            "/console/sign-in",
            data=sent | {"next": bad},
            headers=ORIGIN,
            follow_redirects=False,
        )
        assert answer.headers["location"] == "/console", bad


def test_a_link_on_another_site_leads_a_member_to_the_page(client, alice):
    crossed = client.get("/console/sign-in?next=/prices", headers={"Sec-Fetch-Site": "cross-site"})
    assert 'content="0;url=/console/sign-in?next=%2Fprices"' in crossed.text
    client.post("/console/sign-in", data={"token": alice.secret}, headers=ORIGIN)
    answer = client.get("/console/sign-in?next=%2Fprices", follow_redirects=False)
    assert answer.headers["location"] == "/prices"


def test_a_live_stream_is_a_members(replay, client, make_report, bob):
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    address = f"/api/v1/verifications/{replay.verification_id}/events"
    assert client.get(address).status_code == 401
    read = []
    reader = threading.Thread(
        target=lambda: read.append(client.get(address, headers=bob.headers).text)
    )
    reader.start()
    reader.join(timeout=20)
    assert "event: end" in read[0]


def test_metrics_with_a_token_of_their_own_ask_for_that(settings):
    token = Settings(metrics_token="sixteen letters!").metrics_token
    with_token = settings.model_copy(update={"metrics_token": token})
    with TestClient(create_app(with_token, dispatch=False)) as client:
        headers = {"Authorization": "Bearer sixteen letters!"}
        assert client.get("/metrics", headers=headers).status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.get("/", follow_redirects=False).status_code == 303
