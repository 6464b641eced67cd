"""Entries: a package is handed in, a worker is chosen, its runs are measured and rank."""

import hashlib
from dataclasses import dataclass, replace

import pytest
from fastapi.testclient import TestClient

from finishline.cli.bundles import check_bundle, keys_in
from finishline.rules.canonical import sha256_of
from finishline.rules.trainings.package import package_index
from finishline.rules.verification.job import data_nonce
from finishline.rules.verification.messages import (
    BoxWord,
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
)
from server.base.database import Database
from server.base.models import Attempt, PoolRun, TrainingPackage, Verification, WorkerRow
from server.operations.export import export
from server.submissions.rescoring import rescore_submissions
from server.verifications.queue import take_due
from tests.server.test_console import Console
from tests.support.boards import rows_of
from tests.support.build import Person, Replay, claim_headers, taken
from tests.support.pages import words_of
from tests.support.services import services_of
from tests.support.workers import WORKER_SYSTEM, say_hello
from worker.failures import entry_failure

BOARD = "/api/v1/leaderboards/digits"
ENVIRONMENT = "numpy-2.4"
ENVIRONMENT_SHA256 = "e" * 64
MANIFEST = f"""
schema = 1
benchmark = "digits"
title = "Random features"
module = "train"
environment = "{ENVIRONMENT}"
license = "MIT"
[factors]
cosines = "Random features instead of a linear model"
"""
TRAIN = """
def prepare(task): return task["factors"]["cosines"]


def train(prepared, data, seed):
    yield lambda inputs: None
"""
FILES = {"training.toml": MANIFEST.encode(), "train.py": TRAIN.encode()}


def changed(old, new):
    return {"training.toml": MANIFEST.replace(old, new).encode()}


DETERMINISTIC = FILES | changed("[factors]", "deterministic = true\n[factors]")
FAILURES = (
    "entry_died", "entry_import_failed", "protocol_broken", "memory_limit", "log_limit",
    "prepare_time_limit", "silence_time_limit", "run_time_limit",
)  # fmt: skip
ANOTHER = FILES | {"net.py": b"WIDTH = 65\n"}


@dataclass
class Entries:
    client: TestClient
    database: Database
    worker: Person
    owner: Person | None = None

    def greet(self, *, entries="anyone", sha256=ENVIRONMENT_SHA256):
        box = BoxWord(entries, None, {ENVIRONMENT: sha256})
        answer = say_hello(self.client, self.worker, box=box, database=self.database)
        assert answer.status_code == 200, answer.text

    def hand_in(self, person, files=FILES, *, key=None, dry_run=False, **fields):
        parts = [("files", (name, content)) for name, content in files.items()]
        headers = person.headers | ({"Idempotency-Key": key} if key else {})
        self.owner = person
        path = "/api/v1/submissions" + ("?dry_run=true" if dry_run else "")
        return self.client.post(path, files=parts, data=fields, headers=headers)

    def measurement(self, submission_id):
        view = self.client.get(f"/api/v1/submissions/{submission_id}").json()
        return str(view["verifications"][-1]["id"])

    def view(self, submission_id):
        return self.client.get(f"/api/v1/verifications/{self.measurement(submission_id)}").json()

    def ask(self, submission_id, *, by=None, **wanted):
        path = f"/api/v1/submissions/{submission_id}/verifications"
        return (by or self.owner).post(path, wanted)

    def sent(self):
        with self.database.write() as session:
            return [each.worker for each in take_due(session)]

    def job(self, submission_id):
        verification_id = self.measurement(submission_id)
        return Replay(self.client, self.database, self.worker, submission_id, verification_id)

    def lease(self, submission_id):
        answer = self.job(submission_id).claim()
        assert answer.status_code == 200, answer.text
        return answer.json()

    def report(self, lease, report):
        return Replay(self.client, self.database, self.worker, "", "").report(lease, report)

    def measure(self, submission_id, **how):
        lease = self.lease(submission_id)
        return self.report(lease, boxed_report(self.job(submission_id).seeds(), **how))


