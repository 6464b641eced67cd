"""First place of a board: the reference, head-to-heads, withdrawals, and whose turn is next."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from finishline.rules.verification.messages import Failure
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.models import Message
from server.verifications.head_to_heads import Measured, Meeting, find_first_place
from server.verifications.settle import BoardSettler
from tests.support.boards import rows_of
from tests.support.build import WORKER_SYSTEM, Replay, ask_for_replay, build_report, measure
from tests.support.copies import serving
from tests.support.pages import words_of
from tests.support.workers import greet_as_servers, say_hello

BOARD = "/api/v1/leaderboards/digits"
SYSTEM = {"hardware_class": "cpu-test"}
OPEN = {"division": "open", "code_url": "https://example.org/code"}


@pytest.fixture
def settle(client):
    """What the dispatch does after each change of a board."""
    return BoardSettler(client.app.state.services).settle


@pytest.fixture
def queued(client, settle, database, walter):
    def find():
        settle()
        found = client.get("/api/v1/verifications?state=queued").json()["verifications"]
        return [
            Replay(client, database, walter, each["submission_id"], each["id"]) for each in found
        ]

    return find


@pytest.fixture
def row_of(measured, alice):
    def make(batch_size, seconds_per_epoch, *, by=alice, **claim):
        settings = {"batch_size": batch_size}
        how = {"hyperparameters": settings, "system": SYSTEM, "by": by, "model": f"b{batch_size}"}
        return measured(seconds_per_epoch=seconds_per_epoch, **OPEN | how | claim)

    return make


@pytest.fixture
def reference(row_of, queued):
    """The id of the reference, measured at 0.118 s an epoch; a first row of 0.2 s made it due."""
    row_of(32, 0.2)
    (job,) = queued()
    assert job.view()["runs_planned"] == 10
    measure(job, seconds_per_epoch=0.118)
    return job.submission_id


def fight(
    job, challenger, holder, *, qualities=None, of_holder=None, system=WORKER_SYSTEM, lease=None
):
    runs = []
    for index, seed in enumerate(job.seeds()):
        is_challenger = index % 4 in (0, 3)
        pace = (challenger if is_challenger else holder) * (1 + 0.003 * (index * 7 % 5))
        own = qualities if is_challenger else of_holder
        (run,) = build_report([seed], seconds_per_epoch=pace, qualities=own).runs
        runs.append(replace(run, index=index))
    lease = lease or job.claim(worker=system.worker).json()
    answer = job.report(lease, replace(build_report([]), runs=runs, system=system))
    assert answer.status_code == 200, answer.text
    return job.view()


@pytest.fixture
def winner(reference, row_of, queued):
    faster = row_of(128, 0.1)
    for _ in range(2):
        (job,) = queued()
        fight(job, 0.1, 0.118)
    return faster


def rows(client, **query):
    found = client.get(BOARD, params={"division": "open"} | query).json()
    return [(each["rank"], each["submission_id"]) for each in rows_of(found)]


def records(client):
    found = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    return [each for each in found if each["division"] == "open"]


def row(client, submission_id):
    entries = rows_of(client.get(BOARD, params={"division": "open"}).json())
    return next(each for each in entries if each["submission_id"] == submission_id)


def told(client, submission_id):
    entry = row(client, submission_id)
    return entry["not_first"], entry["head_to_head"]


def ask(challenger, holder, *, by):
    body = {"challenger": challenger, "holder": holder, "reason": "near"}
    return by.post("/api/v1/head-to-heads", body)


def test_the_reference_is_the_first_holder_of_a_board(reference, queued, client):
    entries = rows_of(client.get(BOARD, params={"division": "open"}).json())
    first, second = entries
    assert (first["rank"], first["submission_id"]) == (1, reference)
    shown = (first["submitter"], first["is_holder"], first["measured_runs"])
    assert shown == ("reference", True, 10)
    assert (first["model"], first["claimed_seconds"]) == ("Digits reference", None)
    assert (second["rank"], second["not_first"]) == (2, None)
    assert queued() == []
    (division,) = records(client)
    assert [each["submission_id"] for each in division["records"]] == [reference]
    page = client.get(f"/submissions/{reference}").text
    assert "10 runs measured the time of the reference." in page
    assert "agrees with the submitted logs" not in page


def fail(job):
    failure = Failure("rules", "data_set_differs", "another data set", "install the right one")
    report = replace(build_report([]), runs=[], failure=failure)
    answer = job.report(job.claim().json(), report)
    assert (answer.status_code, answer.json()["state"]) == (200, "failed"), answer.text


def test_a_failed_reference_is_asked_for_again(row_of, queued, client, walter, olivia):
    """Three times in all, while a worker of its class is there. Then an organiser can ask."""
    row_of(32, 0.2)
    say_hello(client, walter)
    tried = []
    for _ in range(3):
        (job,) = queued()
        tried.append(job.verification_id)
        fail(job)
    assert (len(set(tried)), queued()) == (3, [])

    job.ask_again(olivia)

    assert job.view()["runs_planned"] == 10
    measure(job, seconds_per_epoch=0.118)
    assert rows(client)[0] == (1, job.submission_id)


def test_a_failed_reference_waits_for_a_worker_of_its_class(row_of, queued, client, walter):
    row_of(32, 0.2)
    (job,) = queued()
    fail(job)
    assert queued() == []
    say_hello(client, walter)

    assert BoardSettler(client.app.state.services).settle(every=True)

    (again,) = queued()
    assert again.submission_id == job.submission_id


def test_challenger_takes_first_place(reference, row_of, queued, client, alice, database):
    wanted = {"kinds": ["record.set"], "scope": "benchmark", "benchmark": "digits"}
    hook = {"url": "https://hooks.example/", **wanted}
    assert alice.post("/api/v1/webhooks", hook).status_code == 201
    # A lower mean is not first before its head-to-head.
    faster = row_of(128, 0.1)
    assert rows(client)[:2] == [(1, reference), (2, faster)]
    assert row(client, faster)["not_first"] == "lower mean, its head-to-head waits"
    (job,) = queued()
    view = job.view()
    assert (view["kind"], view["submission_id"]) == ("head_to_head", faster)
    assert view["against_id"] == reference
    assert told(client, faster) == ("lower mean, its head-to-head waits", job.verification_id)
    lease = job.claim().json()
    assert told(client, faster) == ("lower mean, its head-to-head is running", job.verification_id)
    page = client.get("/benchmarks/digits?division=open").text
    assert f'href="/verifications/{job.verification_id}">lower mean, its head-to-head is' in page
    assert queued() == []

    assert fight(job, 0.1, 0.118, lease=lease)["outcome"] == "continues"
    (job,) = queued()
    ended = fight(job, 0.1, 0.118)

    assert (ended["outcome"], len(ended["head_to_head"]["pairs"])) == ("challenger_faster", 10)
    assert rows(client)[:2] == [(1, faster), (2, reference)]
    assert row(client, faster)["is_holder"]
    assert told(client, faster) == (None, job.verification_id)
    for page in ("/benchmarks/digits?division=open", f"/submissions/{faster}"):
        assert f'href="/verifications/{job.verification_id}">' in client.get(page).text
    board = words_of(client.get("/benchmarks/digits?division=open").text)
    for words in ("First place 0.837 s", "Reference takes 1.19 ×", "How sure p &lt; 0.0001"):
        assert words in board
    assert "13 runs: 3 by itself, 10 in head-to-heads" in board
    for words in ("first place since", "+19 %", "was first place, "):
        assert words in board
    closed = words_of(client.get("/benchmarks/digits?division=closed").text)
    assert "First place, open division 0.837 s code that changes the method" in closed
    home = client.get("/").text
    assert 'href="/benchmarks/digits?division=open"' in home
    assert "are a demonstration" in words_of(home)
    (division,) = records(client)
    assert [each["submission_id"] for each in division["records"]] == [reference, faster]
    record = division["records"][-1]
    assert (record["beaten"], record["verification_id"]) == (reference, job.verification_id)
    assert record["p_value"] < 0.01 / 12
    assert row(client, faster)["measured_runs"] == 3 + 10
    assert row(client, reference)["measured_runs"] == 10 + 10
    assert queued() == []

    # It is announced once.
    row_of(256, 0.15)
    with database.read() as session:
        (content,) = session.scalars(select(Message.content))
    assert content["sentence"].endswith("batch size 128 holds the record of digits (open)")
    assert (content["submission"]["id"], content["record"]["beaten"]) == (faster, reference)
    assert 14 < content["record"]["margin_percent"] < 16


def test_a_board_that_fails_holds_up_no_other(row_of, client, database):
    class Settler(BoardSettler):
        def _settle(self, benchmark):
            if benchmark.benchmark_id == "cifar10":
                raise ValueError("broken")
            return super()._settle(benchmark)

    row_of(32, 0.2)
    with database.write() as session:
        raise_board_version(session, "cifar10")
    settler = Settler(client.app.state.services)

    assert (settler.settle(), settler.settle()) == (True, False)
    waiting = client.get("/api/v1/verifications?state=queued").json()["verifications"]
    assert [each["reason"] for each in waiting] == ["the first holder of its board"]


def test_full_quota_is_tried_again(reference, row_of, queued, client, ada, alice):
    """A processor counts as a device, in the reservation and while it runs."""

    def allow(seconds):
        body = {"gpu_seconds_per_month": seconds, "reason": "-"}
        assert ada.put("/api/v1/quotas/alice", body).is_success

    def reserved():
        uses = alice.get("/api/v1/me/quota").json()["quotas"]
        return {use["measure"]: use["reserved"] for use in uses}["gpu_seconds_per_month"]

    faster = row_of(128, 0.1)
    allow(1)
    assert (queued(), reserved()) == ([], 0)
    assert row(client, faster)["not_first"] == "lower mean, its head-to-head waits"
    refused = ask(faster, reference, by=alice)
    assert refused.status_code == 403
    assert "this head-to-head will take" in refused.json()["detail"]
    allow(100_000)
    assert queued() == []
    assert BoardSettler(client.app.state.services).settle(every=True)

    (job,) = queued()
    estimate = reserved()
    assert estimate > 0
    job.claim()
    job.change(job.attempt_id, started_at=utc_now() - timedelta(seconds=estimate + 50))
    assert reserved() == pytest.approx(estimate + 50, abs=20)


def test_submitter_near_the_holder_asks(reference, row_of, queued, alice, bob, olivia):
    """0.125 s an epoch is 4 % above the holder's, and 0.135 s 12 %."""
    near, far = row_of(128, 0.125, by=alice), row_of(96, 0.135, by=alice)
    assert queued() == []
    for challenger, holder, by, status, words in (
        (far, reference, alice, 409, "takes 1.12 times the holder's time, expected less than 1.1"),
        (near, far, alice, 409, f"which has {reference}"),
        (near, reference, bob, 403, "belongs to another user"),
        (reference, near, bob, 403, "belongs to another user"),
    ):
        answer = ask(challenger, holder, by=by)
        assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text

    asked = ask(near, reference, by=alice)

    assert asked.status_code == 201, asked.text
    assert asked.json()["head_to_head"]["threshold"] == pytest.approx(0.01 / 12)
    uses = alice.get("/api/v1/me/quota").json()["quotas"]
    assert {use["measure"]: use["reserved"] for use in uses}["gpu_seconds_per_month"] > 0
    again = ask(row_of(48, 0.125, by=bob), reference, by=bob)
    assert (again.status_code, "one at a time" in again.json()["detail"]) == (409, True)
    (job,) = queued()
    assert fight(job, 0.13, 0.118)["outcome"] == "not_proven"
    again = ask(near, reference, by=alice)
    assert (again.status_code, "meets the same holder once" in again.json()["hint"]) == (409, True)
    # The holder is the holder however the sides are named.
    sides = ask(reference, far, by=olivia).json()["head_to_head"]
    assert (sides["challenger"], sides["holder"]) == (far, reference)


