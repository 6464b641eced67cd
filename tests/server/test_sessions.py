"""Signing in to the console: sessions, their cookie and their end, and who may send a form."""

import json
from base64 import b64decode, b64encode
from datetime import timedelta

import pytest
from fastapi import Request
from fastapi.testclient import TestClient
from itsdangerous import TimestampSigner
from sqlalchemy import select

from server.app import create_app
from server.base.database import utc_now
from server.base.models import Token, User
from server.people import callers
from server.people.accounts import create_token
from server.people.callers import leave_notice, network_of
from tests.support.pages import ORIGIN

SIGN_IN = "/console/sign-in"
COOKIE = "finishline_console"


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"public_url": "https://public.example/board"})


def sign_in(client, secret, **more):
    fields = {"token": secret} | more
    return client.post(SIGN_IN, data=fields, headers=ORIGIN, follow_redirects=False)


def cookie_in(answer, name):
    return next(
        each.split("; ") for each in answer.headers.get_list("set-cookie") if f"{name}=" in each
    )


def opens(client, cookie=None):
    """Whether the console lets a browser in; with no cookie named, the client's own."""
    if cookie is not None:
        client.cookies.clear()
        client.cookies.set(COOKIE, cookie)
    answer = client.get("/account", follow_redirects=False)
    assert answer.status_code in (200, 303)
    return answer.status_code == 200


@pytest.fixture
def change(database):
    """Changes every row of a table behind the server's back: time that passed, for example."""

    def write(table, **values):
        with database.write() as session:
            for row in session.scalars(select(table)):
                for name, value in values.items():
                    setattr(row, name, value)

    return write


def test_a_token_opens_a_session_and_is_kept_nowhere(client, olivia, caplog):
    assert client.get(SIGN_IN).status_code == 200
    answer = sign_in(client, f" {olivia.secret}\n")

    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    assert answer.headers["cache-control"] == "no-store"
    cookie, *flags = cookie_in(answer, "finishline_console")
    name, content = cookie.split("=", 1)
    assert name == COOKIE
    assert sorted(flag.lower() for flag in flags) == ["httponly", "path=/", "samesite=strict"]
    held = json.loads(b64decode(content.partition(".")[0]))
    assert set(held) == {"token", "number", "began", "seen"}  # It is readable: no secret is in it.
    assert {type(value) for value in held.values()} == {int, float}
    page = client.get("/account")
    assert "set-cookie" not in page.headers  # A page is a sign of life once a minute.
    assert "olivia" in page.text
    assert olivia.secret not in page.text + caplog.text + str(answer.headers)
    assert sign_in(client, "").status_code == 401
    # Who is signed in goes on to where they wanted to go.
    again = client.get(SIGN_IN, params={"next": "/console/tokens"}, follow_redirects=False)
    assert again.headers["location"] == "/console/tokens"


def test_a_name_that_opens_nothing_is_left_for_pages(client, olivia):
    answer = sign_in(client, olivia.secret)
    mark, *flags = cookie_in(answer, "finishline_signed_in")
    assert mark == "finishline_signed_in=organiser%20olivia"
    assert sorted(flag.lower() for flag in flags) == ["path=/", "samesite=strict"]
    kept = [client.get(f"/benchmarks/{name}").text for name in ("digits", "digits")]
    client.cookies.delete(COOKIE)
    assert client.get("/benchmarks/digits").text == kept[0] == kept[1]
    assert "olivia" not in kept[0]
    # Where the session has ended by itself, the name goes with the next look at the console.
    ended = client.get("/console")
    assert 'finishline_signed_in=""' in ended.headers["set-cookie"]


def signed(content, key="x" * 64):
    """A cookie of this content, signed with another key than the server's."""
    return TimestampSigner(key).sign(b64encode(json.dumps(content).encode())).decode()


def test_each_sign_in_begins_anew(client, olivia, alice):
    begun = client.get("/console/sign-in")
    assert "set-cookie" not in begun.headers
    sign_in(client, alice.secret)
    client.post("/account/display-name", data={"display_name": "Al"}, headers=ORIGIN,
                follow_redirects=False)  # fmt: skip
    earlier = client.cookies[COOKIE]
    sign_in(client, olivia.secret)

    assert client.cookies[COOKIE] != earlier
    page = client.get("/account").text
    assert ("<b>olivia</b>" in page, "Readers see you as Al" in page) == (True, False)


def test_a_cookie_that_this_server_did_not_sign_opens_nothing(client, settings, olivia):
    sign_in(client, olivia.secret)
    cookie = client.cookies[COOKIE]
    content, _, signature = cookie.partition(".")
    held = json.loads(b64decode(content))
    raised = b64encode(json.dumps(held | {"token": held["token"] + 1}).encode()).decode()
    for forged in (
        "planted", "", "null", content, signed(held), f"{raised}.{signature}", f"{cookie}x",
    ):  # fmt: skip
        assert not opens(client, forged), forged
    assert opens(client, cookie)
    with TestClient(create_app(settings, dispatch=False)) as another_process:
        assert opens(another_process, cookie)


