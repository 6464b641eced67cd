"""Every address of a server, and a submission that only some people may see.

A test file that imports the fixtures names them in its own.
"""

import json
from collections import defaultdict
from dataclasses import asdict
from datetime import timedelta

import pytest
from sqlalchemy import select

from server.base.database import utc_now
from server.base.models import Organisation, User, Verification
from tests.server.conftest import WORKER_SYSTEM
from tests.support.proofs import predicate_in
from web.charts import CHARTS

# Words that nothing else has: in the model's name, a file's, the notes, the system and the code.
CANARY = "zyzzyva"


REPLACED = {
    "/benchmarks/{benchmark_id}": (
        "",
        "?q=zyzzyva",
        "?metric=cost",
        "?withdrawn=show",
        "?clock=dawnbench",
        "?price=2",
        "?target=95",
        "?sort=model",
    ),
    "/api/v1/leaderboards/{benchmark_id}": ("", "?q=zyzzyva", "?withdrawn=show", "?target=95"),
    "/api/v1/compare": ("?submissions={submission_id},{public}",),
    "/compare": ("?ids={submission_id},{public}", "?ids={submission_id}", "?ids={public}"),
    "/verifications/compare": ("?first={verification_id}&second={rerun}",),
    "/api/v1/verifications/compare": ("?first={verification_id}&second={rerun}",),
    "/api/v1/submissions": ("", "?benchmark=digits&limit=100"),
    "/submissions": ("", "?benchmark=digits&accelerator=cpu", "?submitter=bob"),
    "/search": ("?q=zyzz",),
    "/api/v1/verifications": ("?limit=100", "?state=done", "?state=queued"),
    "/benchmarks/{benchmark_id}/charts/{name}": (
        *(f"@{chart.name}" for chart in CHARTS),
        "@runs?select={submission_id}",
    ),
    "/benchmarks/{benchmark_id}/charts/{name}.json": (
        *(f"@{chart.name}" for chart in CHARTS),
        "@runs?select={submission_id}",
    ),
    "/api/v1/verifications/{verification_id}/proof": ("", "?format=dsse"),
}


# Names in addresses, of what is none of a submission's.
NAMES = {
    "benchmark_id": "digits",
    "index": "0",
    "name": "walter-1",
    "name:path": "walter-1",
    "submitter:path": "bob",
    "path:path": "rules.md",
    "page": "rules",
    "file": "style.css",
    "calibration_id": "none",
    "version": "1",
}


def get_routes(routes, prefix=""):
    """The path of everything that can be asked for, pages and API alike."""
    for route in routes:
        if hasattr(route, "original_router"):
            inside = getattr(route, "include_context", None)
            more = getattr(inside, "prefix", "") if inside is not None else ""
            yield from get_routes(route.original_router.routes, prefix + more)
        elif "GET" in (getattr(route, "methods", None) or ()):
            yield prefix + route.path


@pytest.fixture
def carol(make_person):
    """Somebody of the submitter's organisation."""
    return make_person("carol", "submitter")


@pytest.fixture
def organisations(database, alice, bob, carol, walter):
    """Bob and carol share one, with the user of a worker; alice is in another."""
    with database.write() as session:
        labs = Organisation(name="Example Labs", created_at=utc_now())
        others = Organisation(name="Other Labs", created_at=utc_now())
        for person, where in ((alice, others), (bob, labs), (carol, labs), (walter, labs)):
            user = session.scalars(select(User).where(User.name == person.name)).one()
            user.organisation = where