def test_a_head_to_head_without_a_result_says_so(reference, row_of, queued, client, olivia):
    faster = row_of(128, 0.1)
    for _ in range(3):
        (job,) = queued()
        assert row(client, faster)["not_first"] == "lower mean, its head-to-head waits"
        job.claim()
        assert row(client, faster)["not_first"] == "lower mean, its head-to-head is running"
        assert job.cancel(olivia).is_success
        assert row(client, faster)["not_first"] == "lower mean, its head-to-head had no result"
    assert queued() == []


def test_a_worker_of_another_class_leases_no_head_to_head(reference, row_of, queued):
    """It was drawn, and said hello with another class before it took the attempt."""
    row_of(128, 0.1)
    (job,) = queued()
    greet_as_servers(job.database, "walter-2", "gpu-test")

    refused = job.claim(worker="walter-2")

    assert (refused.status_code, "of cpu-test" in refused.json()["detail"]) == (409, True)
    assert job.view()["state"] == "queued"
    job.change(job.attempt_id, sent_to=None)  # As the server does, which draws another one.
    assert fight(job, 0.1, 0.118)["outcome"] == "continues"


def test_waiting_one_follows_a_new_holder(reference, winner, row_of, queued, olivia, bob):
    reason = {"reason": "-"}
    address = f"/api/v1/submissions/{winner}"
    assert olivia.post(f"{address}/withdrawal", reason).is_success
    other = row_of(96, 0.09, by=bob)
    (waits,) = queued()
    assert waits.view()["against_id"] == reference
    assert olivia.post(f"{address}/reinstatement", reason).is_success

    (job,) = queued()

    assert waits.view()["state"] == "cancelled"
    view = job.view()
    assert (view["submission_id"], view["against_id"]) == (other, winner)