def boxed_report(
    seeds,
    *,
    seconds=2.0,
    quality=97.9,
    control=96.0,
    repeats=True,
    failed=None,
    log="ValueError: no such thing",
):
    """The report of a package that asks twice a run, the second time at this quality.

    The sixth run is a control, the seventh repeats the first, with equal predictions or not.
    """
    runs = []
    for index, seed in enumerate(seeds):
        pace, best = seconds * (1 + 0.01 * index) / 2, control if index == 5 else quality
        evaluations = [
            ReplayEvaluation(
                epoch=float(number),
                samples=None,
                seconds=number * (pace + 0.001),
                quality=found,
                ledger={"init": 0.4, "warmup": 0.1, "train": number * pace, "eval": number * 0.001},
                second_half=found,
                predictions_sha256=f"{seed:056x}{number if repeats else index:08x}",
            )
            for number, found in ((1, min(best, 90.0)), (2, best))
        ]
        reached = best >= 97.5
        runs.append(
            ReplayRun(
                index=index,
                seed=seed,
                status="reached" if reached else "not_reached",
                evaluations=evaluations,
                ledger=evaluations[-1].ledger,
                tta_seconds=evaluations[-1].seconds if reached else None,
                parent_seconds=evaluations[-1].seconds,
            )
        )
    if failed is None:
        return ReplayReport(runs=runs, system=WORKER_SYSTEM)
    failure = entry_failure(failed, "the code raised an error")
    ended = {"tta_seconds": None, "parent_seconds": None, "failure": failure, "log_tail": log}
    last = replace(runs[0], status="failed", evaluations=[], **ended)
    return ReplayReport(runs=[last], system=WORKER_SYSTEM, failure=failure)


@pytest.fixture
def entries(client, database, walter):
    found = Entries(client, database, walter)
    found.greet()
    return found


@pytest.fixture
def entry_id(entries, alice):
    return entries.hand_in(alice).json()["id"]


def test_a_package_is_measured_and_ranks(entries, alice, olivia, client):
    entry = taken(entries.hand_in(alice))
    assert entry["package"]["sha256"] == sha256_of(package_index(FILES))
    assert (entry["division"], entry["status"], entry["runs"]) == ("open", "verifying", [])
    assert entry["model"] == "Random features"

    assert entries.measure(entry["id"]).status_code == 200
    shown = client.get(f"/api/v1/submissions/{entry['id']}").json()
    assert (shown["status"], shown["evidence"]) == ("verified", "measured")
    assert shown["measured_seconds"] == pytest.approx(2.042, abs=0.001)
    board = client.get(BOARD).json()
    assert [(row["submission_id"], row["rank"]) for row in rows_of(board)] == [(entry["id"], 1)]
    records = client.get("/api/v1/benchmarks/digits/records").json()
    assert entry["id"] in str(records)
    # It has no logs of its own to score again.
    rescored = rescore_submissions(
        services_of(client), benchmark_id="digits", current=True, progress=print
    )
    assert (rescored.submissions, rescored.failed) == (0, [])


def test_a_strangers_word_alone_measures_no_code(entries, entry_id, database, client):
    """Nobody trains a run of code again, so the owner of a worker could name any time."""
    with database.write() as session:
        worker = session.get_one(WorkerRow, WORKER_SYSTEM.worker)
        worker.confirmed_by = worker.user_id
    entries.measure(entry_id)

    codes = [reason["code"] for reason in entries.view(entry_id)["reasons"]]
    assert codes[-1] == "no_second_worker"
    shown = client.get(f"/api/v1/submissions/{entry_id}").json()
    assert (shown["status"], shown["evidence"], shown["measured_seconds"]) == (
        "inconclusive", "claimed", None,
    )  # fmt: skip


