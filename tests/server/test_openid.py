"""Sign-in with an OpenID provider, against a real one: registering, connecting, refusals."""

import base64
import time
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx2
import oidc_provider_mock
import pytest
from fastapi.testclient import TestClient
from joserfc import jws, jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from pydantic import SecretStr
from sqlalchemy import func, select

from server.app import create_app
from server.base.database import utc_now
from server.base.models import AuditRecord, User
from server.base.settings import Settings
from server.pages import sign_in as pages
from server.people import openid
from tests.support.pages import ORIGIN
from tests.support.services import services_of

# The provider's own, of the library that it is built on.
pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")
CALLBACK = "/console/sign-in/callback"


@pytest.fixture(scope="module")
def issuer():
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def settings(settings, issuer, request):
    client = {"oidc_client_id": "finishline", "oidc_client_secret": SecretStr("not known")}
    registration = {"self_registration": getattr(request, "param", True)}
    return settings.model_copy(update=client | registration | {"oidc_issuer": issuer})


@pytest.fixture
def come_in(client, issuer):
    def sign_in(subject, *, begin="", **claims):
        httpx2.put(f"{issuer}/users/{subject}", json=claims).raise_for_status()
        start = client.get(f"/console/sign-in/with{begin}", follow_redirects=False)
        assert start.status_code == 302, start.text
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
    client.cookies.clear()
    come_in("s-3", preferred_username="grace", email="g@x.example", email_verified=False)
    with database.read() as session:  # An address that nobody verified is not kept.
        assert session.scalars(select(User.email).where(User.name == "grace")).one() is None


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
    assert return_with(client, query).status_code == 401  # The state went with its use.
    assert users(database) == []
    assert come_in("s-1").status_code == 303
    assert return_with(client, query).status_code == 401


def test_a_sign_in_is_begun_less_than_ten_minutes_before(client, issuer, monkeypatch):
    start = client.get("/console/sign-in/with", follow_redirects=False)
    chosen = httpx2.post(start.headers["location"], data={"sub": "s-1"})
    later = utc_now() + timedelta(minutes=11)
    monkeypatch.setattr(pages, "utc_now", lambda: later)
    answer = return_with(client, urlsplit(chosen.headers["location"]).query)

    assert (answer.status_code, "too long ago" in answer.text) == (401, True)


def test_a_disabled_user_is_not_signed_in(come_in, client, database, ada):
    come_in("s-1", preferred_username="grace")
    client.cookies.clear()
    client.patch("/api/v1/users/grace", json={"disabled": True}, headers=ada.headers)

    assert come_in("s-1").status_code == 401
    with database.read() as session:
        assert session.scalar(select(func.count(User.id))) == 2


KEY = RSAKey.generate_key(2048, parameters={"kid": "k"})
OTHER_KEY = RSAKey.generate_key(2048, parameters={"kid": "k"})
PUBLIC = KeySet([KEY]).as_dict(private=False)


def id_token(key=KEY, alg="RS256", **claims):
    known = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": alg, "kid": "k"}, known, key, algorithms=[alg])


@pytest.fixture
def answered(client, issuer, monkeypatch):
    """Our answer to a provider that gives an id_token, keys and metadata as it likes."""

    def sign_in(token=id_token, keys=PUBLIC, metadata=None, **changed):
        asked = {}
        own = {"issuer": issuer, "jwks_uri": f"{issuer}/keys", "token_endpoint": f"{issuer}/token",
               "authorization_endpoint": f"{issuer}/begin"}  # fmt: skip

        def provider(request):
            if request.url.path == "/keys":
                return httpx2.Response(200, json=keys)
            if request.url.path == "/token":
                assert parse_qs(request.content.decode())["code_verifier"]
                now = int(time.time())
                claims = {"iss": issuer, "aud": "finishline", "sub": "s", "exp": now + 60}
                claims |= {"iat": now, "nonce": asked["nonce"][0]} | changed
                answer = {"access_token": "a", "token_type": "Bearer"}
                given = token(**claims)
                return httpx2.Response(200, json=answer | ({"id_token": given} if given else {}))
            return httpx2.Response(200, json=own | (metadata or {}))

        monkeypatch.setitem(openid.CLIENT, "transport", httpx2.MockTransport(provider))
        start = client.get("/console/sign-in/with", follow_redirects=False)
        if start.status_code != 302:
            return start.status_code
        asked.update(parse_qs(urlsplit(start.headers["location"]).query))
        return return_with(client, f"code=c&state={asked['state'][0]}").status_code

    return sign_in


