"""Head-to-heads of two packages, the runs they add, and their proofs."""

from collections import Counter
from dataclasses import replace

import pytest

from finishline.rules.proof.check import check_proof
from server.base.models import Attempt, PoolRun, Submission
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    TRAIN,
    Entries,
    boxed_report,
    entries,
)
from tests.support.build import build_report, claim_headers
from tests.support.pages import sign_in, words_of
from tests.support.proofs import predicate_in, take_apart


def other(idea):
    return FILES | {"train.py": TRAIN.encode() + f"\n\ndef {idea}(): return {idea!r}\n".encode()}


def measured(entries, person, idea, seconds):
    made = entries.hand_in(person, other(idea))
    assert made.status_code == 201, made.text
    submission_id = made.json()["id"]
    answer = entries.measure(submission_id, seconds=seconds)
    assert answer.status_code == 200, answer.text
    return submission_id


@pytest.fixture
def two(entries, alice, bob):
    """Bob's entry, which is the faster one, and alice's."""
    holder = measured(entries, alice, "first", 4.0)
    return measured(entries, bob, "second", 2.0), holder


@pytest.fixture
def head_to_head(client, two, olivia):
    body = {"challenger": two[0], "holder": two[1]}
    made = client.post("/api/v1/head-to-heads", json=body, headers=olivia.headers)
    assert made.status_code == 201, made.text
    return made.json()


def fight(entries, lease, *, gain, busy=()):
    """Train the pairs of a lease: the challenger takes `gain` times the holder's seconds.

    Other programs had half of the processor in `busy` runs.
    """
    with entries.database.read() as session:
        verification = session.get_one(Attempt, lease["attempt_id"]).verification
        seeds, verification_id = verification.seeds, verification.id
    runs = []
    for index, seed in enumerate(seeds):
        pace = gain if index % 4 in (0, 3) else 1.0
        (run,) = boxed_report([seed], seconds=2.0 * pace * (1 + 0.01 * (index * 7 % 5))).runs
        share = 0.5 if index in busy else None
        runs.append(replace(run, index=index, processor_share=share))
    report = replace(boxed_report([]), runs=runs)
    assert entries.report(lease, report).status_code == 200
    return entries.client.get(f"/api/v1/verifications/{verification_id}").json()


def measured_runs(database, submission_id):
    with database.read() as session:
        pool_id = session.get_one(Submission, submission_id).pool_id
        runs = session.query(PoolRun).where(PoolRun.pool_id == pool_id)
        return Counter(run.verification_id for run in runs)


def failed_checks(client, verification_id):
    answer = client.get(f"/api/v1/verifications/{verification_id}/proof")
    assert answer.status_code == 200, answer.text
    proof = take_apart(answer.content, signing_key=None)
    checks = check_proof(proof.document, proof.files)
    assert {"package", "verdict"} <= {check.name for check in checks}
    return [check for check in checks if check.result != "pass"]


def test_pairs_have_equal_data_and_a_page(entries, two, head_to_head, client, olivia):
    challenger, holder = two
    sign_in(client, olivia)
    offered = client.get(f"/console/head-to-heads?challenger={challenger}").text
    assert f'<option value="{holder}"' in offered, "also what claims no time"
    planned = head_to_head["kind"], head_to_head["against_id"], head_to_head["runs_planned"]
    assert planned == ("head_to_head", holder, 10)
    sides = {holder: "Random features by bob", challenger: "Random features by alice"}
    for side, other_side in sides.items():
        told = f"In a head-to-head: waits for a worker, to be trained in turn with {other_side}"
        assert told in words_of(client.get(f"/submissions/{side}").text)
    lease = entries.lease(challenger)
    grant = client.get(
        f"/api/v1/attempts/{lease['attempt_id']}/training", headers=claim_headers(lease)
    ).json()
    texts = [each["files"]["train.py"] for each in grant["packages"].values()]
    assert ["second" in text for text in texts] == [True, False]
    nonces = [each["data_nonce"] for each in lease["job"]["trainings"]]
    assert (nonces[::2], len(set(nonces))) == (nonces[1::2], 5)  # The data of a pair are equal.
    assert client.get(f"/verifications/{head_to_head['id']}").status_code == 200

    ended = fight(entries, lease, gain=0.6)

    assert (ended["outcome"], ended["head_to_head"]["epochs"]) == ("continues", None)
    page = client.get(f"/verifications/{head_to_head['id']}").text
    p_value = f"one-sided p = {ended['head_to_head']['p_value']:.2g}, "
    assert p_value in ended["reasons"][0]["message"]
    compared = client.get(f"/api/v1/compare?submissions={holder},{challenger}").json()
    met = compared["pairs"][0]["head_to_head"]
    assert (met["challenger"], met["pairs"]) == (challenger, 5)
    assert met["ratio"] == ended["head_to_head"]["time"]["ratio"]
    told = words_of(client.get(f"/compare?ids={holder},{challenger}").text)
    assert ": in 5 pairs, B takes 0." in told
    for words in ("by bob, challenger", "by alice, challenged", "times the time of A"):
        assert words in " ".join(page.split())
    assert "<title>Head-to-head of" in page
    assert "epoch" not in page.lower()
    assert "are public, so code can carry them" in page
    assert f"/api/v1/verifications/{head_to_head['id']}/proof" in page