def test_a_challenger_that_is_not_ahead_keeps_its_place(reference, row_of, queued, client):
    unlucky = row_of(128, 0.05)
    (job,) = queued()

    assert fight(job, 0.13, 0.118)["outcome"] == "not_proven"

    assert rows(client)[0] == (1, reference)
    assert row(client, unlucky)["not_first"].startswith("lower mean, not proven: p = ")
    page = client.get(f"/submissions/{unlucky}").text
    assert "on equal seeds and data it is not proven faster (p" in page
    assert "keeps first place." in page
    assert queued() == []  # It meets this holder once.
    (division,) = records(client)
    (missed,) = division["not_records"]
    assert (missed["submission_id"], missed["holder"]) == (unlucky, reference)
    page = client.get("/benchmarks/digits/charts/records")
    assert "no first place" in page.text
    board = words_of(client.get("/benchmarks/digits?division=open").text)
    assert "Its mean is lower, but side by side it was behind (5 pairs, " in board
    assert "behind after 5, 10 or 20 pairs has lost" in board


def test_lost_runs_count_for_their_row(reference, row_of, queued, client):
    lucky = row_of(128, 0.117)
    before = row(client, lucky)
    assert before["not_first"] == "lower mean, its head-to-head waits"
    (job,) = queued()

    assert fight(job, 0.13, 0.118)["outcome"] == "not_proven"

    after = row(client, lucky)
    assert after["measured_runs"] == before["measured_runs"] + 5
    assert after["measured_seconds"] > row(client, reference)["measured_seconds"]
    assert after["not_first"] is None


