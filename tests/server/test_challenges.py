"""Challenges: a submitter's package against the holder of a record, at the cost of her quota."""

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from finishline.cli.bundles import check_bundle, keys_in
from finishline.rules.proof.check import check_proof
from finishline.rules.proof.proof import part_hashes
from server.base.models import (
    Attempt,
    NoticeEvent,
    Submission,
    User,
    Verification,
    WorkerRow,
)
from server.notices.mailing import post_body
from tests.server.browser.test_proof_verifier import Case, Proofs, require_agreement, run_node
from tests.server.test_console import Console
from tests.server.test_duels import scored_under
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    TRAIN,
    Entries,
    boxed_report,
    entries,
)
from tests.support.build import Person, claim_headers
from tests.support.pages import words_of
from tests.support.proofs import predicate_in, seal_again
from tests.support.statements import statements_of
from tests.support.workers import WORKER_SYSTEM

RECORDS = "/api/v1/benchmarks/digits/records"


def other(idea):
    """Files of another package."""
    return FILES | {"train.py": TRAIN.encode() + f"\n\ndef {idea}(): return {idea!r}\n".encode()}


def measured(entries, person, idea, *seconds):
    """Hand a package in and have it measured, once with each of these seconds a run."""
    made = entries.hand_in(person, other(idea))
    assert made.status_code == 201, made.text
    submission_id = str(made.json()["id"])
    for each in seconds:
        answer = entries.measure(submission_id, seconds=each)
        assert answer.status_code == 200, answer.text
    return submission_id


@pytest.fixture
def two(entries, alice, bob):
    """Bob's entry, faster by its fresh runs, and alice's, which holds the record."""
    holder = measured(entries, alice, "first", 4.0)
    return measured(entries, bob, "second", 2.0, 2.0), holder


@pytest.fixture
def ask(client, two, bob):
    """Asks as bob to challenge with his entry, or with another one."""

    def post(submission_id=two[0], by=bob, **body):
        path = f"/api/v1/submissions/{submission_id}/challenge"
        return client.post(path, json=body, headers=by.headers)

    return post


def look(client, submission_id, by):
    return client.get(f"/api/v1/submissions/{submission_id}/challenge", headers=by.headers).json()


def fight(entries, lease, *, gain):
    """Train a challenge: the challenger takes `gain` times the holder's seconds."""
    with entries.database.read() as session:
        seeds = session.get_one(Attempt, lease["attempt_id"]).verification.seeds
    runs = []
    for index, seed in enumerate(seeds):
        pace = gain if index % 4 in (0, 3) else 1.0
        (run,) = boxed_report([seed], seconds=2.0 * pace * (1 + 0.01 * (index * 7 % 5))).runs
        runs.append(replace(run, index=index))
    report = replace(boxed_report([]), runs=runs)
    assert entries.report(lease, report).status_code == 200


def holders(client):
    found = next(each for each in client.get(RECORDS).json()["divisions"] if each["records"])
    return [record["submission_id"] for record in found["records"]]