def test_a_worker_gets_package_and_nonces_with_its_lease_alone(entries, alice, client, database):
    entry = entries.hand_in(alice).json()
    assert entries.sent() == ["walter-1"]
    lease = entries.lease(entry["id"])
    path = f"/api/v1/attempts/{lease['attempt_id']}/training"

    grant = client.get(path, headers=claim_headers(lease)).json()

    with database.read() as session:
        verification = session.get_one(Verification, entries.measurement(entry["id"]))
        entropy = bytes.fromhex(verification.nonce)
    nonces = [each["data_nonce"] for each in lease["job"]["trainings"]]
    assert nonces == [data_nonce(entropy, index).hex() for index in range(6)]
    (package,) = grant["packages"].values()
    assert package["files"] == {name: text.decode() for name, text in FILES.items()}
    assert (package["environment_sha256"], package["factors"]) == (
        ENVIRONMENT_SHA256,
        {"cosines": True},
    )
    task = client.get(
        f"/api/v1/attempts/{lease['attempt_id']}/task/task.py", headers=claim_headers(lease)
    )
    assert hashlib.sha256(task.content).hexdigest() == grant["task_files"]["task.py"]
    stale = claim_headers(lease) | {"Finishline-Fence": "0"}
    assert client.get(path, headers=stale).status_code == 409
    assert client.get(path, headers=alice.headers | {"Finishline-Fence": "1"}).status_code == 409
    other = client.get(path.replace("/training", "/task/../digits.toml"), headers=stale)
    assert other.status_code == 404


def test_the_source_is_published_with_the_verdict(entries, entry_id, alice, bob, olivia, client):
    path = f"/api/v1/submissions/{entry_id}/package"

    def sees(person):
        headers = person.headers if person else {}
        listed = client.get(path, headers=headers).json()["files"]
        return len(listed), client.get(f"{path}/files/train.py", headers=headers).status_code

    assert [sees(who) for who in (alice, olivia)] == [(2, 200)] * 2
    assert [sees(who) for who in (bob, None)] == [(0, 404)] * 2
    entries.measure(entry_id)
    assert sees(bob) == sees(None) == (2, 200)
    text = client.get(f"{path}/files/train.py")
    assert (text.text, text.headers["content-type"]) == (TRAIN, "text/plain; charset=utf-8")
    assert client.get(f"{path}/files/other.py").status_code == 404


def test_a_package_is_handed_in_once(entries, alice, bob):
    entry_id = entries.hand_in(alice, key="k").json()["id"]

    again = entries.hand_in(alice, key="k")
    assert (again.json()["id"], again.headers["Idempotent-Replayed"]) == (entry_id, "true")
    own = entries.hand_in(alice)
    assert own.status_code == 409
    assert f"/submissions/{entry_id}" in own.json()["detail"]
    other = entries.hand_in(bob)
    assert other.status_code == 409
    assert entry_id not in other.json()["detail"]
    entries.measure(entry_id)
    assert entry_id in entries.hand_in(bob).json()["detail"]


COPIED = FILES | {"train.py": b"# My own idea.\n" + TRAIN.encode()}


def test_the_same_program_is_a_duplicate(entries, alice, bob, olivia, client):
    original = entries.hand_in(alice).json()["id"]
    entries.measure(original)
    preview = entries.hand_in(bob, COPIED, dry_run=True)
    assert preview.json()["duplicate_of"] == original

    made = entries.hand_in(bob, COPIED).json()
    copied = made["id"]

    assert (made["duplicate_of"], made["verifications"]) == (original, [])
    refused = entries.ask(copied, by=olivia)
    assert (refused.status_code, f"a duplicate of {original}" in refused.text) == (409, True)
    shown = client.get(f"/api/v1/submissions/{copied}").json()
    assert (shown["evidence"], shown["measured_seconds"]) == ("claimed", None)
    rows = rows_of(client.get(BOARD).json())
    assert [(row["submission_id"], row["rank"], row["duplicate_of"]) for row in rows] == [
        (original, 1, None),
        (copied, None, original),
    ]
    records = client.get("/api/v1/benchmarks/digits/records").text
    assert original in records
    assert copied not in records
    for path in (f"/submissions/{copied}", "/benchmarks/digits"):
        assert f'<a href="/submissions/{original}">' in client.get(path).text
    badge = client.get(f"/submissions/{copied}/badge.json").json()
    assert badge["message"] == "not measured"


