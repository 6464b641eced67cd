"""Who may see what: each address as each person, for things that only some people may see.

A word is in every text of a thing, and nowhere else. No answer to a stranger has the word or an
id of the thing. The tables say where its people read it.
"""

import base64
import io
import re
import zipfile
from collections import defaultdict
from types import SimpleNamespace

import pytest
from pyarrow import parquet

from tests.support.addresses import addresses, walk
from tests.support.run_logs import SYSTEM
from tests.support.served import served
from tests.support.world import PACKAGE, Worker, worker_of_organisers
from tests.sweeps.conftest import populated

pytestmark = pytest.mark.timeout(240)
# Carol is in bob's organisation, and so is walter, whose worker trains everything.
EMBARGOED, SOURCE, WITHDRAWN = "zyzzyva", "xylopyro", "quokkas"
PASSING = re.compile(r'>[^<>]*( ago|just now)<|"version":\d+')
HOOK = {"url": "https://hooks.example/alice", "scope": "benchmark", "benchmark": "digits"}
KINDS = ("accepted", "verifying", "verified", "rejected", "inconclusive", "withdrawn")
# Addresses that are asked for besides, with the ids of the fixture.
MORE = {
    "/search": ("q=zyzz", "q=xylo"),
    "/submissions": ("submitter=bob", "benchmark=digits"),
    "/benchmarks/{benchmark_id}": ("q=zyzz",),
    "/api/v1/leaderboards/{benchmark_id}": ("q=zyzz",),
    "/api/v1/submissions": ("benchmark=digits&limit=100",),
    "/api/v1/verifications": ("limit=100", "state=done", "state=queued"),
    "/benchmarks/{benchmark_id}/charts/runs": ("select={second}",),
    "/benchmarks/{benchmark_id}/charts/runs.json": ("select={second}",),
    "/compare": ("ids={second}",),
    "/submissions/{second}": ("tab=runs", "tab=scoring", "tab=system", "tab=history"),
    "/submissions/{failed_package}": ("tab=runs", "tab=system", "tab=history"),
    "/api/v1/verifications/{rerun}/proof": ("format=dsse",),
}
# Boards and counts that hidden submissions don't change.
COUNTS = (
    "/", "/benchmarks/digits", "/rounds/open", "/feed.atom", "/benchmarks/digits/feed.atom",
    "/submissions", "/api/v1/benchmarks", "/api/v1/benchmarks/digits", "/api/v1/submissions",
    "/api/v1/leaderboards/digits", "/api/v1/leaderboards/digits.csv",
    "/api/v1/benchmarks/digits/records", "/api/v1/benchmarks/digits/runs.json",
    "/api/v1/benchmarks/digits/ideas", "/benchmarks/digits/charts",
)  # fmt: skip

# Where organisers see the board as if the embargo had ended.
PREVIEWS = ("/api/v1/leaderboards/digits/preview", "/console/leaderboards/digits/preview")


def package_of(word, title="Random features"):
    """A code submission with a word in its factors and its code."""
    manifest = PACKAGE["training.toml"].replace("Random features", title)
    code = PACKAGE["train.py"].replace("return task", 'return task["factors"]["cosines"]')
    return {
        "training.toml": f'{manifest}[factors]\ncosines = "{word} cosines"\n',
        "train.py": f"{code}# {word}\n",
    }


