"""Signing in to the console: sessions, their cookie and their end, and who may send a form."""

import json
from datetime import timedelta
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.app import create_app
from server.base.database import utc_now
from server.base.models import ConsoleSession, Token
from server.people.accounts import create_token
from server.people.sign_in_throttle import MOST_ADDRESSES, FailedSignIns, network_of

SIGN_IN = "/console/sign-in"
ORIGIN = {"Origin": "http://testserver", "Accept": "text/html"}
COOKIE = "finishline_console"
NOTICE = "finishline_notice"


@pytest.fixture
def settings(settings):
    """Those of every test, and an address that browsers use."""
    return settings.model_copy(update={"public_url": "https://public.example/board"})


def sign_in(client, secret, **more):
    fields = {"token": secret} | more
    return client.post(SIGN_IN, data=fields, headers=ORIGIN, follow_redirects=False)


def opens(client, cookie=None):
    """Whether the console lets a browser in; with no cookie named, the client's own."""
    if cookie is not None:
        client.cookies.clear()
        client.cookies.set(COOKIE, cookie)
    answer = client.get("/account", follow_redirects=False)
    assert answer.status_code in (200, 303)
    return bool(answer.status_code == 200)


@pytest.fixture
def change(database):
    """Changes every row of a table behind the server's back: time that passed, for example."""

    def write(table, **values):
        with database.write() as session:
            for row in session.scalars(select(table)):
                for name, value in values.items():
                    setattr(row, name, value)

    return write


def test_a_token_opens_a_session_and_is_kept_nowhere(client, database, olivia, caplog):
    assert client.get(SIGN_IN).status_code == 200
    answer = sign_in(client, f" {olivia.secret}\n")

    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    assert answer.headers["cache-control"] == "no-store"
    cookie, *flags = answer.headers.get_list("set-cookie")[0].split("; ")
    name, secret = cookie.split("=", 1)
    assert (name, len(secret)) == (COOKIE, 43)  # 32 random bytes in base64.
    assert sorted(flag.lower() for flag in flags) == ["httponly", "path=/", "samesite=strict"]
    with database.read() as session:
        row = session.scalars(select(ConsoleSession)).one()
    assert secret not in (row.id_sha256, str(vars(row)))
    page = client.get("/account").text
    assert "olivia" in page
    assert olivia.secret not in page + caplog.text + str(answer.headers)
    assert sign_in(client, "").status_code == 401
    # Who is signed in goes on to where they wanted to go.
    again = client.get(SIGN_IN, params={"next": "/console/tokens"}, follow_redirects=False)
    assert again.headers["location"] == "/console/tokens"


def test_a_name_that_opens_nothing_is_left_for_pages_that_are_the_same_for_everybody(
    client, olivia
):
    answer = sign_in(client, olivia.secret)
    mark, *flags = answer.headers.get_list("set-cookie")[1].split("; ")
    assert mark == "finishline_signed_in=organiser%20olivia"
    assert sorted(flag.lower() for flag in flags) == ["path=/", "samesite=strict"]
    kept = [client.get(f"/benchmarks/{name}").text for name in ("digits", "digits")]
    client.cookies.delete(COOKIE)
    assert client.get("/benchmarks/digits").text == kept[0] == kept[1]
    assert "olivia" not in kept[0]
    # Where the session has ended by itself, the name goes with the next look at the console.
    ended = client.get("/console")
    assert 'finishline_signed_in=""' in ended.headers["set-cookie"]


def test_each_sign_in_has_an_id_of_its_own_and_ends_the_one_before(client, olivia):
    client.cookies.set(COOKIE, "planted-by-somebody-else", domain="testserver.local")
    sign_in(client, olivia.secret)
    first = client.cookies[COOKIE]
    assert first != "planted-by-somebody-else"
    sign_in(client, olivia.secret)
    second = client.cookies[COOKIE]

    assert [opens(client, cookie) for cookie in ("planted-by-somebody-else", first, second)] == [
        False, False, True,
    ]  # fmt: skip


def test_signing_out_ends_the_session_on_the_server(client, olivia):
    sign_in(client, olivia.secret)
    cookie = client.cookies[COOKIE]
    answer = client.post("/console/sign-out", headers=ORIGIN, follow_redirects=False)

    assert answer.status_code == 303
    assert f'{COOKIE}=""' in answer.headers["set-cookie"]
    assert "You are signed out" in client.get(answer.headers["location"]).text
    assert not opens(client, cookie)


def test_a_session_ends_with_its_time_and_with_its_token(client, olivia, database, change):
    sign_in(client, olivia.secret)
    now, old = utc_now(), timedelta(hours=12, seconds=1)
    change(ConsoleSession, last_seen_at=now - old)
    assert not opens(client)
    change(ConsoleSession, last_seen_at=now - timedelta(hours=11), created_at=now)
    assert opens(client)  # And this page was a sign of life.
    with database.read() as session:
        assert session.scalars(select(ConsoleSession)).one().last_seen_at >= now
    change(ConsoleSession, created_at=now - timedelta(days=7, seconds=1))
    assert not opens(client)
    change(ConsoleSession, created_at=now)
    for ended in ({"revoked_at": now}, {"expires_at": now}):
        change(Token, **ended)
        assert not opens(client)
        assert sign_in(client, olivia.secret).status_code == 401
        change(Token, revoked_at=None, expires_at=None)
        assert opens(client)
    # A session whose time is over is gone with the next sign-in of anybody.
    change(ConsoleSession, last_seen_at=now - old)
    client.cookies.clear()
    sign_in(client, olivia.secret)
    with database.read() as session:
        assert len(session.scalars(select(ConsoleSession)).all()) == 1


