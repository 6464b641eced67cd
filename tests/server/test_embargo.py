"""Submissions under an embargo: hidden until the date in answers of every kind."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import select, update

from server.app import create_app
from server.base.database import Database, utc_now
from server.base.models import BenchmarkPhases, Organisation, Token, User, Verification
from server.base.settings import Settings
from server.benchmarks.phase_watch import PhaseWatch
from server.benchmarks.phases import due_embargoes, lift_embargo
from tests.server.conftest import WORKER_SYSTEM
from tests.support.services import services_of
from web.charts import CHARTS

BOARD = "/api/v1/leaderboards/digits"


HOUR = timedelta(hours=1)


def shown(client: TestClient) -> set[str]:
    """What is on the board."""
    return {entry["submission_id"] for entry in client.get(BOARD).json()["entries"]}


def test_when_the_date_passes_the_results_appear_and_the_board_has_another_version(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    database: Database,
    settings: Settings,
) -> None:
    before = submit(digits_submission).json()["id"]
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    watch = services_of(client).of(PhaseWatch)
    watch.look_once()
    first = client.get(BOARD)
    assert shown(client) == {before}
    assert client.get(BOARD, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    # What was published before the embargo stays; the counts give the hidden one away no more.
    assert client.get("/api/v1/benchmarks/digits").json()["submissions"] == 1
    with TestClient(create_app(settings, dispatch=False)) as other:
        assert shown(other) == {before}
        with database.write() as session:
            session.execute(update(BenchmarkPhases).values(embargo_until=utc_now()))
        services_of(other).of(PhaseWatch).look_once()
        assert shown(other) == {before, hidden}
        assert shown(client) == {before, hidden}
        assert client.get(BOARD).json()["version"] > first.json()["version"]
        version = client.get(BOARD).json()["version"]
        watch.look_once()
        assert client.get(BOARD).json()["version"] == version
    assert client.get(f"/api/v1/submissions/{hidden}").json()["under_embargo"] is False
    # What was shown once is not hidden again.
    embargo(HOUR)
    watch.look_once()
    assert shown(client) == {before, hidden}


def test_an_embargo_that_is_taken_away_is_over_at_once_and_one_moved_holds_on(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
) -> None:
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    embargo(2 * HOUR)
    services_of(client).of(PhaseWatch).look_once()
    assert shown(client) == set()
    embargo(None)
    assert shown(client) == {hidden}


def test_what_its_owner_reads_first_is_kept_for_nobody_else(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    alice: Any,
    olivia: Any,
) -> None:
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    for person in (alice, olivia):
        client.post("/api/v1/submissions", headers=person.headers)
        assert client.get(f"/submissions/{hidden}", headers=person.headers).status_code == 200
        for address in (BOARD, "/benchmarks/digits", "/", "/feed.atom"):
            assert hidden not in client.get(address, headers=person.headers).text, address
            assert hidden not in client.get(address).text, address
    asked = client.post(f"/api/v1/submissions/{hidden}/verifications", headers=olivia.headers)
    race = client.get(f"/api/v1/verifications/{asked.json()['id']}/race", headers=alice.headers)
    assert race.json()["ghosts"][0]["submission_id"] == hidden
    for headers in (olivia.headers, {}):
        records = client.get("/api/v1/benchmarks/digits/records", headers=headers).json()
        assert records["divisions"][0]["records"] == []


def test_a_stranger_cannot_tell_a_hidden_submission_from_none(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    bob: Any,
) -> None:
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    for path in ("/api/v1/submissions/{}", "/submissions/{}", "/api/v1/submissions/{}/runs"):
        found = client.get(path.format(hidden), headers=bob.headers).json()["detail"]
        missing = client.get(path.format("nothing"), headers=bob.headers).json()["detail"]
        assert found == missing.replace("nothing", hidden)
    for asked, body in (("withdrawal", {"reason": "mine"}), ("verifications", {})):
        address = f"/api/v1/submissions/{hidden}/{asked}"
        refused = client.post(address, json=body, headers=bob.headers)
        assert refused.status_code == 404, asked
        assert refused.json()["detail"] == f"There is no submission {hidden!r}.", asked


def test_what_a_token_may_read_is_its_users_as_far_as_its_scopes_go(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    alice: Any,
    make_person: Callable[..., Any],
    database: Database,
) -> None:
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    narrow = make_person("nora", "organiser")

    def gets(person: Any, scopes: list[str], asked: str = "") -> int:
        with database.write() as session:
            for token in session.query(Token).filter(Token.user.has(name=person.name)):
                token.scopes = scopes
        address = f"/api/v1/submissions/{hidden}"
        if not asked:
            return int(client.get(address, headers=person.headers).status_code)
        body = {"reason": "a try"} if asked == "withdrawal" else {}
        answer = client.post(f"{address}/{asked}", json=body, headers=person.headers)
        return int(answer.status_code)

    assert gets(alice, ["read"]) == 200
    assert gets(alice, ["submit"]) == 404
    # An organiser sees it with a token that organises nothing, and changes nothing of it.
    assert gets(narrow, ["read", "submit"]) == 200
    for asked in ("withdrawal", "verifications"):
        assert gets(narrow, ["read", "submit"], asked) == 403
        assert gets(narrow, ["submit"], asked) == 404


def test_only_an_embargo_that_is_over_is_lifted(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    database: Database,
) -> None:
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    with database.write() as session:
        until = session.query(BenchmarkPhases).one().embargo_until
        assert until is not None
        before = until - timedelta(seconds=1)
        assert due_embargoes(session, before) == []
        assert lift_embargo(session, "digits", before) == 0
        assert due_embargoes(session, until) == ["digits"]
        assert lift_embargo(session, "digits", until) == 1
        assert due_embargoes(session, until) == []
    assert shown(client) == {hidden}


def test_members_see_it_for_as_long_as_they_are_of_the_submitters_organisation(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    bob: Any,
    ada: Any,
) -> None:
    for name in ("Example Labs", "Other Labs"):
        client.post("/api/v1/organisations", json={"name": name}, headers=ada.headers)

    def move(name: str, organisation: str | None) -> None:
        change = {"organisation": organisation}
        answer = client.patch(f"/api/v1/users/{name}", json=change, headers=ada.headers)
        assert answer.status_code == 200, answer.text

    def bob_gets(method: str = "GET", more: str = "", **body: Any) -> int:
        address = f"/api/v1/submissions/{hidden}{more}"
        return int(client.request(method, address, headers=bob.headers, **body).status_code)

    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    move("alice", "Example Labs")
    assert bob_gets() == 404
    move("bob", "Example Labs")
    assert bob_gets() == 200
    # To see is not to change: it is refused as another's, not as what is not there.
    assert bob_gets("POST", "/withdrawal", json={"reason": "not mine"}) == 403
    assert bob_gets("POST", "/verifications", json={}) == 403
    assert hidden not in client.get(BOARD, headers=bob.headers).text
    move("bob", "Other Labs")
    assert bob_gets() == 404
    # Whoever is in none shares none with others who are in none.
    move("alice", None)
    move("bob", None)
    assert bob_gets() == 404
    assert bob_gets("POST", "/withdrawal", json={"reason": "not mine"}) == 404


def test_the_browser_of_its_owner_shows_it_and_says_until_when(
    embargo: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    alice: Any,
) -> None:
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    sent = {"token": alice.secret}
    client.post("/console/sign-in", data=sent, headers={"Origin": "http://testserver"})
    page = client.get(f"/submissions/{hidden}").text
    assert "<b>Under embargo</b> until" in page
    assert client.get(f"/submissions/{hidden}/charts/curves.json").status_code == 200
    assert "under embargo" in client.get("/account").text


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
    "/compare/charts/curves.json": ("?ids={submission_id},{public}",),
    "/compare/charts/times.json": ("?ids={submission_id},{public}",),
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
    "/api/v1/verifications/{verification_id}/proof": ("", "?format=json"),
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


# Where its owner must find the word, so that the search can find anything at all.
FOUND_BY_OWNER = {
    "/submissions",
    "/submissions/{submission_id}/runs/{index}",
    "/verifications",
    "/search",
    "/api/v1/submissions",
    "/api/v1/submissions/{submission_id}",
    "/api/v1/submissions/{submission_id}/runs",
    "/api/v1/submissions/{submission_id}/runs/{index}/curve",
    "/api/v1/compare",
    "/api/v1/verifications/{verification_id}/race",
    "/api/v1/verifications/{verification_id}/proof",
    "/api/v1/queue",
    "/api/v1/workers/{name}",
    "/submissions/{submission_id}",
    "/verifications/{verification_id}",
    "/verifications/compare",
    "/compare",
    "/compare/charts/curves.json",
    "/workers",
    "/workers/{name:path}",
}


def get_routes(routes: Any, prefix: str = "") -> Iterator[str]:
    """The path of everything that can be asked for, pages and API alike."""
    for route in routes:
        if hasattr(route, "original_router"):
            inside = getattr(route, "include_context", None)
            more = getattr(inside, "prefix", "") if inside is not None else ""
            yield from get_routes(route.original_router.routes, prefix + more)
        elif "GET" in (getattr(route, "methods", None) or ()):
            yield prefix + route.path


@pytest.fixture
def carol(make_person: Callable[..., Any]) -> Any:
    """Somebody of the submitter's organisation."""
    return make_person("carol", "submitter")