def test_a_replayed_row_has_the_model_of_the_reference(row_of, client):
    sent = row_of(32, 0.2, model="Quantum-GPT", framework="Ours")
    entry = row(client, sent)
    named = ("Digits reference, batch size 32", "Quantum-GPT")
    assert (entry["model"], entry["claimed_model"]) == named
    assert entry["framework"].startswith("PyTorch")
    page = client.get(f"/submissions/{sent}").text
    assert "claimed model: Quantum-GPT" in page
    assert "Quantum-GPT" not in client.get("/benchmarks/digits?division=open").text
    assert "Quantum-GPT" not in client.get("/").text


def test_whoever_had_the_fewest_is_next(reference, row_of, queued, alice, bob):
    first = row_of(128, 0.1, by=alice)
    (job,) = queued()
    row_of(48, 0.1, by=alice)
    bobs = row_of(96, 0.1, by=bob)
    fight(job, 0.13, 0.118)

    (job,) = queued()

    assert (first != job.submission_id, job.submission_id) == (True, bobs)


def test_a_submitter_has_one_number(reference, row_of, client, alice, bob):
    fast, slow = row_of(128, 0.13, by=bob), row_of(96, 0.15, by=bob)
    assert rows(client)[1] == (2, fast)
    assert row(client, slow)["rank"] is None
    assert row(client, slow)["unranked_reason"] == "another row of its submitter ranks"