def test_a_sign_in_leads_to_a_page_of_ours_and_nowhere_else(client, olivia):
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


def test_a_page_asked_for_without_a_session_leads_to_the_sign_in_with_its_query(client):
    answer = client.get("/console/audit?actor=olivia&before=7", follow_redirects=False)
    page = client.get(answer.headers["location"])
    assert 'name="next" value="/console/audit?actor=olivia&amp;before=7"' in page.text


def test_the_cookie_opens_no_endpoint_of_the_api(client, olivia):
    sign_in(client, olivia.secret)
    assert opens(client)

    assert client.get("/api/v1/me").status_code == 401
    body = {"user": "eve", "role": "organiser"}
    assert client.post("/api/v1/tokens", json=body, headers=ORIGIN).status_code == 401
    # And a token in a header is no session.
    client.cookies.clear()
    answer = client.get("/console", headers=olivia.headers, follow_redirects=False)
    assert answer.status_code == 303


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


def test_failures_are_counted_by_address_within_a_window():
    now = [1000.0]
    failed = FailedSignIns(clock=lambda: now[0])
    for second in range(9):
        now[0] = 1000.0 + second
        failed.note("192.0.2.1")
    assert failed.seconds_to_wait("192.0.2.1") == 0
    now[0] = 1010.0
    failed.note("192.0.2.1")
    assert failed.seconds_to_wait("192.0.2.1") == 290.0  # Until the first is 300 s old.
    assert failed.seconds_to_wait("192.0.2.2") == 0
    now[0] = 1300.5
    assert failed.seconds_to_wait("192.0.2.1") == 0
    failed.note("192.0.2.1")
    assert failed.seconds_to_wait("192.0.2.1") == pytest.approx(0.5)
    for number in range(MOST_ADDRESSES):
        failed.note(f"name-{number}")
    assert failed.seconds_to_wait("192.0.2.1") == 0  # The oldest is forgotten, not kept for ever.


def test_of_ipv6_a_whole_network_is_one_address():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:0:0:2")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("testclient") == "testclient"
    # Of a socket that listens for both kinds, and of a proxy that has one.
    assert network_of("::ffff:198.51.100.7") == network_of("198.51.100.7") == "198.51.100.7"
    assert network_of("::ffff:198.51.100.7") != network_of("::ffff:198.51.100.8")


@pytest.fixture
def behind_tls(settings, client):
    """The same server as a browser sees it over https."""
    with TestClient(client.app, base_url="https://testserver") as made:
        yield made


def test_over_https_the_cookie_is_for_https_and_this_host_alone(behind_tls, olivia):
    headers = {"Origin": "https://testserver"}
    fields = {"token": olivia.secret}
    answer = behind_tls.post(SIGN_IN, data=fields, headers=headers, follow_redirects=False)

    cookie, *flags = answer.headers.get_list("set-cookie")[0].split("; ")
    assert cookie.startswith("__Host-finishline_console=")
    assert sorted(flag.lower() for flag in flags) == [
        "httponly", "path=/", "samesite=strict", "secure",
    ]  # fmt: skip
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
        assert answer.headers["set-cookie"].startswith("__Host-")
        assert "Secure" in answer.headers["set-cookie"]
        assert plain.post(SIGN_IN, data=fields, headers=ORIGIN).status_code == 403


def test_a_token_that_expires_is_told_on_the_account_page(client, database):
    with database.write() as session:
        made = create_token(session, user_name="walt", role="worker", expires_in=timedelta(days=30))
        expires = made.token.expires_at
    assert expires is not None
    assert sign_in(client, made.secret).headers["location"] == "/console"
    home = client.get("/console")
    assert home.url.path == "/account"
    assert f"{expires:%Y-%m-%d %H:%M}" in home.text
    assert made.secret not in home.text


def test_half_a_character_in_a_form_is_no_error_of_the_server(client):
    half = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n+2AA-\r\n--x--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x; charset=utf-7"}

    assert client.post(SIGN_IN, content=half, headers=ORIGIN | kind).status_code == 401


def notice_of(text):
    return quote(json.dumps({"text": text, "once_only": None}), safe="")


@pytest.mark.parametrize(
    "sent", ["x", "%7B", "5", quote('{"text": 5}'), quote('{"text": "a", "once_only": [1]}')]
)
def test_a_wrong_notice_is_ignored(client, olivia, sent):
    sign_in(client, olivia.secret)
    client.cookies.set(NOTICE, sent)
    page = client.get("/account")

    assert (page.status_code, "notice is-done" in page.text) == (200, False)


def test_a_notice_is_shown_once(client, olivia):
    sign_in(client, olivia.secret)
    client.cookies.set(NOTICE, notice_of("Made <b>it</b>."), domain="testserver.local", path="/")

    assert "<p>Made &lt;b&gt;it&lt;/b&gt;.</p>" in client.get("/account").text
    assert "notice is-done" not in client.get("/account").text


@pytest.mark.parametrize("signs_out", [True, False])
def test_a_notice_ends_with_its_session(client, olivia, ada, signs_out):
    sign_in(client, olivia.secret)
    client.cookies.set(NOTICE, notice_of("Made it."), domain="testserver.local", path="/")
    if signs_out:
        client.post("/console/sign-out", headers=ORIGIN, follow_redirects=False)
        assert NOTICE not in client.cookies
    sign_in(client, ada.secret)

    assert "Made it." not in client.get("/account").text