SYMMETRIC = OctKey.import_key(KEY.as_dict(private=False)["n"])
UNSAFE = {"id_token_signing_alg_values_supported": ["none", "HS256", "RS256"]}


def unsigned(**claims):
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return f"{head}.{id_token(**claims).split('.')[1]}."


def deep(**_claims):
    return jws.serialize_compact({"alg": "RS256", "kid": "k"}, b'{"exp":' + b"[" * 20_000, KEY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://q.example"},
        {"aud": "other"},
        {"aud": ["finishline", "other"]},
        {"azp": "other"},
        {"aud": "other", "azp": "finishline"},
        {"sub": None},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"iat": None},
        {"nonce": "m"},
        {"nonce": None},
        {"token": lambda **claims: id_token(OTHER_KEY, **claims)},
        {"token": lambda **claims: id_token(SYMMETRIC, "HS256", **claims), "metadata": UNSAFE},
        {"token": unsigned, "metadata": UNSAFE},
        {"token": lambda **claims: id_token(**claims).rpartition(".")[0] + "."},
        {"token": deep},
        {"token": lambda **_: ""},
        {"token": lambda **_: "a.b.c"},
        {"keys": {}},
        {"keys": {"keys": True}},
        {"keys": {"keys": [{"kty": "EC"}]}},
        {"keys": [1]},
    ],
)
def test_an_id_token_is_for_us_from_the_issuer_and_of_this_flow(answered, database, wrong):
    assert answered(**wrong) == 401
    assert users(database) == []


def test_a_sound_id_token_of_the_issuer_signs_in(answered):
    for metadata in ({"issuer": "https://q.example"}, {"issuer": None}, {"jwks_uri": None}):
        assert answered(metadata=metadata) == 503, metadata
    for sound in ({}, {"aud": ["finishline", "other"], "azp": "finishline"}):
        assert answered(**sound) == 303, sound


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"7"])
def test_a_provider_that_answers_something_else_is_unavailable(client, monkeypatch, answer):
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=answer))
    monkeypatch.setitem(openid.CLIENT, "transport", transport)

    assert client.get("/console/sign-in/with", follow_redirects=False).status_code == 503


def test_github_is_known_by_its_number(settings, monkeypatch):
    asked = []

    def github(request):
        asked.append(request)
        known = {"id": 7, "login": "octo"} if request.method == "GET" else {"access_token": "t"}
        return httpx2.Response(200, json=known | {"token_type": "bearer"})

    monkeypatch.setitem(openid.CLIENT, "transport", httpx2.MockTransport(github))
    of_github = settings.model_copy(update={"oidc_issuer": openid.GITHUB})
    with TestClient(create_app(of_github, dispatch=False)) as client:
        start = client.get("/console/sign-in/with", follow_redirects=False)
        assert start.headers["location"].startswith("https://github.com/login/oauth/authorize?")
        state = parse_qs(urlsplit(start.headers["location"]).query)["state"][0]
        assert return_with(client, f"code=c&state={state}").status_code == 303
        with services_of(client).database.read() as session:
            user = session.scalars(select(User)).one()
    assert (user.name, user.issuer, user.subject) == ("octo", openid.GITHUB, "7")
    exchange, read = asked
    assert (exchange.url.path, read.url) == ("/login/oauth/access_token", openid.GITHUB_USER)
    assert parse_qs(exchange.content.decode())["code_verifier"]
    assert read.headers["authorization"] == "Bearer t"


def test_half_a_provider_stops_the_start():
    with pytest.raises(ValueError, match="expected an https address"):
        Settings(oidc_issuer="http://p.example")
    with pytest.raises(ValueError, match="_OIDC_CLIENT_ID"):
        Settings(oidc_issuer="https://p.example")


def test_the_sign_in_page_has_a_link_where_there_is_a_provider(client, settings):
    assert 'href="/console/sign-in/with?next=/console"' in client.get("/console/sign-in").text
    without = settings.model_copy(update={"oidc_issuer": None})
    with TestClient(create_app(without, dispatch=False)) as other:
        assert "/console/sign-in/with" not in other.get("/console/sign-in").text
        assert other.get("/console/sign-in/with").status_code == 404