def test_withdrawal_of_the_holder(reference, winner, client, alice, bob, digits_submission, submit):
    """Also where a duplicate takes over the runs of the withdrawn one."""
    assert rows(client)[0] == (1, winner)
    digits_submission.claim |= OPEN | {"hyperparameters": {"batch_size": 128}}
    digits_submission.claim["system"] |= SYSTEM
    parts = digits_submission.at(128)
    parts.logs = {name: log.replace(b'"closed"', b'"open"') for name, log in parts.logs.items()}
    sent = submit(parts, by=bob).json()
    assert sent["duplicate_of"] == winner
    body = {"reason": "a mistake"}
    assert alice.post(f"/api/v1/submissions/{winner}/withdrawal", body).status_code == 200

    assert rows(client)[0] == (1, reference)
    (division,) = records(client)
    assert [
        (each["submission_id"], each["ended"], each["returned"]) for each in division["records"]
    ] == [(reference, None, False), (winner, "withdrawn", False), (reference, None, True)]
    assert row(client, sent["id"])["not_first"] == "lower mean, its head-to-head waits"
    assert client.get("/").status_code == 200
    feed = client.get("/benchmarks/digits/feed.atom").text
    assert feed.count("<title>Digits: record") == 1


def test_untrainable_holder_retires(reference, winner, row_of, queued, client, alice, olivia):

    def post(submission_id, what="retirement", by=olivia):
        path = f"/api/v1/submissions/{submission_id}/{what}"
        return by.post(path, {"reason": "its image is gone"})

    assert post(winner, by=alice).status_code == 403
    refused = post(reference)
    assert (refused.status_code, "is not the holder" in refused.json()["detail"]) == (409, True)
    retired = post(winner)
    assert retired.status_code == 200, retired.text
    assert retired.json()["retirement"]["reason"] == "its image is gone"

    assert rows(client)[:2] == [(1, reference), (2, winner)]
    assert row(client, winner)["not_first"] == "lower mean, retired"
    (division,) = records(client)
    assert [(each["submission_id"], each["ended"]) for each in division["records"]] == [
        (reference, None), (winner, "retired"), (reference, None),
    ]  # fmt: skip
    assert "its image is gone" in client.get(f"/submissions/{winner}").text
    chart = "/benchmarks/digits/charts/records?division=open"
    assert "retired later" in " ".join(client.get(chart).text.split())
    assert queued() == []
    assert "is retired" in ask(winner, reference, by=olivia).json()["detail"]
    logged = olivia.get("/api/v1/audit").json()["records"][0]
    assert (logged["action"], logged["reason"]) == ("submission.retire", "its image is gone")

    assert post(winner, "reinstatement").is_success
    assert rows(client)[0] == (1, winner)
    assert post(winner, "reinstatement").status_code == 409


def test_holder_that_misses_too_often_is_not_first(reference, winner, row_of, queued, client, bob):
    assert rows(client)[0] == (1, winner)
    second = row_of(96, 0.09, by=bob)

    (job,) = queued()
    fight(job, 0.09, 0.1, of_holder=[90.0, 91.0, 92.0])  # 5 of its 18 runs.

    assert rows(client)[0] == (1, reference)
    assert winner not in [name for _, name in rows(client)[:2]]
    (job,) = queued()
    assert (job.submission_id, job.view()["against_id"]) == (second, reference)


def test_settings_of_the_reference_become_its_duplicate(row_of, queued, client):
    same = row_of(64, 0.118)
    assert rows(client) == [(1, same)]

    (job,) = queued()

    assert client.get(f"/api/v1/submissions/{same}").json()["duplicate_of"] == job.submission_id
    measure(job, seconds_per_epoch=0.118)
    assert rows(client)[0] == (1, job.submission_id)
    assert row(client, job.submission_id)["measured_runs"] == 13


def test_divisions_share_runs(reference, row_of, queued, client, database, olivia, walter, ada):
    row_of(128, 0.2, division="closed", code_url=None)
    queued()
    found = rows_of(client.get(BOARD, params={"division": "closed"}).json())
    assert (found[0]["rank"], found[0]["submitter"]) == (1, "reference")
    assert found[0]["measured_runs"] == 10
    again = {"by": olivia, "worker": walter}
    measure(ask_for_replay(client, database, found[0]["submission_id"], **again))
    assert row(client, reference)["measured_runs"] == 13
    token = {"user": "reference", "role": "submitter"}
    made = ada.post("/api/v1/tokens", token)
    assert (made.status_code, "the server itself" in made.text) == (409, True)