def test_a_challenge_that_is_won_moves_the_record_at_the_cost_of_the_challenger(
    entries, two, ask, client, database, bob, tmp_path
):
    challenger, holder = two
    assert holders(client) == [holder]
    with database.write() as session:  # An organiser has corrected a word since.
        scored_under(session, holder, "[target]", "# As agreed.\n[target]")
    with database.read() as session:  # Of packages the server asks for none by itself.
        assert session.scalars(select(Verification).where(Verification.kind == "duel")).all() == []
    seen = look(client, challenger, bob)
    assert (seen["holder"], seen["pairs"], seen["runs"], seen["refused"]) == (holder, 10, 20, None)
    board = "/benchmarks/digits?division=open"
    why = "no duel with the holder has decided yet. Random features by alice holds it with 4.08 s"
    assert f"#1 is not the record: {why}" in words_of(client.get(board).text)
    assert f"Not the record: {why}" in words_of(client.get(f"/submissions/{challenger}").text)
    # Ten runs of about 2 s and ten of about 4 s.
    assert 50 < seen["device_seconds"] < 80
    assert seen["quota_seconds_left"] > 300_000

    made = ask(holder=holder, reason="shorter warm-up")

    assert made.status_code == 201, made.text
    view = made.json()
    assert (view["kind"], view["duel"]["challenge"], view["against_id"]) == ("duel", True, holder)
    assert look(client, challenger, bob)["open_challenge"] == view["id"]
    sides = {
        holder: "Challenged: waits for a worker, to be trained in turn with Random features by bob",
        challenger: "Challenging the record: waits for a worker, to be trained in turn with Random",
    }
    for side, told in sides.items():
        assert told in words_of(client.get(f"/submissions/{side}").text)
    own = Console(client, bob).get(f"/submissions/{challenger}").text
    assert f'action="/submissions/{challenger}/challenge"' not in own
    lease = entries.lease(challenger)
    grant = client.get(
        f"/api/v1/attempts/{lease['attempt_id']}/training", headers=claim_headers(lease)
    ).json()
    texts = [each["files"]["train.py"] for each in grant["packages"].values()]
    assert ["second" in text for text in texts] == [True, False]
    nonces = grant["data_nonces"]
    assert (nonces[::2], len(set(nonces))) == (nonces[1::2], 10)  # The data of a pair are equal.
    with database.read() as session:
        charged = session.get_one(Verification, view["id"])
        assert charged.gpu_seconds_reserved == pytest.approx(seen["device_seconds"])
    assert client.get(f"/verifications/{view['id']}").status_code == 200
    # Read while it is trained, so that an old record may be cached.
    assert holders(client) == [holder]
    assert f"Not the record: {why}" in words_of(client.get(f"/submissions/{challenger}").text)
    fight(entries, lease, gain=0.6)

    ended = client.get(f"/api/v1/verifications/{view['id']}").json()
    assert (ended["outcome"], ended["duel"]["epochs"]) == ("challenger_faster", None)
    assert holders(client) == [holder, challenger]
    assert "not the record" not in client.get(board).text
    assert "It holds the record." in client.get(f"/submissions/{challenger}").text
    page = client.get(f"/verifications/{view['id']}").text
    assert "Challenge of the record." in page
    p_value = ended["duel"]["p_value"]
    told = f"one-sided p = {p_value:.2g} for the challenger"
    assert f"The challenge is won: {told}, below 0.01." in page
    assert told in ended["reasons"][0]["message"]
    divisions = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    assert p_value in [each["p_value"] for one in divisions for each in one["records"]]
    assert "<i>p value</i>" not in page
    assert '<h1 class="with-badge">Random features by bob against Random features by alice' in page
    assert "<title>Challenge of" in page
    assert "epoch" not in page.lower()
    _check_proof_of(client, view["id"], tmp_path)
    assert "You hold this record yourself" in look(client, challenger, bob)["refused"]
    assert "hold this record yourself" in ask(challenger).json()["detail"]