def test_more_runs_join_the_same_pool_and_are_compared(entries, entry_id, olivia, database):
    entries.measure(entry_id)

    more = taken(entries.ask(entry_id))

    entries.measure(entry_id, seconds=3.0)
    with database.read() as session:
        runs = session.query(PoolRun).all()
    assert (len(runs), len({run.pool_id for run in runs})) == (10, 1)
    assert entries.ask(entry_id, kind="replay").status_code == 403, "code is not replayed"
    page = Console(entries.client, olivia).get(f"/console/decide/{more['id']}").text
    assert "5 of 5" in words_of(page)
    assert "slower (Welch" in words_of(page)


@pytest.mark.parametrize(
    ("code", "state", "attempts"),
    [
        *((code, "failed", 1) for code in FAILURES),
        ("box_unavailable", "queued", 2),
    ],
)
def test_failure_of_the_package_costs_an_attempt(entries, entry_id, client, code, state, attempts):
    assert entries.measure(entry_id, failed=code).status_code == 200

    view = entries.view(entry_id)
    assert (view["state"], len(view["attempts"])) == (state, attempts)
    assert view["attempts"][0]["failure"]["code"] == code
    assert view["attempts"][0]["refunded"] is (attempts == 2)
    if state == "failed":
        assert "the code raised an error" in view["reasons"][0]["message"]
        shown = client.get(f"/api/v1/submissions/{entry_id}").json()
        assert (shown["status"], shown["evidence"]) == ("claimed", "claimed")


def test_a_package_that_misses_the_target_is_rejected(entries, entry_id, client):
    entries.measure(entry_id, quality=97.0)

    view = entries.view(entry_id)
    assert (view["outcome"], view["reasons"][0]["code"]) == ("rejected", "did_not_reach")
    assert rows_of(client.get(BOARD).json())[0]["rank"] is None


def test_package_that_carries_knowledge_is_left_open(entries, entry_id, client, database):
    entries.measure(entry_id, control=14.7)

    view = entries.view(entry_id)
    assert (view["outcome"], view["runs_planned"]) == ("inconclusive", 6)
    assert (view["control_runs"], view["repeat_runs"]) == ([5], [])
    codes = {reason["code"]: reason for reason in view["reasons"]}
    assert codes["reached_target"]["numbers"] == {"reached": 5.0, "started": 5.0}
    assert codes["carried_knowledge"]["numbers"] == {"best": 14.7, "needed": 53.75}
    with database.read() as session:
        assert sorted(run.index for run in session.query(PoolRun)) == [0, 1, 2, 3, 4]
    assert rows_of(client.get(BOARD).json())[0]["rank"] is None
    assert "One more run is the shortcut test" in client.get("/benchmarks/digits").text
    for page in (f"/submissions/{entry_id}?tab=runs", f"/submissions/{entry_id}"):
        assert client.get(page).text.count(">shortcut test<") == 1
    page = client.get(f"/verifications/{entries.measurement(entry_id)}").text
    assert "Not measured: 5 timed runs and 1 check of the code left its time open" in page
    assert page.count(">untimed<") == 1
    assert "are public, so code can carry them: its results are a demonstration." in page