def test_a_board_has_one_hardware_class(reference, measured, client):
    other = measured(**OPEN, system={"hardware_class": "gpu-test"})
    elsewhere = row(client, other)
    told = "ranked on the board of gpu-test"
    assert (elsewhere["rank"], elsewhere["unranked_reason"]) == (None, told)
    assert rows(client, hardware_class="gpu-test") == [(1, other)]
    assert WORKER_SYSTEM.hardware_class == "cpu-test"
    # A list ranks each on the board of its class, and a live view shows the holder of its own.
    listed = client.get("/api/v1/submissions?benchmark=digits").json()["submissions"]
    ranks = {each["id"]: (each["rank"], each["is_holder"]) for each in listed}
    assert ranks[reference] == ranks[other] == (1, True)
    race = client.get(f"/api/v1/verifications/{elsewhere['verification_id']}/race").json()
    holders = {each["role"]: each["submission_id"] for each in race["ghosts"]}
    assert holders == {"record": other, "claim": other}
    assert reference not in str(race)


def test_the_spread_of_new_runs_reaches_the_rows_read_before(row_of, queued, client, settings, bob):
    row_of(32, 0.2)
    row_of(96, 0.21, by=bob)
    (job,) = queued()
    assert rows(client)  # From now on these rows are in memory.
    fight(job, 0.118, 0.3)  # Runs of two paces.

    with serving(settings) as nothing_in_memory:
        for query in ("?division=open", "?division=open&sort=date"):
            assert client.get(BOARD + query).text == nothing_in_memory.get(BOARD + query).text


DAY = datetime(2026, 11, 29, tzinfo=UTC)


def row_at(name, *, seconds=1.0, live=True, reference=False):
    order = DAY + timedelta(minutes=len(name))
    return Measured(name, 1, order, seconds, seconds, order, live, reference)


def won(challenger, holder, hour):
    at = DAY + timedelta(hours=hour)
    return Meeting(f"v{hour}", challenger, holder, "won", at, at)


@pytest.mark.parametrize(
    ("gone", "meetings", "holder"),
    [
        ((), [("a", "ref", 1), ("bb", "a", 2)], "bb"),
        (("a",), [("a", "ref", 1), ("bb", "a", 2)], "bb"),
        (("bb",), [("a", "ref", 1), ("bb", "a", 2)], "a"),
        # A win over a former holder, or over a row that never held, takes nothing.
        ((), [("a", "ref", 1), ("bb", "ref", 2)], "a"),
        (("ccc",), [("a", "ref", 1), ("bb", "ccc", 2)], "a"),
        # It counts while the later holder is gone.
        (("a",), [("a", "ref", 1), ("bb", "ref", 2)], "bb"),
    ],
)
def test_a_win_counts_against_the_holder_of_its_moment(gone, meetings, holder):
    names = ("a", "bb", "ccc")
    rows = [row_at("ref", reference=True), *(row_at(n, live=n not in gone) for n in names)]
    found = find_first_place(rows, [won(*each) for each in meetings])
    assert found.holder.submission_id == holder


def test_without_the_reference_the_first_measured_row_holds():
    found = find_first_place([row_at("bb", seconds=0.5), row_at("a")], [])
    assert (found.holder.submission_id, found.challengers()) == ("a", ["bb"])
    gone = row_at("ref", live=False, reference=True)
    for rows, win, held in (
        ([gone, row_at("a"), row_at("bb")], won("bb", "a", 1), ["a", "bb"]),
        # A time that was contradicted was no record.
        ([row_at("ref", reference=True), row_at("a", live=False)], won("a", "ref", 1), ["ref"]),
    ):
        found = find_first_place(rows, [win])
        assert [each.row.submission_id for each in found.holdings] == held
        assert found.holder.submission_id == held[-1]


def test_of_a_submitters_rows_the_best_is_next():
    rows = [row_at("ref", seconds=3.0, reference=True), row_at("a", seconds=2.0), row_at("bb")]
    assert find_first_place(rows, []).challengers() == ["bb", "a"]