def _check_proof_of(client, duel, folder):
    """Derive a duel again from its proof, and see that a forged one is found."""
    path = f"/api/v1/verifications/{duel}/proof"
    assert path in client.get(f"/verifications/{duel}").text
    bundle, keys = client.get(path).content, client.get("/api/v1/keys").json()
    whole = check_bundle(bundle, keys_in(keys))
    if shutil.which("node"):
        proofs = Proofs([Case("duel", bundle, None)], keys)
        require_agreement(proofs, run_node(proofs, folder))
    results = {check.name: (check.result, check.why) for check in whole.checks}
    assert {result for result, _ in results.values()} == {"pass"}, results
    assert {"package", "seal", "seeds", "runs", "posted", "verdict"} <= set(results)

    def failed(change):
        forged = deepcopy(dict(whole.document))
        change(forged)
        forged["parts"] = part_hashes(forged)
        return {check.name for check in check_proof(forged, None) if check.result == "fail"}

    def turned(forged):
        runs = forged["report"]["runs"]
        times = [runs[at]["tta_seconds"] for at in (1, 0)]
        runs[0]["tta_seconds"], runs[1]["tta_seconds"] = times

    def chosen(forged):
        forged["draw"]["seeds"][0] ^= 1
        forged["report"]["runs"][0]["seed"] ^= 1
        seal_again(forged)

    def with_settings(forged):
        forged["draw"]["beside"]["hyperparameters"][1] = {"batch_size": 64.0}
        seal_again(forged)

    def cancelled(forged):
        forged["verification"]["state"], forged["report"] = "cancelled", None

    def cancelled_in_time(forged):
        cancelled(forged)
        forged["verdict"] = {"outcome": None, "reasons": []}

    def without_package(forged):
        forged["submission"]["against"]["claim"]["trained_with"] = "reference"

    assert failed(lambda forged: forged["submission"]["against"].update(id="another")) == {
        "seeds",
    }
    assert (failed(cancelled), failed(cancelled_in_time)) == ({"verdict"}, set())
    assert {"seeds", "verdict"} <= failed(without_package)
    assert "verdict" in failed(lambda forged: forged["verdict"].update(outcome="holder_faster"))
    assert {"times", "verdict"} <= failed(turned)
    assert {"seal", "seeds"} <= failed(lambda forged: forged["draw"]["seeds"].reverse())
    assert failed(chosen) == failed(with_settings) == {"seeds"}
    # No number in a stranger's file is a number of seeds to draw.
    assert {"seal", "seeds"} <= failed(lambda forged: forged["draw"].update(runs=10**9))


def test_a_lost_challenge_waits_thirty_days_and_one_is_open_at_a_time(
    entries, two, ask, client, database, bob, make_person
):
    challenger, holder = two
    carol = make_person("carol", "submitter")
    third = measured(entries, carol, "third", 3.0, 3.0)
    duel = ask(holder=holder).json()["id"]

    second = ask(third, by=carol)
    assert second.status_code == 409
    assert f"Duel {duel} challenges this record since" in second.json()["detail"]
    assert second.json()["detail"].endswith(f"/verifications/{duel}")
    assert ask().status_code == 409
    fight(entries, entries.lease(challenger), gain=1.0)

    assert holders(client) == [holder]
    refused = ask()
    assert refused.status_code == 409
    with database.read() as session:
        ended_at = session.get_one(Verification, duel).ended_at
    assert ended_at is not None
    again = f"{ended_at + timedelta(days=30):%Y-%m-%d}"
    assert refused.json()["detail"].endswith(f"ask again from {again} on.")
    page = client.get(f"/verifications/{duel}").text
    assert "The challenge is lost: one-sided p = " in page
    assert f"may challenge it again from {again} on." in page
    assert look(client, challenger, bob)["refused"] == refused.json()["detail"]
    assert look(client, third, carol)["refused"] is None  # Lost by one, not by the other.
    with database.write() as session:
        session.get_one(Verification, duel).ended_at = ended_at - timedelta(days=31)
    assert ask().status_code == 201


