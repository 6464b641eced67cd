"""Every address for everybody, as access_table.py says."""

import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from itertools import cycle

import pytest

from tests.support.addresses import walk
from tests.support.boards import rows_of
from tests.support.world import worker_of_organisers
from tests.sweeps.access_table import API, COLUMNS, CONSOLE, OPEN_FORMS, WORKERS

ENDED = ("expired", "revoked", "disabled")
PEOPLE = dict(zip(COLUMNS, (None, "alice", "bob", "olivia", "ada", "walter"), strict=False))
HOOK = {"url": "https://hooks.example/", "kinds": ["submission.verified"]}
MULTIPART = {"POST /console/benchmarks", "POST /submit"}
QUERIES = {
    "GET /api/v1/compare": {"submissions": "{submission_id},{second}"},
    "GET /api/v1/verifications/compare": {"first": "{verification_id}", "second": "{rerun}"},
    "POST /api/v1/workers/{name}/next": {"wait": "0"},
}
BODIES = {
    "POST /api/v1/attempts/{attempt_id}/evaluations": {"events": []},
    "PATCH /api/v1/webhooks/{webhook_id}": {"enabled": True},
}

# Ids of nothing, where an id has a form, and bodies that ask for more than a reason.
MISSING = {"index": 99, "delivery_id": 99, "token_id": 999, "invitation_id": 999,
           "hashes": "..".join(("a" * 64, "b" * 64))}  # fmt: skip
CHANGES = {
    "/api/v1/verifications/{verification_id}/decision": {"decision": "keep", "reason": "a test"},
    "/api/v1/submissions/{submission_id}/waivers": {"rule": "no_seed", "reason": "a test"},
    "/api/v1/calibrations/{calibration_id}/continuation": None,
    "/api/v1/users/{user_name}": {"disabled": True},
    "/api/v1/webhooks/{webhook_id}": {"enabled": True},
    "/api/v1/workers/{name}": {"paused": False},
    "/api/v1/users/{user_name}/erasure": {"name": "nothing"},
    "/api/v1/users/{user_name}/known": {"known": True},
    "/api/v1/quotas/{name}": {"submissions_per_day": 5, "reason": "a test"},
}


@pytest.fixture(scope="module")
def known(world, worker):
    """What the parameters of addresses stand for: things of alice's, and a verdict."""
    submission_id = world.submit()
    verification_id = world.verify(submission_id)
    job, lease = worker.begin()
    BODIES["POST /api/v1/attempts/{attempt_id}/report"] = {
        "runs": [worker.train(k, each, job)[0] for k, each in enumerate(job["trainings"])],
        "system": worker.system,
    }
    worker.report(job, lease)
    trusted = worker_of_organisers(world, worker)  # No other one measures code.
    world.submit_code()
    trusted.work()
    trusted.sign_on("stopping")
    board = rows_of(world.get("/leaderboards/digits"))
    calibration = {"benchmark": "digits", "batch_sizes": [64], "runs": 2, "reason": "new torch"}
    # A user is called as the worker, because addresses have a {name} of either.
    world.person(worker.name, "worker")
    for column in ENDED:
        for role in ("admin", "worker"):
            world.person(f"{column} {role}", role)
    return {
        "benchmark_id": "digits",
        "submission_id": submission_id,
        "second": world.submit(by="bob"),
        "pool_id": next(each["pool_id"] for each in board if each["pool_id"]),
        "index": 0,
        "rule": "no_seed",
        "verification_id": verification_id,
        "attempt_id": job["attempt_id"],
        "rerun": world.verify(submission_id),
        "calibration_id": world.post("/calibrations", calibration)["id"],
        "token_id": world.post("/tokens", {"user": "alice", "role": "submitter"})["id"],
        "invitation_id": world.post("/invitations", {})["id"],
        "name": worker.name,
        "user_name": worker.name,
        "webhook_id": world.post("/webhooks", HOOK, by="alice")["id"],
        "delivery_id": 1,
        "mail_id": "none",
    }


@pytest.fixture(scope="module")
def sessions(world, known):
    """The headers of each person's browser. All have signed in."""
    ended = [f"{column} {role}" for column in ENDED for role in ("admin", "worker")]
    made = {None: {"Accept": "text/html", "Origin": str(world.client.base_url)}}
    for name in (*PEOPLE.values(), *ended):
        if name is not None:
            made[name] = world.browser(name)
    return made


@pytest.fixture(scope="module")
def tokens_end(world, known, sessions, folder):
    """The tokens and sessions of the last three columns have ended."""
    for role in ("admin", "worker"):
        for token in world.get("/tokens", by="ada")["tokens"]:
            if token["user"] == f"revoked {role}":
                world.post(f"/tokens/{token['id']}", by="ada", method="DELETE")
        world.post(f"/users/disabled {role}", {"disabled": True}, by="ada", method="PATCH")
    with closing(sqlite3.connect(folder / "finishline.db")) as database, database:
        database.execute(
            "UPDATE tokens SET expires_at = '2026-01-01 00:00:00' WHERE user_id IN"
            " (SELECT id FROM users WHERE name LIKE 'expired %')"
        )


def whose(column, policy):
    """Whose token or session a column stands for at a route."""
    role = "worker" if policy == WORKERS else "admin"
    return f"{column} {role}" if column in ENDED else PEOPLE[column]


def mark_of(answer):
    """What an answer is in the table."""
    if answer.headers.get("location", "").startswith("/console/sign-in?next="):
        return "s"
    refusal = {401: "1", 403: "3", 404: "4", 409: "9"}.get(answer.status_code)
    fine = answer.is_success or answer.is_redirect or answer.request.method != "GET"
    return refusal or ("." if fine and answer.status_code < 500 else str(answer.status_code))