@pytest.mark.parametrize(("repeats", "word"), [(True, "shown"), (False, "struck")])
def test_repeated_run_shows_determinism(entries, alice, client, database, repeats, word):
    made = entries.hand_in(alice, DETERMINISTIC).json()
    assert made["package"]["determinism"] == "not checked"
    lease = entries.lease(made["id"])
    nonces = [each["data_nonce"] for each in lease["job"]["trainings"]]
    with database.read() as session:
        seeds = session.get_one(Attempt, lease["attempt_id"]).verification.seeds
    assert (len(seeds), seeds[6], nonces[6]) == (7, seeds[0], nonces[0])

    report = boxed_report(seeds, repeats=repeats)
    report.runs[0] = replace(report.runs[0], processor_share=0.43)
    assert entries.report(lease, report).status_code == 200  # It is trained once more.
    answer = entries.report(entries.lease(made["id"]), report)

    assert answer.status_code == 200, answer.text
    shown = client.get(f"/api/v1/submissions/{made['id']}").json()
    assert (shown["evidence"], shown["package"]["determinism"]) == ("measured", word)
    assert shown["measured_seconds"] == pytest.approx(2.042, abs=0.001)
    with database.read() as session:
        assert sorted(run.index for run in session.query(PoolRun)) == [0, 1, 2, 3, 4]
    verification = client.get(f"/api/v1/verifications/{entries.measurement(made['id'])}").json()
    last, noisy = verification["reasons"][-2:]
    assert (noisy["code"], noisy["weight"]) == ("noisy_host", "note")
    assert noisy["numbers"] == {"cpu_share": 0.43, "needed": 0.8}
    assert shown["busy"] is True
    assert (last["code"], verification["outcome"]) == (
        "repeat_equal" if repeats else "repeat_differs",
        "verified",
    )
    assert last["numbers"] == {"evaluations": 2.0, "equal": 2.0 if repeats else 0.0}
    page = client.get(f"/submissions/{made['id']}?tab=runs").text
    assert "<td>repeat of run 1</td>" in page
    assert "5 of 5 timed runs reached the target" in page
    assert (
        f"{word}: a repeated run gave" in client.get(f"/submissions/{made['id']}?tab=system").text
    )
    proof = f"/api/v1/verifications/{entries.measurement(made['id'])}/proof"
    whole = check_bundle(client.get(proof).content, keys_in(client.get("/api/v1/keys").json()))
    assert {check.result for check in whole.checks} == {"pass"}, whole.checks


@pytest.mark.parametrize(
    ("changes", "file", "told"),
    [
        ({"training.toml": b"schema = 1\nbench"}, "training.toml", "not TOML"),
        ({"json.py": b""}, "json.py", "the name of a module"),
        ({"../x.py": b""}, "../x.py", "name"),
        ({"data.bin": b"\0"}, "data.bin", "kind of file"),
        ({"notes.md": b"\xff"}, "notes.md", "not UTF-8"),
        (changed("digits", "cifar10"), "training.toml", "unknown benchmark"),
        (changed("numpy-2.4", "numpy-1.0"), "training.toml", "no worker has numpy-1.0"),
        ({f"part{n}.py": (b"#" * 999 + b"\n") * 88 for n in range(3)}, None, "bytes"),
    ],
)
def test_a_broken_package_is_refused_with_file_and_expectation(entries, alice, changes, file, told):
    answer = entries.hand_in(alice, FILES | changes)

    assert answer.status_code == 422
    problem = answer.json()["problems"][0]
    assert problem["file"] == file
    assert told in problem["message"]
    assert problem["expected"]


def test_sandbox_without_a_cgroup_trains_for_approved_users(entries, alice, olivia, client):
    entries.greet(entries="known")
    (worker,) = client.get("/api/v1/workers").json()["workers"]
    environments = {ENVIRONMENT: ENVIRONMENT_SHA256}
    assert worker["box"] == {"entries": "known", "why": None, "environments": environments}

    refused = entries.hand_in(alice)

    assert refused.status_code == 422
    assert "finishline admin user approve alice" in refused.json()["hint"]
    assert entries.hand_in(olivia).status_code == 201
    approved = olivia.put("/api/v1/users/alice/known", {"known": True})
    assert approved.json()["known_at"] is not None
    assert entries.hand_in(alice, ANOTHER).status_code == 201
    assert len(entries.sent()) == 1


def test_entries_are_found_by_the_hash_of_their_package(entries, alice, client):
    made = entries.hand_in(alice).json()
    entries.hand_in(alice, ANOTHER)
    sha256 = made["package"]["sha256"]

    def found(package):
        listed = client.get("/api/v1/submissions", params={"package": package}).json()
        return [each["id"] for each in listed["submissions"]]

    assert found(sha256) == found(sha256[:12]) == [made["id"]]
    assert found("0" * 64) == []
    assert client.get("/api/v1/submissions?package=_%25").status_code == 422


def test_an_entry_waits_for_a_worker_with_its_environment(entries, entry_id, database):
    entries.greet(sha256="f" * 64)
    assert entries.sent() == []
    entries.greet()
    assert len(entries.sent()) == 1
    with database.read() as session:
        assert session.get_one(TrainingPackage, entry_id).environment_sha256 == ENVIRONMENT_SHA256


