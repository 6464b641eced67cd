"""Every address for everybody, against the table of access_table.py."""

import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest

from server.base.database import utc_now
from server.base.models import Token
from server.pages import endpoints as pages
from server.people.accounts import create_token
from server.people.sessions import csrf_token
from server.people.sign_in_throttle import FailedSignIns
from tests.server.access_table import API, COLUMNS, CONSOLE, WORKERS
from tests.support.services import services_of

METHODS = ("get", "post", "put", "patch", "delete")
ENDED = ("expired", "revoked", "disabled")
COOKIE = "finishline_console"
Send = Callable[[str, str], Any]

QUERIES = {
    "GET /api/v1/compare": {"submissions": "{submission_id},{second}"},
    "GET /api/v1/verifications/compare": {"first": "{verification_id}", "second": "{rerun}"},
    "POST /api/v1/workers/{name}/next": {"wait": "0"},
}


@pytest.fixture
def settings(settings):
    """So many tokens that are not known would be too many."""
    return settings.model_copy(update={"rate_limits": False})


@pytest.fixture
def make_token(database):
    """Makes tokens by role."""

    def make(name, role):
        with database.write() as session:
            return create_token(session, user_name=name, role=role, expires_in=None).secret

    return make


@pytest.fixture
def end(database):
    """Ends the tokens of a user in the way that a column is called."""

    def end_all(name, column):
        with database.write() as session:
            for token in session.query(Token).filter(Token.user.has(name=name)):
                if column == "expired":
                    token.expires_at = utc_now() - timedelta(seconds=1)
                elif column == "revoked":
                    token.revoked_at = utc_now()
                else:
                    token.user.disabled_at = utc_now()

    return end_all