def differences(table, send):
    """Each place where an answer differs from the table.

    Tokens that have ended are answered alike. Each route is asked with one of them, by turns.
    """
    wrong = []
    for (route, policy), asked in zip(table.items(), cycle(ENDED), strict=False):
        marks = dict(zip(COLUMNS, policy.replace(" ", ""), strict=True))
        assert len({marks[column] for column in ENDED}) == 1
        for column, wanted in marks.items():
            if column in ENDED and column != asked:
                continue
            answer = send(route, whose(column, policy))
            mark = mark_of(answer)
            let_in = wanted == "." and not route.startswith("GET") and mark in "49"
            if mark != wanted and not let_in:
                wrong.append(f"{route} as {column}: {mark}, not {wanted}: {answer.text[:200]}")
    return wrong


def test_api_lets_in_whom_the_table_says(world, known, tokens_end):
    def send(route, person):
        method, path = route.split(" ")
        body = None if method in ("GET", "DELETE") else BODIES.get(route, {})
        query = {name: text.format(**known) for name, text in QUERIES.get(route, {}).items()}
        headers = world.headers(person) | {"Finishline-Fence": "1"}
        return world.client.request(
            method, path.format(**known), params=query, headers=headers, json=body,
            follow_redirects=False,
        )  # fmt: skip

    assert differences(API, send) == []


def test_document_names_the_routes_of_the_table(world):
    document = world.client.get("/openapi.json").json()["paths"]
    operations = {
        f"{method.upper()} {path}": operation
        for path, item in document.items()
        for method, operation in item.items()
    }
    protected = {route for route, operation in operations.items() if "security" in operation}

    assert set(operations) == set(API)
    assert protected == {route for route, policy in API.items() if policy.startswith("1")}


def test_pages_of_the_table_exist(world):
    routes = {
        f"{method} {path}"
        for path, route in walk(world.client.app.routes)
        for method in route.methods - {"HEAD"}
    }
    public = routes - set(API) - set(CONSOLE) - OPEN_FORMS

    assert set(API) | set(CONSOLE) | OPEN_FORMS <= routes
    assert not [
        route for route in public if re.match(r"POST|.*(/console|/submit|/account)\b", route)
    ]


def test_console_lets_in_whom_the_table_says(world, known, sessions, tokens_end):
    hook = world.post("/webhooks", HOOK | {"url": "https://hooks.example/2"}, by="alice")["id"]
    values = known | {"webhook_id": hook}

    def send(route, person):
        method, path = route.split(" ")
        answer = world.client.request(
            method, path.format(**values), headers=sessions[person], follow_redirects=False
        )
        world.client.cookies.clear()
        return answer

    # Signing out ends the sessions that the others need.
    table = {route: policy for route, policy in CONSOLE.items() if "sign-out" not in route}
    assert differences(table, send) == []


# The headers of a form that another page sends.
FOREIGN = {
    "other origin": {"Origin": "https://evil.example"},
    "origin of a neighbour": {"Origin": "https://evil.testserver"},
    "origin of a sandbox": {"Origin": "null"},
    "other site": {"Sec-Fetch-Site": "cross-site"},
    "same site": {"Sec-Fetch-Site": "same-site"},
    "no site": {"Sec-Fetch-Site": "none"},
    "no origin": {"Origin": None},
}


@pytest.mark.parametrize("changed", FOREIGN.values(), ids=FOREIGN)
def test_foreign_form_changes_nothing(changed, world, known, sessions):
    headers = sessions["ada"] | changed
    headers = {name: value for name, value in headers.items() if value is not None}
    before = world.get("/audit/head")
    statuses = {}
    for route in CONSOLE:
        if route.startswith("POST"):
            form = {"files": {"none": b""}} if route in MULTIPART else {}
            answer = world.client.post(route[5:].format(**known), headers=headers, **form)
            statuses[route] = answer.status_code
    world.client.cookies.clear()  # On a slow machine a session was prolonged meanwhile.

    assert len(statuses) > 30
    assert {route: status for route, status in statuses.items() if status != 403} == {}
    assert world.get("/audit/head") == before


def test_sign_in_leads_back(world, known):
    browser = {"Accept": "text/html", "Origin": str(world.client.base_url)}
    pages = [route[4:].format(**known) for route in CONSOLE if CONSOLE[route].startswith("s")]
    targets = []
    for page in pages:
        first = world.client.get(page, headers=browser, follow_redirects=False)
        form = world.client.get(first.headers["location"], headers=browser).text
        targets += re.findall(r'name="next" value="([^"]*)"', form)

    assert targets == pages
    form = {"token": world.secrets["olivia"], "next": pages[-1]}
    answer = world.client.post(
        "/console/sign-in", data=form, headers=browser, follow_redirects=False
    )
    assert answer.headers["location"] == pages[-1]
    world.client.cookies.clear()


def test_missing_is_404(world, known, sessions):
    """Each id of each address, for an admin."""
    answers = {}
    for path, route in walk(world.client.app.routes):
        is_api = path.startswith("/api/")
        methods = route.methods if is_api else {"GET"} & route.methods
        headers = world.headers("ada") if is_api else sessions["ada"]
        only_workers = "{attempt_id}" in path or path.endswith("/next")
        for name in () if only_workers else re.findall(r"{(\w+)}", path):
            missing = MISSING.get(name, "nothing")
            address = path.format_map(defaultdict(lambda: "nothing", known | {name: missing}))
            for method in methods - {"HEAD"}:
                body = None if method == "GET" else CHANGES.get(path, {"reason": "a test"})
                answer = world.client.request(
                    method, address, headers=headers, json=body, follow_redirects=False
                )
                answers[method, path, name] = answer.status_code

    assert len(answers) > 80
    assert {place: status for place, status in answers.items() if status != 404} == {}