def test_package_takes_device_seconds_from_the_quota(entries, alice, olivia, client):
    """Five runs and a control, each of 60 s and three times 60 s to prepare. A repeat is one."""
    for seconds, files, status in (
        (5, FILES, 403),
        (6 * 240, FILES, 201),
        (6 * 240, ANOTHER, 429),
        (12 * 240, ANOTHER | DETERMINISTIC, 429),
        (13 * 240, ANOTHER | DETERMINISTIC, 201),
    ):
        quota = {"gpu_seconds_per_month": seconds, "reason": "a small machine"}
        answer = olivia.put("/api/v1/quotas/alice", quota)
        assert answer.status_code == 200, answer.text
        assert entries.hand_in(alice, files).status_code == status, seconds
    assert len(client.get("/api/v1/submissions").json()["submissions"]) == 2


def test_an_export_has_the_source_of_a_package_from_its_verdict(entries, alice, client, tmp_path):
    first, second = (
        entries.hand_in(alice, FILES | {"notes.md": words}).json()["id"]
        for words in (b"Published words.\n", b"Sealed words.\n")
    )
    entries.measure(first)

    folder, _ = export(services_of(client), tmp_path)

    found = b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())
    assert first.encode() in found
    assert second.encode() in found
    assert b"Published words." in found
    assert b"Sealed words." not in found


def paced_report(trainings, pace):
    """Runs that each take so many times as long."""
    whole = boxed_report([training.seed for training in trainings], control=97.9)
    runs = []
    for run, training in zip(whole.runs, trainings, strict=True):
        times, rows = pace(training), []
        for row in run.evaluations:
            ledger = {name: value * times for name, value in row.ledger.items()}
            rows.append(replace(row, seconds=row.seconds * times, ledger=ledger))
        ended = {"tta_seconds": rows[-1].seconds, "parent_seconds": rows[-1].seconds}
        runs.append(replace(run, evaluations=rows, ledger=rows[-1].ledger, **ended))
    return replace(whole, runs=runs)


def test_its_owner_has_the_factors_of_a_package_measured(entries, entry_id, bob, olivia, client):
    organiser, page = Console(client, olivia), f"/submissions/{entry_id}"
    assert "Measure ablations" not in organiser.get(page).text  # They are secret until the verdict.
    entries.measure(entry_id)
    assert "Measure ablations" in organiser.get(page).text
    client.cookies.clear()
    before = rows_of(client.get(BOARD).json())
    wanted = {"kind": "ablation", "repeats": 3}

    assert entries.ask(entry_id, by=bob, **wanted).status_code == 403
    asked = entries.ask(entry_id, **wanted)

    assert asked.status_code == 201, asked.text
    assert asked.json()["runs_planned"] == 6
    assert entries.ask(entry_id, **wanted).status_code == 409
    lease = entries.lease(entry_id)
    with entries.database.read() as session:
        trainings = list(session.get_one(Verification, asked.json()["id"]).trainings)
        report = paced_report(trainings, lambda run: 2.0 if run.settings else 1.0)
    answer = entries.report(lease, report)
    assert answer.status_code == 200, answer.text
    shown = entries.view(entry_id)
    assert shown["outcome"] == "verified", shown["reasons"]
    (factor,) = shown["factors"]
    assert (factor["off"], factor["pairs"], factor["reached"]) == (["cosines"], 3, 3)
    assert factor["low"] < 2.0 < factor["high"]
    page = f"/verifications/{asked.json()['id']}"
    assert "without cosines</small>" in client.get(page).text
    assert page in client.get(f"/submissions/{entry_id}?tab=system").text
    # Its runs are of other code than the entry's: they neither fill its pool nor move its row.
    assert rows_of(client.get(BOARD).json()) == before
    without = ANOTHER | changed(MANIFEST, MANIFEST.partition("[factors]")[0])
    other = entries.hand_in(bob, without).json()["id"]
    entries.measure(other)
    refused = entries.ask(other, kind="ablation")
    assert (refused.status_code, "names no [factors]" in refused.json()["detail"]) == (422, True)