@pytest.fixture
def hidden(
    client,
    database,
    digits_submission,
    make_log,
    submit,
    make_report,
    replay,
    bob,
    olivia,
    organisations,
):
    """One submission everybody sees and one that is hidden: verified, fought, waiting again."""
    hello = {"system": asdict(WORKER_SYSTEM), "state": "idle"}
    said = client.post("/api/v1/workers/hello", json=hello, headers=replay.worker.headers)
    assert said.status_code == 200, said.text
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    public = replay.submission_id
    until = (utc_now() + timedelta(days=1)).isoformat()
    dates = {"embargo_until": until, "reason": "the round is not over"}
    answer = client.post("/api/v1/benchmarks/digits/phases", json=dates, headers=olivia.headers)
    assert answer.status_code == 201, answer.text
    names = [f"{CANARY}_{index}.log" for index in range(3)]
    digits_submission.logs = {
        name: make_log(300 + index, name=name, seconds_per_epoch=0.0531)
        for index, name in enumerate(names)
    }
    digits_submission.claim |= {
        "model": f"{CANARY} model",
        "notes": f"{CANARY} notes",
        "code_url": f"https://{CANARY}.example/code",
        "runs": names,
    }
    digits_submission.claim["system"] |= {"name": f"{CANARY} machine"}
    sent = submit(digits_submission, by=bob)
    assert sent.status_code == 201, sent.text
    assert sent.json()["under_embargo"] is True
    submission_id = replay.submission_id = str(sent.json()["id"])
    ids = []
    for _ in range(2):
        address = f"/api/v1/submissions/{submission_id}/verifications"
        replay.verification_id = client.post(address, headers=olivia.headers).json()["id"]
        ids.append(replay.verification_id)
        with database.read() as session:
            assert session.get(Verification, ids[-1]) is None
        seeds = _seeds(database, ids[-1])
        attempt = client.get(f"/api/v1/verifications/{ids[-1]}", headers=olivia.headers).json()[
            "attempts"
        ][-1]["id"]
        grant = replay.claim(attempt).json()
        assert replay.report(grant, make_report(seeds, seconds_per_epoch=0.0531)).is_success
    waiting = client.post(
        f"/api/v1/submissions/{submission_id}/verifications", headers=olivia.headers
    ).json()["id"]
    duel = client.post(
        "/api/v1/duels",
        json={"challenger": public, "holder": submission_id},
        headers=olivia.headers,
    )
    assert duel.status_code == 201, duel.text
    return NAMES | {
        "submission_id": submission_id,
        "public": public,
        "verification_id": ids[0],
        "rerun": ids[1],
        "waiting": waiting,
        "duel": duel.json()["id"],
    }


def _seeds(database, verification_id):
    with database.write() as session:
        return list(session.get_one(Verification, verification_id).seeds)


def addresses(client, known):
    """Every path with the addresses under it that are asked for."""
    for path in sorted(set(get_routes(client.app.routes))):
        for more in REPLACED.get(path, ("",)):
            name, _, query = more.removeprefix("@").partition("?")
            values = known | ({"name": name} if more.startswith("@") else {})
            address = path
            for field, value in values.items():
                address = address.replace("{" + field + "}", value)
            tail = query if more.startswith("@") else more.removeprefix("?")
            whole = address + (f"?{tail}" if tail else "")
            # What is none of a submission's needs to be no real one.
            yield path, whole.format_map(defaultdict(lambda: "none", known))
    for other in ("waiting", "duel"):
        yield "/verifications/{verification_id}", f"/verifications/{known[other]}"
        yield "/api/v1/verifications/{verification_id}", f"/api/v1/verifications/{known[other]}"


def ask(client, address, headers):
    """An answer in JSON or as a page; of an endless stream a cancelled client reads its start."""
    return client.get(address, headers={"Accept": "text/html, */*"} | headers)


def text_of(answer):
    """Text of an answer, with the predicate of a proof, which is base64 in its envelope."""
    is_proof = answer.headers.get("content-type", "").startswith("application/vnd.dsse")
    return json.dumps(predicate_in(answer), ensure_ascii=False) if is_proof else answer.text


def told(known):
    """What must not be in an answer: the word, and the ids of all that is about it."""
    about = ("submission_id", "verification_id", "rerun", "waiting", "duel")
    return (CANARY, *(known[name] for name in about))