def test_a_session_is_of_its_user_and_number(client, olivia, database, change):
    sign_in(client, olivia.secret)
    for number in (-1, 0, 2**31 - 1):
        change(User, session_number=number)
        assert not opens(client)


def test_signing_out_ends_the_sessions_of_every_browser(client, olivia, ada):
    sign_in(client, olivia.secret)
    elsewhere = client.cookies[COOKIE]
    client.cookies.clear()
    sign_in(client, ada.secret)
    adas = client.cookies[COOKIE]
    client.cookies.clear()
    sign_in(client, olivia.secret)
    cookie = client.cookies[COOKIE]
    answer = client.post("/console/sign-out", headers=ORIGIN, follow_redirects=False)

    assert answer.status_code == 303
    assert f"{COOKIE}=null" in answer.headers["set-cookie"]
    assert "You are signed out" in client.get(answer.headers["location"]).text
    assert [opens(client, each) for each in (cookie, elsewhere, adas)] == [False, False, True]


def test_a_token_of_a_worker_signs_nobody_else_out(client, ada, olivia):
    body = {"user": "olivia", "role": "worker"}
    worker = client.post("/api/v1/tokens", json=body, headers=ada.headers).json()
    sign_in(client, olivia.secret)
    cookie = client.cookies[COOKIE]
    client.cookies.clear()
    sign_in(client, worker["token"])
    answer = client.post("/console/sign-out", headers=ORIGIN, follow_redirects=False)

    assert (answer.status_code, COOKIE in client.cookies) == (303, False)
    assert opens(client, cookie)


def test_a_session_ends_with_its_time_and_with_its_token(client, olivia, change, monkeypatch):
    begun = utc_now()

    def opens_after(**passed):
        monkeypatch.setattr(callers, "utc_now", lambda: begun + timedelta(**passed))
        return opens(client)

    sign_in(client, olivia.secret)
    first = client.cookies[COOKIE]
    assert not opens_after(hours=12, seconds=1)
    for hours in range(11, 7 * 24, 11):  # Each page is a sign of life.
        assert opens_after(hours=hours), hours
    assert not opens_after(days=7, seconds=1)
    client.cookies.set(COOKIE, first, domain="testserver.local", path="/")
    now = utc_now()
    for ended in ({"revoked_at": now}, {"expires_at": now}):
        change(Token, **ended)
        assert not opens_after(seconds=1)
        assert sign_in(client, olivia.secret).status_code == 401
        change(Token, revoked_at=None, expires_at=None)
        assert opens_after(seconds=1)


def test_a_sign_in_leads_to_a_page_of_ours_and_nowhere_else(client, olivia):
    page = client.get("/console/audit?actor=olivia&before=7")  # Without a session.
    assert 'name="next" value="/console/audit?actor=olivia&amp;before=7"' in page.text
    for own in (
        "/console/audit?actor=olivia&before=7", "/console/decide/0a1b2c3d4e5f607", "/submissions",
        "/submissions/0a1b2c/verify?kind=replay", "/submitters/clint@example",
        "/benchmarks/digits?sort=model",
    ):  # fmt: skip
        assert sign_in(client, olivia.secret, next=own).headers["location"] == own
    for other in (
        "", "https://evil.example/console", "//evil.example/console", "/console//evil.example",
        "/console/../api/v1/tokens", "/console\\evil.example", "/api/v1/me",
        "/\\evil.example", "https://evil.example/",
        "/console\r\nSet-Cookie: a=b", "javascript:alert(1)", "/api/v1/tokens",
    ):  # fmt: skip
        found = sign_in(client, olivia.secret, next=other).headers["location"]
        assert found == "/console", other


def test_the_cookie_opens_no_endpoint_of_the_api(client, olivia):
    sign_in(client, olivia.secret)
    assert opens(client)

    assert client.get("/api/v1/me").status_code == 401
    body = {"user": "eve", "role": "organiser"}
    assert client.post("/api/v1/tokens", json=body, headers=ORIGIN).status_code == 401
    # And a token in a header is no session.
    client.cookies.clear()
    assert client.get("/console", headers=olivia.headers, follow_redirects=False).status_code == 303