@pytest.fixture
def named(replay, client, olivia, make_token, make_report, submit, digits_submission, bob):
    """What the parameters of addresses stand for: things of alice's, and a verdict."""
    hello = {"system": asdict(make_report([]).system), "state": "idle"}
    client.post("/api/v1/workers/hello", json=hello, headers=replay.worker.headers)
    replay.report(replay.claim().json(), make_report(replay.seeds()))

    def ask(path, body):
        answer = client.post(f"/api/v1{path}", json=body, headers=olivia.headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    calibration = {"benchmark": "digits", "batch_sizes": [64], "runs": 2, "reason": "new torch"}
    make_token("walter-1", "worker")  # A user called as the worker is: `name` is either's.
    return {
        "benchmark_id": "digits",
        "submission_id": replay.submission_id,
        "second": submit(digits_submission, by=bob).json()["id"],
        "pool_id": client.get("/api/v1/leaderboards/digits?evidence=measured").json()["entries"][0][
            "pool_id"
        ],
        "index": "0",
        "rule": "no_seed",
        "verification_id": replay.verification_id,
        "attempt_id": replay.attempt_id,
        "rerun": ask(f"/submissions/{replay.submission_id}/verifications", {"reason": "again"}),
        "calibration_id": ask("/calibrations", calibration),
        "token_id": ask("/tokens", {"user": "alice", "role": "submitter"}),
        "invitation_id": ask("/invitations", {}),
        "name": "walter-1",
        "user_name": "walter-1",
        "kind": "user",
        "subject": "alice",
        "webhook_id": "none",
        "delivery_id": "1",
        "mail_id": "none",
    }


@pytest.fixture
def secrets(alice, bob, olivia, ada, walter, make_token):
    """The tokens of the columns; those that are to end are good as yet."""
    people = {"owner": alice, "other": bob, "organiser": olivia, "admin": ada, "worker": walter}
    ending = {
        f"{column} {role}": make_token(f"{column} {role}", role)
        for column in ENDED
        for role in ("admin", "worker")
    }
    return {column: person.secret for column, person in people.items()} | ending


def whose(column, policy):
    """Whose token or session a column stands for at a route."""
    role = "worker" if policy == WORKERS else "admin"
    return f"{column} {role}" if column in ENDED else column


def mark_of(answer):
    """What an answer is in the table."""
    if answer.headers.get("location", "").startswith("/console/sign-in?next="):
        return "s"
    told = {401: "1", 403: "3", 404: "4", 409: "9"}.get(answer.status_code)
    fine = answer.is_success or answer.is_redirect or answer.request.method != "GET"
    return told or ("." if fine and answer.status_code < 500 else str(answer.status_code))


def differences(table, send):
    """Each place where an answer is another than the table says.

    Tokens that have ended are answered alike: each route is asked with one of them, by turns.
    """
    wrong = []
    for (route, policy), asked in zip(table.items(), cycle(ENDED), strict=False):
        marks = dict(zip(COLUMNS, policy.replace(" ", ""), strict=True))
        assert len({marks[column] for column in ENDED}) == 1
        for column, wanted in marks.items():
            if column in ENDED and column != asked:
                continue
            answer = send(route, column)
            mark = mark_of(answer)
            let_in = wanted == "." and not route.startswith("GET") and mark in "49"
            if mark != wanted and not let_in:
                wrong.append(f"{route} as {column}: {mark}, not {wanted}: {answer.text[:200]}")
    return wrong


@pytest.fixture
def ask_api(client, named, secrets, replay, make_report):
    """Sends a request to the API as a column, with a body that says nothing."""
    bodies = {
        "POST /api/v1/attempts/{attempt_id}/evaluations": {"events": []},
        "POST /api/v1/attempts/{attempt_id}/report": asdict(make_report(replay.seeds())),
    }

    def send(route, column):
        method, path = route.split(" ")
        headers = {"Finishline-Fence": "1"}
        secret = secrets.get(whose(column, API[route]))
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        query = {name: text.format(**named) for name, text in QUERIES.get(route, {}).items()}
        body = None if method in ("GET", "DELETE") else bodies.get(route, {})
        return client.request(
            method, path.format(**named), params=query, headers=headers, json=body,
            follow_redirects=False,
        )  # fmt: skip

    return send


def test_the_api_lets_in_whom_the_table_says(ask_api, client, end):
    described = client.get("/openapi.json").json()["paths"]
    routes = {
        f"{method.upper()} {path}"
        for path, item in described.items()
        for method in item
        if method in METHODS
    }
    assert routes == set(API), "access_table.py has no line for a route, or one too many"
    for column in ENDED:
        for role in ("admin", "worker"):
            end(f"{column} {role}", column)

    assert differences(API, ask_api) == []


def console_routes(router):
    """The routes for signed-in users of a router and of those it includes."""
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from console_routes(route.original_router)
        elif re.match("/(console|submit|account)(/|$)", route.path):
            yield from (f"{method} {route.path}" for method in route.methods - {"HEAD"})


@pytest.fixture
def ask_console(client, named, secrets, end):
    """Sends a request to the console from the browser of a column, with an empty form."""
    origin = {"Origin": "http://testserver", "Accept": "text/html"}

    def sign_in(secret):
        client.cookies.clear()
        services_of(client).put(FailedSignIns())
        client.post("/console/sign-in", data={"token": secret}, headers=origin)
        return client.cookies.get(COOKIE)

    sessions = {name: sign_in(secret) for name, secret in secrets.items()}
    for column in ENDED:
        end(f"{column} admin", column)

    def send(route, column):
        method, path = route.split(" ")
        session = sessions.get(whose(column, CONSOLE[route]))
        client.cookies.clear()
        services_of(client).put(FailedSignIns())
        cookie = {"Cookie": f"{COOKIE}={session}"} if session is not None else {}
        form = {"csrf": csrf_token(session)} if session is not None else {}
        return client.request(
            method, path.format(**named), headers=origin | cookie,
            data=form if method == "POST" else None, follow_redirects=False,
        )  # fmt: skip

    return send


def test_the_console_lets_in_whom_the_table_says(ask_console):
    assert {route for router in pages.ROUTERS for route in console_routes(router)} == set(CONSOLE)

    # Signing out ends the sessions that the others need.
    last = "POST /console/sign-out"
    table = {route: CONSOLE[route] for route in sorted(CONSOLE, key=lambda route: route == last)}
    assert differences(table, ask_console) == []