def parts_of(world, word):
    """A log submission with a word in each of its texts and file names."""
    texts = {name: f"{word} {name}" for name in ("model", "framework", "notes")}
    system = SYSTEM | {name: f"{word} {name}" for name in ("name", "processor", "price_source")}
    settings = {"batch_size": 128}  # Another configuration than the public submission.
    texts |= {"code_url": f"https://{word}.example/", "hyperparameters": settings}
    parts = world.parts(system=system, **texts)
    parts.logs = {f"{word}_{name}": log for name, log in parts.logs.items()}
    parts.claim["runs"] = list(parts.logs)
    return parts


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A public submission, and those that some people may see, all with runs."""
    with served(tmp_path_factory.mktemp("visibility")) as (client, secret):
        world = populated(client, secret).person("carol")
        worker = Worker(world).confirm()
        world.post("/organisations", {"name": "Labs"}, by="ada")
        for name in ("bob", "carol", "walter"):
            world.post(f"/users/{name}", {"organisation": "Labs"}, by="ada", method="PATCH")
        kinds = [f"submission.{kind}" for kind in KINDS]
        hook = world.post("/webhooks", HOOK | {"kinds": kinds}, by="alice")["id"]
        secret_source = world.submit_code(by="bob", files=package_of(SOURCE))
        failed = worker.fail("it died", "read the log", code="entry_died", log_tail=SOURCE)
        public = world.submit()
        checked, done = world.verify(public), worker.work()
        worker.rest()
        withdrawn = world.taken(world.send(parts_of(world, WITHDRAWN), by="bob"))
        reason = {"reason": f"{WITHDRAWN} reason"}
        world.post(f"/submissions/{withdrawn}/withdrawal", reason, by="bob")
        yield SimpleNamespace(
            world=world, client=client, browsers={}, worker=worker, hook=hook, public=public,
            source=secret_source, checked=checked, failed=failed, withdrawn=withdrawn, done=done,
        )  # fmt: skip


@pytest.fixture(scope="module")
def hidden(things):
    """Bob's submissions under an embargo: replayed twice, waiting, in a head-to-head, and code."""
    world, worker = things.world, things.worker
    until = {"embargo_until": "2040-01-01T00:00:00Z", "reason": "the round is not over"}
    world.post("/benchmarks/digits/phases", until)
    things.before = boards(things)
    log = world.taken(world.send(parts_of(world, EMBARGOED), by="bob"))
    runs = [world.verify(log)]
    worker.work()
    runs.append(world.verify(log, reason=f"{EMBARGOED} reason"))
    worker.work()
    code = world.submit_code(by="bob", files=package_of(EMBARGOED, f"{EMBARGOED} features"))
    organisers = worker_of_organisers(world, worker)
    runs.append(organisers.work())
    organisers.sign_on(state="stopping")  # The others go to walter's.
    head_to_head = world.post("/head-to-heads", {"challenger": things.public, "holder": log})["id"]
    waiting = world.verify(log)
    hashes = [
        world.get(f"/submissions/{each}/package", by="bob")["sha256"]
        for each in (things.source, code)
    ]
    things.ids = {log, code, head_to_head, waiting, *runs}
    things.known = {
        "benchmark_id": "digits",
        "index": 0,
        "rule": "no_seed",
        "name": worker.name,
        "user_name": "bob",
        "webhook_id": things.hook,
        "hashes": "..".join(hashes),
        "submission_id": things.public,
        "second": log,
        "package": code,
        "failed_package": things.source,
        "withdrawn": things.withdrawn,
        "verification_id": things.checked,
        "rerun": runs[0],
        "failed": things.failed,
        "queued": waiting,
        "head_to_head": head_to_head,
        "measurement": runs[2],
        "pool_id": world.get(f"/submissions/{code}", by="bob")["pool_id"],
    }
    return things


def boards(things):
    """What everybody reads of boards and counts, without what time and writes change."""
    return {each: PASSING.sub("", read(things, None, each).text) for each in COUNTS}


def read(things, person, address):
    """The answer to a person, by a token from the API and in the browser from a page."""
    if person not in things.browsers:
        things.browsers[person] = things.world.browser(person)
    is_api = address.startswith("/api/")
    headers = things.world.headers(person) if is_api else things.browsers[person]
    return things.client.get(address, headers=headers, follow_redirects=False)


def everywhere(things):
    """Every address with its path, and the face of what it is asked for."""
    found = list(addresses(things.client, things.known))
    for path, queries in MORE.items():
        plain = re.sub("{second}|{failed_package}", "{submission_id}", path)
        plain = plain.replace("{rerun}", "{verification_id}")
        found += [(plain, f"{path}?{query}".format_map(things.known)) for query in queries]
    return [each for each in found if not each[0].endswith("/events")]


def text_of(answer):
    """The headers and content of an answer. Files inside a file are read too."""
    content, kind = answer.content, answer.headers.get("content-type", "")
    if kind.startswith("application/vnd.apache.parquet"):
        content = repr(parquet.read_table(io.BytesIO(content)).to_pylist()).encode()
    elif kind.startswith("application/vnd.dsse"):
        content = base64.b64decode(answer.json()["payload"])
    elif content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
    return f"{dict(answer.headers)}\n{content.decode(errors='replace')}"


@pytest.fixture(scope="module")
def strangers(hidden):
    """What each stranger reads at each address, after people who may have seen more."""
    for person in ("bob", "olivia"):
        for address in (*COUNTS, *PREVIEWS):
            read(hidden, person, address)
    everything = list(everywhere(hidden))
    return {
        person: {address: text_of(read(hidden, person, address)) for _, address in everything}
        for person in (None, "alice", "walter")
    }


@pytest.mark.parametrize("person", [None, "alice", "walter"])
def test_strangers_read_nothing(person, strangers, hidden):
    words = {EMBARGOED, SOURCE, *hidden.ids}
    found = {
        (address, word)
        for address, text in strangers[person].items()
        for word in words
        if word in text.replace(address, "") and word not in address
    }

    assert len(strangers[person]) > 250
    assert found == set()


def test_hidden_is_answered_as_missing(hidden):
    def ask(method, address):
        headers = {**hidden.world.headers("alice"), "Accept": "*/*"}
        body = None if method == "GET" else {"reason": "not mine"}
        answer = hidden.client.request(
            method, address, headers=headers, json=body, follow_redirects=False
        )
        text = answer.text if answer.status_code >= 400 else ""
        for each in (*hidden.ids, "nothing"):
            text = text.replace(each, "ID")
        return answer.status_code, re.sub('"request_id":"\\w+"', "", text)

    known = defaultdict(lambda: "none", hidden.known)
    wrong, asked = {}, 0
    for path, route in walk(hidden.client.app.routes):
        named = re.search("{submission_id}|{verification_id}", path)
        if named is None or path.startswith("/console"):
            continue
        for each in hidden.ids:
            address = path.replace(named.group(), each).format_map(known)
            missing = path.replace(named.group(), "nothing").format_map(known)
            for method in route.methods - {"HEAD"}:
                asked += 1
                if ask(method, address) != ask(method, missing):
                    wrong[method, path] = ask(method, address), ask(method, missing)

    assert asked > 100
    assert wrong == {}