@pytest.fixture
def organisations(database: Database, alice: Any, bob: Any, carol: Any, walter: Any) -> None:
    """Bob and carol share one, with the user of a worker; alice is in another."""
    with database.write() as session:
        labs = Organisation(name="Example Labs", created_at=utc_now())
        others = Organisation(name="Other Labs", created_at=utc_now())
        for person, where in ((alice, others), (bob, labs), (carol, labs), (walter, labs)):
            user = session.scalars(select(User).where(User.name == person.name)).one()
            user.organisation = where


@pytest.fixture
def hidden(
    client: TestClient,
    database: Database,
    digits_submission: Any,
    make_log: Callable[..., bytes],
    submit: Callable[..., Any],
    make_report: Callable[..., Any],
    replay: Any,
    bob: Any,
    olivia: Any,
    organisations: Any,
) -> dict[str, str]:
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


def _seeds(database: Database, verification_id: str) -> list[int]:
    with database.write() as session:
        return list(session.get_one(Verification, verification_id).seeds)


def addresses(client: TestClient, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Every path with the addresses under it that are asked for."""
    for path in sorted(set(get_routes(client.app.routes))):  # type: ignore[attr-defined]
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


def ask(client: TestClient, address: str, headers: dict[str, str]) -> Response:
    """An answer in JSON or as a page; of an endless stream a cancelled client reads its start."""
    return client.get(address, headers={"Accept": "text/html, */*"} | headers)


def told(known: dict[str, str]) -> tuple[str, ...]:
    """What must not be in an answer: the word, and the ids of all that is about it."""
    about = ("submission_id", "verification_id", "rerun", "waiting", "duel")
    return (CANARY, *(known[name] for name in about))


def test_no_address_tells_strangers_of_what_is_under_embargo_and_its_people_read_it(
    hidden: dict[str, str],
    client: TestClient,
    alice: Any,
    bob: Any,
    carol: Any,
    walter: Any,
    olivia: Any,
) -> None:
    found: dict[str, set[str]] = {"bob": set(), "carol": set(), "olivia": set()}
    for path, address in addresses(client, hidden):
        if path.endswith("/events") or path.startswith(("/console", "/static")):
            continue
        for who in ({}, alice.headers, walter.headers, {"Authorization": "Bearer fl_none"}):
            answer = ask(client, address, who)
            assert answer.status_code < 500, address
            # What was asked for may be named in the refusal, as it was typed.
            text = answer.text if answer.status_code < 400 else ""
            asked = {word for word in told(hidden) if word in address}
            for word in set(told(hidden)) - asked:
                assert word not in text, f"{address} tells {word}"
            if asked & {CANARY, hidden["submission_id"]} and "?" not in address:
                assert answer.status_code == 404, address
            assert CANARY not in answer.text.replace("q=zyzzyva", "").replace(
                'value="zyzzyva"', ""
            ), address
        for person in (bob, carol, olivia):
            if CANARY in ask(client, address, person.headers).text:
                found[person.name].add(path)
    for name, paths in found.items():
        assert paths >= FOUND_BY_OWNER, (name, FOUND_BY_OWNER - paths)


def test_a_stream_of_events_is_not_opened_for_strangers(
    hidden: dict[str, str], client: TestClient, bob: Any
) -> None:
    address = f"/api/v1/verifications/{hidden['verification_id']}/events"
    assert client.get(address).status_code == 404
    read: list[str] = []
    reader = threading.Thread(
        target=lambda: read.append(client.get(address, headers=bob.headers).text)
    )
    reader.start()
    reader.join(timeout=20)
    assert "event: end" in read[0]