def test_its_runs_measure_both_sides(entries, two, head_to_head, client):
    challenger, holder = two
    own = measured_runs(entries.database, holder), measured_runs(entries.database, challenger)
    void = fight(entries, entries.lease(challenger), gain=0.6, busy=range(8))
    own[0][void["id"]] = own[1][void["id"]] = 1
    assert measured_runs(entries.database, holder) == own[0]
    assert measured_runs(entries.database, challenger) == own[1]
    first = fight(entries, entries.lease(challenger), gain=0.6)
    assert measured_runs(entries.database, holder) == own[0] | {first["id"]: 4}
    assert measured_runs(entries.database, challenger) == own[1] | {first["id"]: 4}
    board = client.get("/api/v1/leaderboards/digits").json()["version"]

    second = fight(entries, entries.lease(challenger), gain=0.6)

    assert second["id"] == first["head_to_head"]["continued_by"]
    assert second["outcome"] == "challenger_faster"
    runs = {first["id"]: 4, second["id"]: 5}
    assert measured_runs(entries.database, holder) == own[0] | runs
    assert measured_runs(entries.database, challenger) == own[1] | runs
    assert client.get("/api/v1/leaderboards/digits").json()["version"] > board
    for stage in (first, second):
        assert failed_checks(client, stage["id"]) == []


def test_proof_of_a_loss_names_no_erased_holder(entries, two, head_to_head, client, ada):
    challenger = two[0]
    before = [measured_runs(entries.database, side) for side in two]
    assert fight(entries, entries.lease(challenger), gain=1.01)["outcome"] == "not_proven"
    after = [measured_runs(entries.database, side) for side in two]
    assert after == [side | {head_to_head["id"]: 5} for side in before], "a loser's runs count"
    proof = f"/api/v1/verifications/{head_to_head['id']}/proof"
    for page in (f"/verifications/{head_to_head['id']}", f"/submissions/{challenger}?tab=history"):
        assert f'href="{proof}"' in client.get(page).text

    answer = client.post("/api/v1/users/alice/erasure", json={"name": "alice"}, headers=ada.headers)

    assert answer.status_code == 200, answer.text
    document = predicate_in(client.get(f"{proof}?format=dsse"))
    sides = (document["submission"], document["submission"]["against"])
    assert [side["submitter"] for side in sides] == ["bob", answer.json()["name"]]
    assert failed_checks(client, head_to_head["id"]) == []


def test_a_package_meets_the_reference(
    entries, alice, bob, submit, digits_submission, make_log, client, olivia
):
    for name in digits_submission.logs:
        digits_submission.logs[name] = make_log(int(name[4]), name=name, division="open")
    digits_submission.claim["division"] = "open"
    reference = submit(digits_submission, by=alice).json()["id"]
    package = measured(entries, bob, "second", 0.5)
    body = {"challenger": reference, "holder": package}
    made = client.post("/api/v1/head-to-heads", json=body, headers=olivia.headers)
    assert made.status_code == 201, made.text
    lease = entries.lease(reference)
    with entries.database.read() as session:
        trainings = session.get_one(Attempt, lease["attempt_id"]).verification.trainings
        planned = [(each.seed, each.package) for each in trainings]
    assert [name for _, name in planned[3:5]] == ["digits", "digits"]
    address = f"/api/v1/attempts/{lease['attempt_id']}/training"
    grant = client.get(address, headers=claim_headers(lease)).json()
    assert list(grant["packages"]) == [planned[1][1]]
    runs = []
    for index, (seed, name) in enumerate(planned):
        made_up = build_report([seed]) if name == "digits" else boxed_report([seed], seconds=0.5)
        runs.append(replace(made_up.runs[0], index=index))
    answer = entries.report(lease, replace(boxed_report([]), runs=runs))

    assert answer.status_code == 200, answer.text
    ended = client.get(f"/api/v1/verifications/{made.json()['id']}").json()
    assert (ended["outcome"], ended["head_to_head"]["epochs"]) == ("not_proven", None)
    assert ended["head_to_head"]["pairs"][1]["challenger"]["epochs"] == 8.0
    assert client.get(f"/verifications/{ended['id']}").status_code == 200
    assert failed_checks(client, ended["id"]) == []
