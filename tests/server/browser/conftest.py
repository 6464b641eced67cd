"""A server with something on every page, on a port that a browser can visit."""

import threading
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest
import uvicorn
from sqlalchemy import select

from finishline.rules.measurements import Canary, Figure, WorkerProbe
from server.base.database import utc_now
from server.base.models import Receiver, User
from server.notices.messages import link_token
from tests.server.test_entries import FILES, Entries
from tests.support.pages import BROWSER, HOSTILE
from tests.support.processes import free_port, wait_for
from tests.support.services import services_of
from tests.support.workers import say_hello

LONG = "a_name_without_a_single_space_" * 6
ENTRY = (
    b'{"version": "v1.0", "author": "Ada", "authorEmail": "ada@example.org", "framework": "any",'
    b' "model": "small net", "hardware": "CPU test", "timestamp": "2019-10-15", "latency": 0.15,'
    b' "costPerHour": 3.6, "top1Accuracy": 98.1}'
)
# Addresses of routes whose path alone is not enough.
ADDRESSES = {
    "/benchmarks/{benchmark_id}/charts/{name}": "/benchmarks/{benchmark_id}/charts/pareto",
    "/compare": "/compare?ids={submission_id},{third_submission}",
    "/docs/{name:path}": "/docs/rules",
    "/submitters/{submitter:path}": "/submitters/alice",
    "/verifications/compare": "/verifications/compare?first={verification_id}&second={rerun}",
    "/workers/{name:path}": "/workers/{name}",
}


@pytest.fixture
def variants(digits_submission, submit, make_log, bob):
    """Submissions of bob: with hostile names, of the open division, without a price."""
    free = {"price_usd_per_hour": None, "price_source": None}
    changes = (
        ({"model": HOSTILE, "framework": HOSTILE, "notes": HOSTILE}, {"name": HOSTILE}),
        ({"model": LONG, "division": "open", "code_url": "https://example.org/code"}, {}),
        ({"model": "free of charge"}, free),
    )
    made = []
    for order, (change, system) in enumerate(changes):
        claim = digits_submission.claim | change
        claim["system"] = claim["system"] | system
        logs = {
            name: make_log(200 + 10 * order + k, name=name, division=claim["division"])
            for k, name in enumerate(digits_submission.logs)
        }
        parts = replace(digits_submission, claim=claim, logs=logs)
        answer = submit(parts, by=bob, batch_size=(32, 64, 128)[order])
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
    return made


@pytest.fixture
def tell_canary(client, make_report, walter):
    """Tells a canary of the worker walter-1, which has a baseline around 100 GFLOP/s."""
    say_hello(client, walter)

    def tell(gflops):
        probe = WorkerProbe(
            worker="walter-1",
            moment="before",
            canary=Canary(gflops, "numpy", "best of 0.5 s"),
            figures={"gemm_fp32": Figure(0.11, "TFLOP/s", "best of 3")},
        )
        told = client.post("/api/v1/workers/probes", json=asdict(probe), headers=walter.headers)
        assert told.status_code == 200, told.text

    for gflops in (100.0, 99.0, 101.0):
        tell(gflops)
    return tell


@pytest.fixture
def packages(client, alice, bob, walter):
    """Training packages: one that was measured, one that failed with a hostile log."""
    entries = Entries(client, services_of(client).database, walter)
    entries.greet()
    measured = entries.hand_in(alice).json()["id"]
    entries.measure(measured)
    other = entries.hand_in(bob, FILES | {"train.py": FILES["train.py"] + b"x = 1\n"}).json()["id"]
    entries.measure(other)
    sha256s = [
        client.get(f"/api/v1/submissions/{each}/package").json()["sha256"]
        for each in (measured, other)
    ]
    failed = entries.hand_in(bob, FILES | {"notes.txt": (HOSTILE + LONG * 4).encode()}).json()["id"]
    entries.measure(failed, failed="entry_died", log=HOSTILE + LONG * 4)
    return {
        "entry": measured,
        "hashes": "..".join(sha256s),
        "failed_entry": failed,
        "measurement": entries.measurement(measured),
        "failed_measurement": entries.measurement(failed),
    }