def test_a_form_is_taken_from_our_own_pages_only(client, olivia):
    ours = "http://testserver"
    tried = [
        ({"Origin": ours}, 303),
        ({"Origin": ours, "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "https://public.example"}, 303),  # The public address of the settings.
        ({"Origin": "http://public.example"}, 403),
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://testserver"}, 403),
        ({"Origin": "http://testserver.evil.example"}, 403),
        ({"Origin": ours, "Sec-Fetch-Site": "same-site"}, 403),
    ]
    for headers, status in tried:
        client.cookies.clear()
        fields = {"token": olivia.secret}
        answer = client.post(SIGN_IN, data=fields, headers=headers, follow_redirects=False)
        assert answer.status_code == status, headers
        assert ("set-cookie" in answer.headers) is (status == 303)


def test_an_address_that_guesses_has_to_wait(client, olivia):
    answers = [sign_in(client, f"fl_wrong_{turn}") for turn in range(10)]
    assert {answer.status_code for answer in answers} == {401}
    assert "not known here" in answers[0].text
    assert "fl_wrong_0" not in answers[0].text
    late = sign_in(client, "fl_wrong_10")

    assert late.status_code == 429
    assert 0 < int(late.headers["retry-after"]) <= 300
    assert "set-cookie" not in late.headers
    # Somebody beside the one who guesses, with a token that is good.
    assert sign_in(client, olivia.secret).status_code == 303
    assert opens(client)
    assert sign_in(client, "fl_wrong_11").status_code == 429


def test_of_ipv6_a_whole_network_is_one_address():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:0:0:2")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("testclient") == "testclient"
    # Of a socket that listens for both kinds, and of a proxy that has one.
    assert network_of("::ffff:198.51.100.7") == network_of("198.51.100.7") == "198.51.100.7"
    assert network_of("::ffff:198.51.100.7") != network_of("::ffff:198.51.100.8")


def test_over_https_the_cookie_is_for_https_and_this_host_alone(client, olivia):
    behind_tls = TestClient(client.app, base_url="https://testserver")
    headers = {"Origin": "https://testserver"}
    form = {"token": olivia.secret}
    answer = behind_tls.post(SIGN_IN, data=form, headers=headers, follow_redirects=False)

    cookie, *flags = cookie_in(answer, "finishline_console")
    assert cookie.startswith("__Host-finishline_console=")
    flags = sorted(flag.lower() for flag in flags)
    assert flags == ["httponly", "path=/", "samesite=strict", "secure"]
    assert behind_tls.get("/account", follow_redirects=False).status_code == 200
    # A neighbour could plant a cookie without the prefix; it is not read.
    planted = {COOKIE: behind_tls.cookies["__Host-finishline_console"]}
    behind_tls.cookies.clear()
    behind_tls.cookies.update(planted)
    assert behind_tls.get("/account", follow_redirects=False).status_code == 303


def test_a_setting_makes_the_cookie_secure_behind_a_proxy(settings, database, olivia):
    secure = settings.model_copy(update={"secure_cookies": True})
    with TestClient(create_app(secure, dispatch=False)) as plain:
        headers = {"Origin": "https://testserver"}
        fields = {"token": olivia.secret}
        answer = plain.post(SIGN_IN, data=fields, headers=headers, follow_redirects=False)
        cookie, *flags = cookie_in(answer, COOKIE)
        assert cookie.startswith("__Host-")
        assert "secure" in flags
        assert plain.post(SIGN_IN, data=fields, headers=ORIGIN).status_code == 403


def test_a_token_that_expires_is_told_on_the_account_page(client, database):
    with database.write() as session:
        made = create_token(session, user_name="walt", role="worker", expires_in=timedelta(days=30))
        expires = made.token.expires_at
    assert sign_in(client, made.secret).headers["location"] == "/console"
    home = client.get("/console")
    assert home.url.path == "/account"
    assert f"{expires:%-d %b %Y, %H:%M}" in home.text
    assert made.secret not in home.text


def test_half_a_character_in_a_form_is_no_error_of_the_server(client):
    half = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n+2AA-\r\n--x--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x; charset=utf-7"}

    assert client.post(SIGN_IN, content=half, headers=ORIGIN | kind).status_code == 401


def rename(client, name):
    form = {"display_name": name}
    return client.post("/account/display-name", data=form, headers=ORIGIN, follow_redirects=False)


def test_a_notice_is_shown_once(client, olivia):
    sign_in(client, olivia.secret)
    assert rename(client, "O'Hara").status_code == 303

    assert "<p>Readers see you as O&#39;Hara.</p>" in client.get("/account").text
    assert "notice is-done" not in client.get("/account").text


@pytest.mark.parametrize("signs_out", [True, False])
def test_a_notice_ends_with_its_session(client, olivia, ada, signs_out):
    sign_in(client, olivia.secret)
    rename(client, "Olive")
    if signs_out:
        client.post("/console/sign-out", headers=ORIGIN, follow_redirects=False)
        assert COOKIE not in client.cookies
    sign_in(client, ada.secret)

    assert "Readers see you" not in client.get("/account").text


def test_a_notice_fits_into_a_cookie(client, olivia):
    sign_in(client, olivia.secret)
    request = Request({"type": "http", "session": {}})
    leave_notice(request, "\u00e9" * 2000)

    assert len(signed(request.session)) < 3800
