"""Sign-in with an OpenID provider, against a real one: registering, connecting, refusals."""

import base64
import time
from urllib.parse import parse_qs, urlsplit

import httpx2
import oidc_provider_mock
import pytest
from fastapi.testclient import TestClient
from joserfc import jws, jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from sqlalchemy import func, select

from server.app import create_app
from server.base.errors import NotSignedInError, UnavailableError
from server.base.models import AuditRecord, User
from server.base.settings import Settings
from server.people import openid
from server.people.id_tokens import verified_claims
from tests.support.pages import ORIGIN

# The provider's own, of the library that it is built on.
pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")
CALLBACK = "/console/sign-in/callback"


@pytest.fixture(scope="module")
def issuer():
    """A provider that lets in whoever is named."""
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def settings(settings, issuer, request):
    """Settings with the provider; registration is on but for tests marked otherwise."""
    return settings.model_copy(
        update={
            "oidc_issuer": issuer,
            "oidc_client_id": "finishline",
            "oidc_client_secret": Settings(oidc_client_secret="not known").oidc_client_secret,
            "self_registration": getattr(request, "param", True),
        }
    )


@pytest.fixture
def come_in(client, issuer):
    """Signs somebody in at the provider; returns our answer to its code."""

    def sign_in(subject, *, begin="", **claims):
        httpx2.put(f"{issuer}/users/{subject}", json=claims).raise_for_status()
        start = client.get(f"/console/sign-in/with{begin}", follow_redirects=False)
        assert start.status_code == 303, start.text
        chosen = httpx2.post(start.headers["location"], data={"sub": subject})
        return return_with(client, urlsplit(chosen.headers["location"]).query)

    return sign_in


def return_with(client, query):
    """Come back from the provider: by way of a page of ours."""
    bounce = client.get(f"{CALLBACK}?{query}", follow_redirects=False)
    assert (bounce.status_code, "set-cookie" in bounce.headers) == (200, False)
    return client.get(f"{CALLBACK}?{query}&here=true", headers=ORIGIN, follow_redirects=False)


def users(database):
    with database.read() as session:
        return list(session.scalars(select(User.name).order_by(User.id)))


def test_a_stranger_registers_and_is_the_same_user_afterwards(come_in, client, database):
    answer = come_in("s-1", preferred_username="grace", email="g@x.example", email_verified=True)

    assert (answer.status_code, answer.headers["location"]) == (303, "/account")
    page = client.get("/account").text
    assert "Welcome, grace." in page
    assert "g@x.example" in page
    client.cookies.clear()
    assert come_in("s-1", preferred_username="renamed").status_code == 303
    assert users(database) == ["grace"]
    with database.read() as session:
        actions = session.scalars(select(AuditRecord.action).order_by(AuditRecord.id)).all()
    assert actions == ["user.register", "token.create"]


def test_one_address_or_name_at_two_subjects_makes_two_users(come_in, client, database, alice):
    for subject in ("s-1", "s-2"):
        client.cookies.clear()
        come_in(subject, preferred_username="alice", email="a@x.example", email_verified=True)

    first, second, third = users(database)
    assert first == "alice"
    assert second != third
    assert second.startswith("alice-")
    assert third.startswith("alice-")


def test_an_address_that_nobody_verified_is_not_kept(come_in, database):
    come_in("s-1", preferred_username="grace", email="g@x.example", email_verified=False)

    with database.read() as session:
        assert session.scalars(select(User.email)).one() is None


@pytest.mark.parametrize("settings", [False], indirect=True)
def test_without_registration_an_identity_is_connected_first(come_in, client, database, alice, bob):
    stranger = come_in("s-1", preferred_username="grace")
    assert (stranger.status_code, "Join by a link" in stranger.text) == (403, True)
    client.post("/console/sign-in", data={"token": alice.secret}, headers=ORIGIN)

    assert come_in("s-1", begin="?connect=true").status_code == 303

    assert "You can sign in with OpenID from now on." in client.get("/account").text
    client.cookies.clear()
    assert come_in("s-1", begin="?next=/submit").headers["location"] == "/submit"
    assert "<b>alice</b>" in client.get("/account").text
    client.post("/console/sign-in", data={"token": bob.secret}, headers=ORIGIN)
    taken = come_in("s-1", begin="?connect=true")
    assert (taken.status_code, "belongs to another user" in taken.text) == (409, True)
    client.cookies.clear()
    assert come_in("s-1", begin="?connect=true").status_code == 401
    assert users(database) == ["alice", "bob"]


@pytest.mark.parametrize("settings", [False], indirect=True)
def test_next_identity_replaces_the_earlier(come_in, client, database, alice):
    client.post("/console/sign-in", data={"token": alice.secret}, headers=ORIGIN)
    for subject in ("s-1", "s-2"):
        assert come_in(subject, begin="?connect=true").status_code == 303
    client.cookies.clear()

    assert come_in("s-1").status_code == 403
    assert come_in("s-2").status_code == 303
    with database.read() as session:
        actions = session.scalars(select(AuditRecord.action).order_by(AuditRecord.id)).all()
    assert actions[-3:] == ["user.connect", "token.create", "user.connect"]