@pytest.fixture
def filled(replay, variants, client, alice, olivia, ada, make_report, tell_canary, packages):
    """Names of things that have a page: verdicts, one that waits, a head-to-head, a calibration."""
    report = make_report(replay.seeds())
    assert replay.report(replay.claim().json(), report).status_code == 200
    first = replay.ask_again(olivia)
    rerun = replay.verification_id
    assert replay.report(replay.claim().json(), make_report(replay.seeds())).status_code == 200
    tell_canary(90.0)

    def ask(path, body, *, by=olivia):
        answer = client.post(f"/api/v1{path}", json=body, headers=by.headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    entered = client.post(
        "/api/v1/submissions",
        files=[("submission", ("entry.json", ENTRY))],
        data={"benchmark": "digits", "division": "open"},
        headers=alice.headers,
    )
    assert entered.status_code == 201, entered.text
    head_to_head = {"challenger": replay.submission_id, "holder": variants[2], "reason": "why"}
    batches = {"benchmark": "digits", "batch_sizes": [64, 32], "runs": 12, "reason": "new torch"}
    person = {"name": LONG[:99], "organisation": LONG[:100], "email": f"{LONG[:200]}@a.example"}
    ask("/organisations", {"name": LONG[:100]}, by=ada)
    ask("/users", person, by=ada)
    ask("/tokens", {"user": person["name"], "role": "submitter", "label": HOSTILE}, by=ada)
    ask("/me/tokens", {"label": LONG[:100]}, by=ada)
    hook = {"url": "https://hooks.example/" + LONG, "kinds": ["submission.verified"]}
    hook_id = ask("/webhooks", hook, by=ada)
    ask_test = client.post(f"/api/v1/webhooks/{hook_id}/test", headers=ada.headers)
    assert ask_test.status_code == 202, ask_test.text
    link = client.post("/api/v1/invitations", json={}, headers=ada.headers).json()["link"]
    return packages | {
        "code": link.rpartition("/")[2],
        "webhook_id": hook_id,
        "purpose": "confirm",
        "link": mail_token(client, "m-1", "confirm"),
        "benchmark_id": "digits",
        "submission_id": replay.submission_id,
        "index": "0",
        "verification_id": first,
        "rerun": rerun,
        "second_submission": variants[0],
        "third_submission": variants[2],
        "long_submission": variants[1],
        "inference": entered.json()["id"],
        "queued": ask(f"/submissions/{variants[0]}/verifications", {"reason": HOSTILE}),
        "head_to_head": ask("/head-to-heads", head_to_head),
        "calibration_id": ask("/calibrations", batches),
        "name": "walter-1",
        "round_id": "open",
        "accelerator": "CPU",
        "user_name": person["name"],
    }


def mail_token(client, name, purpose):
    """What the link of a mail carries."""
    database = services_of(client).database
    with database.write() as session:
        receiver = Receiver(
            id=name,
            channel="mail",
            user_id=session.scalars(select(User.id)).first() or 0,
            address="ada@example.org",
            mailbox="ada@example.org",
            kinds=["record.set"],
            scope="own",
            secret="s",
            created_at=utc_now(),
        )
        session.add(receiver)
        return link_token(receiver, purpose)


def paths_of(routes, prefix=""):
    """The paths that an application answers to a GET."""
    for route in routes:
        if hasattr(route, "original_router"):
            more = getattr(route.include_context, "prefix", "")
            yield from paths_of(route.original_router.routes, prefix + more)
        elif "GET" in (getattr(route, "methods", None) or ()):
            yield prefix + route.path


@pytest.fixture
def pages(client, filled):
    """Addresses of the pages that everybody reads, and of those that take a sign-in."""
    public, signed_in = [], []
    paths = sorted({path for path in paths_of(client.app.routes) if "." not in path})
    for path in paths:
        if path.startswith(("/api/", "/static/", "/docs/images/", "/console/sign-in/")):
            continue
        address = ADDRESSES.get(path, path).format(**filled)
        answer = client.get(address, headers=BROWSER, follow_redirects=False)
        if answer.headers.get("location", "").startswith("/console/sign-in"):
            signed_in.append(address)
        elif answer.headers.get("content-type", "").startswith("text/html"):
            assert answer.status_code == 200, address
            public.append(address)
    assert {"/", "/benchmarks/digits", "/docs/rules", "/workers/walter-1"} < set(public)
    assert {"/account", "/console/verify", "/console/users", "/submit"} < set(signed_in)
    return public, signed_in


@pytest.fixture
def site(client, filled, address):
    """The address of the filled server."""
    return address


@pytest.fixture
def address(client):
    """The address of the server."""
    with serving(client.app, free_port()) as url:
        yield url


@contextmanager
def serving(app, port):
    """Serve an application on a port. At the end every connection is cut."""
    config = uvicorn.Config(app, port=port, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, seconds=60.0, what="the server to listen")
    yield f"http://127.0.0.1:{port}"
    server.should_exit = server.force_exit = True
    thread.join(timeout=10)