def test_counts_and_boards_stay_as_before(hidden, strangers):
    assert boards(hidden) == hidden.before


# Where its owner, a member of their organisation and organisers read of a submission.
READ = {
    EMBARGOED: {
        "/api/v1/compare", "/api/v1/queue", "/api/v1/runs.parquet", "/api/v1/submissions",
        "/api/v1/submissions/{submission_id}", "/api/v1/submissions/{submission_id}/package",
        "/api/v1/submissions/{submission_id}/package/files/{name}",
        "/api/v1/submissions/{submission_id}/runs",
        "/api/v1/submissions/{submission_id}/runs/{index}/curve",
        "/api/v1/submissions/{submission_id}/runs/{index}/log", "/api/v1/verifications",
        "/api/v1/verifications/{verification_id}/proof",
        "/api/v1/verifications/{verification_id}/race", "/api/v1/workers/{name}", "/compare",
        "/search", "/submissions", "/submissions/{submission_id}",
        "/submissions/{submission_id}/badge.svg", "/submissions/{submission_id}/runs/{index}",
        "/submissions/{submission_id}/verify", "/verifications",
        "/verifications/{verification_id}", "/workers",
        "/workers/{name}",
    },
    SOURCE: {
        "/api/v1/submissions/{submission_id}/package/files/{name}",
        "/api/v1/verifications/{verification_id}", "/packages/{hashes}",
        "/submissions/{submission_id}",
    },
}  # fmt: skip
# Where a submission is read when nothing hides it.
BOARDS = {
    "/", "/api/v1/benchmarks/{benchmark_id}/ideas", "/api/v1/benchmarks/{benchmark_id}/runs.json",
    "/api/v1/leaderboards/{benchmark_id}", "/api/v1/leaderboards/{benchmark_id}.csv",
    "/api/v1/leaderboards/{benchmark_id}.parquet", "/benchmarks/{benchmark_id}",
    "/benchmarks/{benchmark_id}/feed.atom", "/feed.atom", "/submitters/{submitter}",
}  # fmt: skip


def found_in(things, person, paths, word):
    """The paths with an answer to a person that has a word."""
    found = set()
    for path, address in everywhere(things):
        if path in paths - found and word in text_of(read(things, person, address)):
            found.add(path)
    return found


@pytest.mark.parametrize("word", READ)
@pytest.mark.parametrize("person", ["bob", "carol", "olivia", "ada"])
def test_its_people_read_it(person, word, hidden):
    expected = set() if (person, word) == ("carol", SOURCE) else READ[word]
    assert found_in(hidden, person, READ[word], word) == expected


def test_withdrawn_is_on_its_pages(hidden, strangers):
    found = {
        (path, "withdrawn=show" in address)
        for path, address in everywhere(hidden)
        if WITHDRAWN in strangers[None][address]
    }
    submission = "/api/v1/submissions/{submission_id}"

    assert found == {
        ("/api/v1/leaderboards/{benchmark_id}", True), ("/benchmarks/{benchmark_id}", True),
        ("/api/v1/submissions", False), ("/submissions", False),
        (submission, False), (f"{submission}/runs", False),
        (f"{submission}/runs/{{index}}/log", False), (f"{submission}/runs/{{index}}/curve", False),
        ("/api/v1/runs.parquet", False), ("/api/v1/benchmarks/{benchmark_id}/runs.json", False),
        ("/submissions/{submission_id}/runs/{index}", False),
        ("/submissions/{submission_id}", False), ("/submissions/{submission_id}/badge.svg", False),
    }  # fmt: skip


@pytest.fixture(scope="module")
def shown(hidden, strangers):
    """The same things after the embargo. The tests above read them before."""
    hidden.world.post("/benchmarks/digits/phases", {"reason": "the round is over"})
    return hidden


def test_end_shows_it_to_all(shown):
    paths = (READ[EMBARGOED] | BOARDS) - {"/submissions/{submission_id}/verify"}

    for person in (None, "alice", "walter"):
        assert found_in(shown, person, paths, EMBARGOED) == paths, person


def test_verdict_shows_the_source_to_all(shown):
    shown.world.post(f"/verifications/{shown.known['head_to_head']}/cancellation", {})
    wanted = shown.world.verify(shown.source, kind="entry")
    assert wanted in (shown.worker.work(), shown.worker.work()), "a replay waits before it"

    for person in (None, "alice", "walter", "carol"):
        assert found_in(shown, person, READ[SOURCE], SOURCE) == READ[SOURCE], person