def test_a_code_of_another_browser_or_flow_signs_nobody_in(come_in, client, issuer, database):
    start = client.get("/console/sign-in/with", follow_redirects=False)
    asked = parse_qs(urlsplit(start.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    chosen = httpx2.post(start.headers["location"], data={"sub": "s-1"})
    query = urlsplit(chosen.headers["location"]).query

    assert return_with(client, query.replace("state=", "state=x")).status_code == 401
    assert return_with(client, f"state={asked['state'][0]}&error=access_denied").status_code == 401
    assert return_with(client, f"state={asked['state'][0]}&code=made-up").status_code == 401
    stranger = TestClient(client.app)
    assert return_with(stranger, query).status_code == 401
    for content in (b'{"following": "/", "state": 1}', b"[" * 5000, b"7"):
        cookie = base64.urlsafe_b64encode(content).decode()
        stranger.cookies.set("finishline_sign_in", cookie)
        assert return_with(stranger, query).status_code == 401
    assert users(database) == []
    assert return_with(client, query).status_code == 303
    assert return_with(client, query).status_code == 401  # The cookie went with its use.


def test_a_disabled_user_is_not_signed_in(come_in, client, database, ada):
    come_in("s-1", preferred_username="grace")
    client.cookies.clear()
    client.patch("/api/v1/users/grace", json={"disabled": True}, headers=ada.headers)

    assert come_in("s-1").status_code == 401
    with database.read() as session:
        assert session.scalar(select(func.count(User.id))) == 2


KEY = RSAKey.generate_key(2048, parameters={"kid": "k"})
OWN = {"issuer": "https://p.example", "jwks_uri": "https://p.example/keys"}


def id_token(key=KEY, alg="RS256", **changed):
    now = int(time.time())
    claims = {"iss": OWN["issuer"], "aud": "me", "sub": "s", "exp": now + 60, "iat": now}
    claims |= {"nonce": "n"} | changed
    known = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": alg, "kid": "k"}, known, key, algorithms=[alg])


def verify(token, keys=None):
    known = KeySet([KEY]).as_dict(private=False) if keys is None else keys

    def read_keys(*, fresh=False):
        return known

    return verified_claims(token, read_keys, issuer=OWN["issuer"], client_id="me", nonce="n")


def test_an_id_token_is_for_us_from_the_issuer_and_of_this_flow():
    assert verify(id_token())["sub"] == "s"
    assert verify(id_token(aud=["me", "other"], azp="me"))["sub"] == "s"
    wrong = (
        {"iss": "https://q.example"},
        {"aud": "other"},
        {"aud": ["me", "other"]},
        {"azp": "other"},
        {"sub": None},
        {"exp": int(time.time()) - 3600},
        {"nonce": "m"},
        {"nonce": None},
    )
    for changed in wrong:
        with pytest.raises(NotSignedInError):
            verify(id_token(**changed))
    other = RSAKey.generate_key(2048, parameters={"kid": "k"})
    public = OctKey.import_key(KEY.as_dict(private=False)["n"])
    unsigned = id_token().rpartition(".")[0] + "."
    deep = jws.serialize_compact({"alg": "RS256", "kid": "k"}, b'{"exp":' + b"[" * 20_000, KEY)
    for token in (id_token(other), id_token(public, "HS256"), unsigned, deep, "", "a.b.c"):
        with pytest.raises(NotSignedInError):
            verify(token)
    for keys in ({}, {"keys": True}, {"keys": [{"kty": "EC"}]}):
        with pytest.raises(NotSignedInError):
            verify(id_token(), keys)


def test_metadata_of_another_issuer_is_refused(monkeypatch):
    monkeypatch.setattr(openid, "_answer", lambda _method, _url: OWN)

    with pytest.raises(UnavailableError):
        openid.Provider().addresses("https://q.example")


def test_github_is_known_by_its_number(monkeypatch, settings):
    asked = []

    def answer(method, url, **options):
        asked.append((url, options))
        return {"access_token": "t"} if method == "POST" else {"id": 7, "login": "octo"}

    monkeypatch.setattr(openid, "_answer", answer)
    of_github = settings.model_copy(update={"oidc_issuer": openid.GITHUB})

    claims = openid.claims_of_code(openid.Provider(), of_github, openid.Flow("/"), "c", "http://x")

    assert claims == {"iss": openid.GITHUB, "sub": "7", "preferred_username": "octo"}
    assert asked[0][1]["data"]["code_verifier"]
    assert asked[1][1]["headers"] == {"Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"oidc_issuer": "http://p.example"}, "expected an https address"),
        ({"oidc_issuer": "https://p.example"}, "_OIDC_CLIENT_ID"),
    ],
)
def test_half_a_provider_stops_the_start(wrong, told):
    with pytest.raises(ValueError, match=told):
        Settings(**wrong)


def test_the_sign_in_page_has_a_link_where_there_is_a_provider(client, settings):
    assert 'href="/console/sign-in/with?next=/console"' in client.get("/console/sign-in").text
    without = settings.model_copy(update={"oidc_issuer": None})
    with TestClient(create_app(without, dispatch=False)) as other:
        assert "/console/sign-in/with" not in other.get("/console/sign-in").text
        assert other.get("/console/sign-in/with").status_code == 404