def test_a_challenger_that_is_withdrawn_while_it_is_trained_has_lost(
    entries, two, ask, client, bob, olivia
):
    challenger, holder = two

    def withdraw_and_come_back(duel):
        for act, by in (("withdrawal", bob), ("reinstatement", olivia)):
            path = f"/api/v1/submissions/{challenger}/{act}"
            answer = client.post(path, json={"reason": "a second thought"}, headers=by.headers)
            assert answer.status_code == 200, answer.text
        return client.get(f"/api/v1/verifications/{duel}").json()

    early = withdraw_and_come_back(ask(holder=holder).json()["id"])
    assert (early["state"], early["duel"]["won"], early["reasons"]) == ("cancelled", None, [])

    duel = ask(holder=holder).json()["id"]
    entries.lease(challenger)
    ended = withdraw_and_come_back(duel)

    assert (ended["state"], ended["duel"]["won"]) == ("cancelled", False)
    assert [reason["code"] for reason in ended["reasons"]] == ["duel_withdrawn"]
    document = predicate_in(client.get(f"/api/v1/verifications/{duel}/proof?format=dsse"))
    assert "fail" not in {check.result for check in check_proof(document, None)}
    page = client.get(f"/verifications/{duel}").text
    assert "The challenge is lost: the challenger was withdrawn while it was trained." in page
    refused = ask()
    assert refused.status_code == 409
    assert "was lost on" in refused.json()["detail"]
    assert holders(client) == [holder]


def test_a_challenge_that_is_won_on_a_worker_of_no_organiser_moves_nothing_and_says_so(
    entries, two, ask, client, database, make_person
):
    challenger, holder = two
    duel = ask(holder=holder).json()["id"]
    lease = entries.lease(challenger)
    make_person("stranger", "submitter")
    with database.write() as session:
        worker = session.get_one(WorkerRow, WORKER_SYSTEM.worker)
        worker.confirmed_by = session.scalars(select(User.id).where(User.name == "stranger")).one()
    fight(entries, lease, gain=0.6)

    assert holders(client) == [holder]
    assert client.get(f"/api/v1/verifications/{duel}").json()["duel"]["won"] is None
    assert "The challenge has no result" in client.get(f"/verifications/{duel}").text


def test_the_proof_of_an_organisers_duel_of_packages_does_not_name_an_erased_holder(
    entries, two, client, olivia, ada
):
    challenger, holder = two
    body = {"challenger": challenger, "holder": holder, "pairs": 2}
    duel = client.post("/api/v1/duels", json=body, headers=olivia.headers).json()["id"]
    fight(entries, entries.lease(challenger), gain=0.6)
    proof = f"/api/v1/verifications/{duel}/proof"
    for page in (f"/verifications/{duel}", f"/submissions/{challenger}?tab=history"):
        assert f'href="{proof}"' in client.get(page).text

    answer = client.post("/api/v1/users/alice/erasure", json={"name": "alice"}, headers=ada.headers)

    assert answer.status_code == 200, answer.text
    document = predicate_in(client.get(f"{proof}?format=dsse"))
    sides = (document["submission"], document["submission"]["against"])
    assert [side["submitter"] for side in sides] == ["bob", answer.json()["name"]]
    checked = {check.name: check.result for check in check_proof(document, None)}
    assert "fail" not in checked.values(), checked


