"""A server that only members read: every address as strangers of each kind, and as members."""

import re
from itertools import cycle, islice

import pytest

from tests.support.addresses import addresses
from tests.support.served import served
from tests.sweeps.conftest import populated

# Addresses that need no account. A lease opens those of attempts.
OPEN = re.compile(
    r"/(healthz|readyz|favicon\.ico|robots\.txt|\.well-known/security\.txt|static/.*"
    r"|console/sign-in(/with|/callback)?|join/.*|mail/.*|api/v1/attempts/.*)"
)
# As caches, browsers and scripts ask.
WAYS = (
    ("GET", {"If-None-Match": "*"}),
    ("GET", {"Accept": "text/html"}),
    ("GET", {"Accept-Encoding": "gzip", "Origin": "https://else.example"}),
    ("HEAD", {}),
    ("OPTIONS", {}),
    ("POST", {}),
)


@pytest.fixture(scope="module")
def world(folder):
    with served(folder, reads="members", metrics_token="sixteen letters!") as (client, secret):
        yield populated(client, secret)


@pytest.fixture(scope="module")
def everywhere(world):
    """Every address, of a submission and of its verification."""
    submission = world.submit(model="zyzzyva")
    known = {"benchmark_id": "digits", "index": 0, "submission_id": submission}
    known["verification_id"] = world.verify(submission)
    client = world.client
    client.headers |= world.headers("bob")  # Charts are read from a page.
    found = {address for _, address in addresses(client, known)}
    del client.headers["Authorization"]
    return sorted(found | {"/docs-assets/swagger-ui.css", "/nothing", "/api/v1/nothing"})


@pytest.fixture(scope="module")
def strangers(world):
    """The headers of everybody who is no member, by the reason."""
    for name in ("revoked", "removed"):
        world.person(name, "organiser")
    sessions = {f"session of {name}": world.browser(name) for name in ("revoked", "removed")}
    for token in world.get("/tokens", by="ada")["tokens"]:
        if token["user"] == "revoked":
            world.post(f"/tokens/{token['id']}", by="ada", method="DELETE")
    world.post("/users/removed", {"disabled": True}, by="ada", method="PATCH")
    return sessions | {
        "nobody": {},
        "token of revoked": world.headers("revoked"),
        "token of removed": world.headers("removed"),
        "bad token": {"Authorization": "Bearer fl_none"},
        "bad session": {"Cookie": "finishline_console=none"},
        "other scheme": {"Authorization": "Basic YQ=="},
    }


def test_strangers_read_nothing(everywhere, strangers, world):
    """One layer in front of all asks who it is. So each address gets some strangers and ways."""
    others, ways, wrong = cycle(strangers), cycle(WAYS), []
    for address in everywhere:
        is_open = OPEN.fullmatch(address.partition("?")[0]) is not None
        for who in {"nobody", next(others)}:
            for method, more in (("GET", {}), *islice(ways, 2)):
                headers = strangers[who] | more
                answer = world.client.request(
                    method, address, headers=headers, follow_redirects=False
                )
                signs_in = answer.headers.get("location", "").startswith("/console/sign-in?")
                refused = answer.headers.get("www-authenticate") == "Bearer"
                own_token = address == "/metrics" and answer.status_code in (401, 405)
                closed = (signs_in or refused or own_token) and "etag" not in answer.headers
                if "zyzzyva" in answer.text or not (is_open or closed):
                    wrong.append((method, address, who, answer.status_code))

    assert len(everywhere) > 150
    assert wrong == []


def test_members_read_as_elsewhere(everywhere, world):
    members, statuses = cycle((world.headers("bob"), world.browser("bob"))), []
    for address in everywhere:
        if not OPEN.fullmatch(address) and not address.endswith("/events"):
            answer = world.client.get(address, headers=next(members), follow_redirects=False)
            cached = answer.headers.get("cache-control", "")
            assert "private" in cached or "no-store" in cached, address
            assert "public" not in cached, address
            statuses.append(answer.status_code)

    assert statuses.count(200) > 80
    assert max(statuses) < 500


def test_pages_lead_to_the_sign_in_and_files_do_not(world):
    for page in ("/", "/benchmarks/digits", "/docs/api"):
        answer = world.client.get(page, headers={"Accept": "text/html"}, follow_redirects=False)
        assert answer.status_code == 303, page
    for other in ("/feed.atom", "/openapi.json", "/api/v1/benchmarks", "/api/v1/prices.csv"):
        answer = world.client.get(other, follow_redirects=False)
        assert answer.status_code == 401, other
        assert answer.headers["content-type"] == "application/problem+json", other


def test_link_on_another_site_leads_a_member_to_the_page(world):
    """A browser sends the cookie only with a request from a page of this server."""
    address = "/console/sign-in?next=%2Fprices"
    crossed = world.client.get(address, headers={"Sec-Fetch-Site": "cross-site"})
    signed_in = world.client.get(address, headers=world.browser("alice"), follow_redirects=False)

    assert f'content="0;url={address}"' in crossed.text
    assert signed_in.headers["location"] == "/prices"
