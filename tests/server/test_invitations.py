"""Links by which people join: who makes them, how often they work, and all that ends them."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import utc_now
from server.base.models import AuditRecord, Invitation, User
from tests.support.build import Person, taken
from tests.support.pages import ORIGIN, sign_in

LINKS, ME = "/api/v1/invitations", "/api/v1/me"


@pytest.fixture
def invite(olivia):
    def make(*, by=olivia, **wanted):
        return taken(by.post(LINKS, wanted))["link"].removeprefix("http://testserver")

    return make


def join(client, link, name, **fields):
    client.cookies.clear()
    return client.post(link, data={"name": name, **fields}, headers=ORIGIN, follow_redirects=False)


def holder_of(joined, client):
    """Who joined, with the token that the answer shows."""
    assert (joined.status_code, joined.headers["cache-control"]) == (200, "no-store")
    (secret,) = re.findall(r">(fl_[\w-]{43})<", joined.text)
    return Person("", secret, client)


def test_one_person_joins_by_a_link_and_sees_their_token_once(client, invite, database):
    link = invite(name="carol c")
    assert 'value="carol c"' in client.get(link).text

    answer = join(client, link, "carol c", email="carol@uni.example")

    carol = holder_of(answer, client)
    assert carol.secret not in str(answer.headers) + str(dict(client.cookies))
    assert "fl_" not in client.get("/account").text.partition('id="tokens"')[0]
    holder = carol.get(ME).json()
    told = ("carol c", "submitter", "carol@uni.example")
    assert (holder["user"], holder["role"], holder["email"]) == told
    again = join(client, link, "dave")
    assert (again.status_code, "This link was used already" in again.text) == (409, True)
    with database.read() as session:
        actions = session.scalars(select(AuditRecord.action).order_by(AuditRecord.id)).all()
        kept = session.scalars(select(Invitation)).one()
        assert session.scalar(select(User).where(User.name == "dave")) is None
    written = [one for one in actions if one != "token.create"]
    assert written == ["invitation.create", "invitation.use"]
    assert link.partition("-")[2] not in kept.code_sha256


def test_a_class_joins_until_the_uses_end_with_addresses_of_its_domain(client, invite, ada):
    link = invite(uses=2, mail_domain="uni.example", known=True)

    for wrong in ("eve@elsewhere.example", "eve@notuni.example", ""):
        refused = join(client, link, "eve", email=wrong)
        assert (refused.status_code, "uni.example" in refused.text) == (422, True)
        assert 'value="eve"' in refused.text
    assert join(client, link, "eve", email="eve@UNI.example").status_code == 200
    taken = join(client, link, "eve", email="other@uni.example")
    assert (taken.status_code, 'id="e-name"' in taken.text) == (422, True)
    assert 'value="other@uni.example"' in taken.text
    assert join(client, link, "frank", email="f@uni.example").status_code == 200
    known = ada.get("/api/v1/users/frank").json()["known_at"]
    assert known is not None
    closed = client.get(link)
    assert (closed.status_code, "used 2 times" in closed.text) == (409, True)


def test_link_ends_with_day_revocation_or_token(client, invite, olivia, ada, database):
    expired, revoked, orphan = invite(), invite(), invite(uses=2)
    carol = holder_of(join(client, orphan, "carol"), client)
    with database.write() as session:
        session.get_one(Invitation, 1).expires_at = utc_now() - timedelta(seconds=1)
    assert olivia.delete(f"{LINKS}/2").json()["state"] == "revoked"

    assert "This link ended on" in join(client, expired, "dave").text
    assert "This link was revoked" in join(client, revoked, "dave").text
    number = olivia.get(ME).json()["token_id"]
    assert ada.delete(f"/api/v1/tokens/{number}").status_code == 200
    assert "This link was revoked" in join(client, orphan, "dave").text
    assert carol.get(ME).status_code == 401  # Who joined loses their token with it.
    states = ada.get(LINKS).json()["invitations"]
    assert [one["state"] for one in states] == ["revoked"] * 3


def test_nobody_makes_a_link_beyond_their_own_rights(client, invite, olivia, ada, alice):
    ada.post("/api/v1/organisations", {"name": "Labs"})

    def ask(person, **wanted):
        return person.post(LINKS, wanted).status_code

    assert ask(alice) == 403
    assert ask(olivia, role="organiser") == 403
    assert ask(olivia, organisation="Labs") == 403
    assert ask(olivia, uses=2, name="carol") == 422
    for day in ("2020-01-01", "2099-01-01"):
        assert ask(olivia, last_day=day) == 422
    link = invite(by=ada, role="organiser", organisation="Labs")
    joined = join(client, link, "carol")
    assert holder_of(joined, client).get(ME).json()["organisation"] == "Labs"
    assert olivia.get(LINKS).json()["invitations"] == []
    assert olivia.delete(f"{LINKS}/1").status_code == 404


def test_codes_are_not_guessed_and_forms_of_other_sites_make_nobody(client, invite):
    link = invite()
    foreign = client.post(link, data={"name": "x"}, headers={"Origin": "https://elsewhere.example"})
    assert foreign.status_code == 403
    for wrong in (link[:-1] + ("a" if link[-1] != "a" else "b"), "/join/99-x", "/join/1"):
        assert client.get(wrong).status_code == 404
    for _ in range(10):
        last = client.get("/join/unknown")
    assert (last.status_code, "Retry-After" in last.headers) == (429, True)
    assert client.get(link).status_code == 200


@pytest.mark.parametrize(
    "database_url",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)],
    indirect=True,
)
def test_a_link_for_one_is_used_by_one_of_two_at_once(client, invite, database):
    link = invite()

    def use(name):
        sent = {"name": name}
        visitor = TestClient(client.app)
        return visitor.post(link, data=sent, headers=ORIGIN, follow_redirects=False).status_code

    with ThreadPoolExecutor(2) as pool:
        codes = sorted(pool.map(use, ("carol", "dave")))

    assert codes == [200, 409]


def test_an_organiser_makes_and_revokes_links_in_the_console(client, olivia):
    sign_in(client, olivia)

    def send(path, **fields):
        return client.post(f"/console/invitations{path}", data=fields, headers=ORIGIN)

    wrong = send("", role="submitter", uses="0")
    assert (wrong.status_code, 'id="e-uses"' in wrong.text) == (422, True)
    domain = send("", role="submitter", mail_domain="not a domain")
    assert "Expected a mail domain, such as uni.example." in domain.text
    made = send("", role="submitter", uses="3", last_day=str(utc_now().date()))
    assert re.search(r">http://testserver/join/1-[\w-]{32}<", made.text)
    assert "0 of 3" in made.text
    assert "Link 1 is revoked." in send("/1/revoke").text