def test_a_challenge_that_cannot_be_is_refused_with_the_next_step(
    entries, two, ask, client, database, submit, digits_submission, alice, bob, olivia, walter
):
    challenger, holder = two

    def refusal(*asked, **body):
        answer = ask(*asked, **body)
        return answer.status_code, str(answer.json()["detail"])

    assert ask(by=Person("nobody", "none")).status_code == 401
    assert ask(by=walter).status_code == 403
    assert ask("gone").status_code == 404
    assert refusal(challenger, alice)[0] == 403
    claimed = submit(digits_submission, by=bob).json()["id"]
    status, told = refusal(claimed)
    assert (status, "finishline training submit" in told) == (422, True)
    status, told = refusal(holder=claimed)
    assert (status, "expected the holder of your own division's record" in told) == (422, True)
    waiting = entries.hand_in(bob, other("waiting")).json()["id"]
    status, told = refusal(waiting)
    assert (status, "no measured time that ranks yet" in told) == (409, True)
    assert entries.measurement(waiting) in told
    entries.measure(waiting, seconds=5.0)
    status, told = refusal(waiting)
    assert (status, "Submit a faster package." in told) == (409, True)
    status, told = refusal(holder=waiting)
    assert (status, f"{holder} does. " in told) == (409, True)
    fresh = measured(entries, bob, "fresh", 1.0)
    assert "its 10 fresh runs" not in refusal(fresh)[1]
    status, told = refusal(fresh)
    assert (status, "once its runs have ended" in told) == (409, True)

    with database.write() as session:
        moved = session.get_one(Submission, holder)
        moved.system = moved.system | {"hardware_class": "h200-8"}
    status, told = refusal()
    assert (status, "--hardware-class h200-8" in told) == (422, True)
    with database.write() as session:
        moved = session.get_one(Submission, holder)
        moved.system = moved.system | {"hardware_class": "cpu-test"}

    cost = int(look(client, challenger, bob)["device_seconds"])
    assert entries.hand_in(bob, other("queued")).status_code == 201  # Its runs are reserved.
    steps = ((cost - 5, 403, "ask an organiser"), (cost + 5, 429, "The quota resets at"))
    for seconds, status, next_step in steps:
        quota = {"gpu_seconds_per_month": seconds, "reason": "a test"}
        path = "/api/v1/quotas/bob"
        assert client.put(path, json=quota, headers=olivia.headers).status_code == 200
        assert look(client, challenger, bob)["quota_seconds_left"] < seconds
        found, told = refusal()
        assert (found, next_step in told) == (status, True), told
    with database.read() as session:
        assert session.scalars(select(Verification).where(Verification.kind == "duel")).all() == []


def test_the_page_shows_the_cost_and_starts_what_the_holder_is_told_of(
    entries, two, client, database, alice, bob
):
    challenger, holder = two
    kinds = ["record.challenged", "challenge.ended"]
    hook = {"url": "https://hooks.slack.com/services/a", "kinds": kinds}
    assert client.post("/api/v1/webhooks", json=hook, headers=alice.headers).status_code == 201
    page = f"/submissions/{challenger}/challenge"
    hers = Console(client, alice).get(f"/submissions/{holder}").text
    assert ("Withdraw" in hers, "Challenge the record" in hers) == (True, False)
    browser = Console(client, bob)
    assert f'href="{page}"' in browser.get("/benchmarks/digits/challenge").text
    assert "/benchmarks/digits/challenge" in browser.get("/benchmarks/digits/charts/records").text
    assert "Challenge the record" in browser.get(f"/submissions/{challenger}").text
    # A board's runs are read once for a challenge, and for its button once for all readers.
    with statements_of(database, lambda text: "FROM pool_runs JOIN pools" in text) as read:
        assert "Challenge the record" in browser.get(f"/submissions/{challenger}").text
        assert read == []
        browser.get("/benchmarks/digits/challenge")
    assert len(read) == 1
    shown = browser.get(page).text
    assert f'name="holder" value="{holder}"' in shown
    assert ">20<" in shown
    assert "device seconds" in browser.get("/benchmarks/digits/challenge").text.lower()

    sent = browser.post(page, holder=holder)

    assert sent.status_code == 303, sent.text
    address = sent.headers["location"]
    assert "Challenge of the record." in browser.get(address).text
    refused = browser.get(page).text
    assert "one challenge of a record is open at a time" in refused
    assert f'<a href="{address}">' in refused
    assert browser.post(page, holder=holder).status_code == 409
    fight(entries, entries.lease(challenger), gain=0.6)
    with database.read() as session:
        events = session.scalars(select(NoticeEvent).order_by(NoticeEvent.created_at)).all()
        told = [event for event in events if event.kind in kinds]
        owner = session.scalars(select(User.id).where(User.name == alice.name)).one()
        assert [(event.kind, event.user_id) for event in told] == [(kind, owner) for kind in kinds]
        words = [json.loads(post_body(hook["url"], event, site=""))["text"] for event in told]
    assert words[0].startswith("digits: Random features challenges Random features")
    assert "which holds the record (open), and has won" in words[1]
