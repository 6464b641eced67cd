"""Duels of two packages, and their proofs."""

from dataclasses import replace

import pytest

from finishline.rules.proof.check import check_proof
from server.base.models import Attempt
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    TRAIN,
    Entries,
    boxed_report,
    entries,
)
from tests.support.build import claim_headers
from tests.support.pages import words_of
from tests.support.proofs import predicate_in


def other(idea):
    """Files of another package."""
    return FILES | {"train.py": TRAIN.encode() + f"\n\ndef {idea}(): return {idea!r}\n".encode()}


def measured(entries, person, idea, seconds):
    """Hand a package in and have it measured in so many seconds a run."""
    made = entries.hand_in(person, other(idea))
    assert made.status_code == 201, made.text
    submission_id = str(made.json()["id"])
    answer = entries.measure(submission_id, seconds=seconds)
    assert answer.status_code == 200, answer.text
    return submission_id


@pytest.fixture
def two(entries, alice, bob):
    """Bob's entry, which is the faster one, and alice's."""
    holder = measured(entries, alice, "first", 4.0)
    return measured(entries, bob, "second", 2.0), holder


@pytest.fixture
def duel(client, two, olivia):
    """A duel of ten pairs that an organiser asked for."""
    body = {"challenger": two[0], "holder": two[1], "pairs": 10}
    made = client.post("/api/v1/duels", json=body, headers=olivia.headers)
    assert made.status_code == 201, made.text
    return made.json()


def fight(entries, lease, *, gain):
    """Train a duel: the challenger takes `gain` times the holder's seconds."""
    with entries.database.read() as session:
        seeds = session.get_one(Attempt, lease["attempt_id"]).verification.seeds
    runs = []
    for index, seed in enumerate(seeds):
        pace = gain if index % 4 in (0, 3) else 1.0
        (run,) = boxed_report([seed], seconds=2.0 * pace * (1 + 0.01 * (index * 7 % 5))).runs
        runs.append(replace(run, index=index))
    report = replace(boxed_report([]), runs=runs)
    assert entries.report(lease, report).status_code == 200


def test_a_duel_of_packages_pairs_their_data_and_has_a_page_and_a_proof(entries, two, duel, client):
    challenger, holder = two
    assert (duel["kind"], duel["against_id"], duel["runs_planned"]) == ("duel", holder, 20)
    sides = {holder: "Random features by bob", challenger: "Random features by alice"}
    for side, other_side in sides.items():
        told = f"In a duel: waits for a worker, to be trained in turn with {other_side}"
        assert told in words_of(client.get(f"/submissions/{side}").text)
    lease = entries.lease(challenger)
    grant = client.get(
        f"/api/v1/attempts/{lease['attempt_id']}/training", headers=claim_headers(lease)
    ).json()
    texts = [each["files"]["train.py"] for each in grant["packages"].values()]
    assert ["second" in text for text in texts] == [True, False]
    nonces = grant["data_nonces"]
    assert (nonces[::2], len(set(nonces))) == (nonces[1::2], 10)  # The data of a pair are equal.
    assert client.get(f"/verifications/{duel['id']}").status_code == 200

    fight(entries, lease, gain=0.6)

    ended = client.get(f"/api/v1/verifications/{duel['id']}").json()
    assert (ended["outcome"], ended["duel"]["epochs"]) == ("challenger_faster", None)
    page = client.get(f"/verifications/{duel['id']}").text
    p_value = ended["duel"]["p_value"]
    assert f"one-sided p = {p_value:.2g} for the challenger" in ended["reasons"][0]["message"]
    assert "<i>p value</i>" not in page
    assert '<h1 class="with-badge">Random features by bob against Random features by alice' in page
    assert "<title>Duel of" in page
    assert "epoch" not in page.lower()
    proof = f"/api/v1/verifications/{duel['id']}/proof"
    assert proof in client.get(f"/verifications/{duel['id']}").text


def test_the_proof_of_a_duel_of_packages_does_not_name_an_erased_holder(
    entries, two, duel, client, ada
):
    challenger = two[0]
    fight(entries, entries.lease(challenger), gain=0.6)
    proof = f"/api/v1/verifications/{duel['id']}/proof"
    for page in (f"/verifications/{duel['id']}", f"/submissions/{challenger}?tab=history"):
        assert f'href="{proof}"' in client.get(page).text

    answer = client.post("/api/v1/users/alice/erasure", json={"name": "alice"}, headers=ada.headers)

    assert answer.status_code == 200, answer.text
    document = predicate_in(client.get(f"{proof}?format=dsse"))
    sides = (document["submission"], document["submission"]["against"])
    assert [side["submitter"] for side in sides] == ["bob", answer.json()["name"]]
    checked = {check.name: check.result for check in check_proof(document, None)}
    assert "fail" not in checked.values(), checked
