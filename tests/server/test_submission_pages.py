"""The page of a submission, its badge, and the page that holds submissions side by side."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from server.base.models import Submission
from tests.support.pages import BROWSER, HOSTILE, words_of
from web.stamps import TABS


@pytest.fixture(autouse=True)
def read_as_owner(client, alice):
    """Send alice's token where a test sends no other: strangers see no run of a claim as yet."""
    client.headers.update(alice.headers)


@pytest.fixture
def judged(replay, make_report):
    """Has the replay reported and gives the address of the submission's page."""

    def judge(**changes):
        report = make_report(replay.seeds())
        system = replace(report.system, **changes)
        answer = replay.report(replay.claim().json(), replace(report, system=system))
        assert answer.status_code == 200, answer.text
        return f"/submissions/{replay.submission_id}"

    return judge


def test_a_verified_page_shows_its_place_its_verdict_its_steps_and_its_proof(
    judged, replay, client
):
    address = judged()
    tabs = [client.get(f"{address}?tab={name}", headers=BROWSER).text for name, _ in TABS]
    page = "".join(tabs)
    words = words_of(page)

    assert "Rank 1 of 1 in the closed division." in words
    assert "dropped as fastest" in words
    assert "of 3 replays reached" in words or "of 4 replays reached" in words
    assert "waits for a decision" not in words
    proof = f"/api/v1/verifications/{replay.verification_id}/proof"
    assert f'href="{proof}"' in page
    assert f"finishline check-proof proof-{replay.verification_id}.zip --key keys" in page
    assert f"[![Finishline: digits](http://testserver{address}/badge.svg)]" in page
    assert f"@misc{{finishline-{replay.submission_id}," in page
    # Each tab has an address, and a strict policy finds nothing inline to refuse.
    assert all(f'href="{address}?tab={name}"' in page for name, _ in TABS[1:])
    for tab in tabs:
        assert all(f'id="{anchor}"' in tab for anchor in re.findall(r'href="#([^"]+)"', tab))
    assert 'style="' not in page
    assert not re.search(r"<script(?![^>]* src=)", page)


def test_a_claim_whose_epochs_agree_says_why_its_time_was_not_compared(judged, client):
    address = judged(hardware_class="gpu-elsewhere")
    page = client.get(address, headers=BROWSER).text

    told = "A replay took as many epochs; time was not compared: the claim was made on"
    assert told in words_of(page)
    assert 'class="evidence is-claimed"' in page
    badge = ElementTree.fromstring(client.get(f"{address}/badge.svg").content)  # noqa: S314  ours
    assert "digits: claimed" in "".join(badge.itertext())


def test_a_badge_is_asked_for_again_and_follows_the_evidence(replay, client, database):
    address = f"/submissions/{replay.submission_id}/badge.svg"
    before = client.get(address)
    etag = {"If-None-Match": f"W/{before.headers['etag']}"}

    assert before.headers["content-type"] == "image/svg+xml"
    assert before.headers["cache-control"] == "no-cache"
    assert "claimed" in before.text
    unchanged = client.get(address, headers=etag)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    with database.write() as session:
        session.get_one(Submission, replay.submission_id).evidence = "measured"
    after = client.get(address, headers=etag)
    assert after.status_code == 200
    assert "measured · " in after.text
    assert client.get("/submissions/nothing/badge.svg").status_code == 404


def test_a_raw_log_is_shown_as_text_and_can_be_kept(digits_submission, submit, client):
    submission_id = submit(digits_submission).json()["id"]
    page = client.get(f"/submissions/{submission_id}?tab=runs", headers=BROWSER).text
    address = f"/api/v1/submissions/{submission_id}/runs/0/log"
    log = client.get(address)

    assert f'<a href="{address}">' in page
    assert f'<a href="{address}" download>' in page
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert log.headers["x-content-type-options"] == "nosniff"
    assert "run_0.log" in log.headers["content-disposition"]
    assert log.content == digits_submission.logs["run_0.log"]


def test_neighbours_on_the_board_are_offered_for_comparison(
    digits_submission, submit, make_log, client, claims_are_numbered
):
    faster = submit(digits_submission).json()["id"]
    alone = client.get(f"/submissions/{faster}", headers=BROWSER).text
    assert "Rank 1 of 1" in words_of(alone)
    for index, name in enumerate(digits_submission.logs):
        slow = make_log(200 + index, name=name, seconds_per_epoch=0.3 + index * 0.002)
        digits_submission.logs[name] = slow
    slower = submit(digits_submission).json()["id"]

    page = client.get(f"/submissions/{slower}", headers=BROWSER).text
    assert "Rank 2 of 2" in words_of(page)
    assert "Rank 1 of 2" in words_of(client.get(f"/submissions/{faster}", headers=BROWSER).text)
    assert f'<input type="hidden" name="ids" value="{slower},{faster}">' in page
    around = page.split('<ol class="among">')[1].split("</ol>")[0]
    first, second = (words_of(row) for row in around.split("</li>")[:2])
    assert first.startswith(" 1 CPU · alice 0.9")
    assert second.startswith(" 2 this one 2.4")


def test_of_very_many_evaluations_a_page_shows_an_even_sample(
    digits_submission, submit, client, monkeypatch
):
    runs = len(digits_submission.logs)
    ids = [submit(digits_submission).json()["id"] for _ in range(2)]
    pages = (f"/submissions/{ids[0]}?tab=runs", f"/compare?ids={ids[0]},{ids[1]}")
    shown = [client.get(page, headers=BROWSER).text for page in pages]
    assert not any("evenly apart" in page for page in shown)
    assert all("All evaluations as a table" in page for page in shown)

    monkeypatch.setattr("server.pages.queries.MOST_EVALUATIONS", 4 * runs)
    monkeypatch.setattr("server.pages.queries.FEWEST_OF_A_RUN", 1)
    shown = [client.get(page, headers=BROWSER).text for page in pages]
    for page, times in zip(shown, (1, 2), strict=True):
        words = f"{times * 4 * runs} of {times * 8 * runs} evaluations are shown, evenly spaced"
        assert words in page
        table = page[page.index('<details id="evaluations">') :].split("</details>")[0]
        numbers = re.findall(r'</td>\s*<td class="r num[^"]*">(\d+)</td>\s*<td', table)
        assert numbers == ["1", "3", "6", "8"] * runs * times


@pytest.fixture
def two(digits_submission, submit, make_log):
    """A submission by somebody hostile, and one of another batch size, three times as slow."""
    digits_submission.claim |= {"model": HOSTILE}
    ids = [submit(digits_submission).json()["id"]]
    digits_submission.claim |= {"model": "slower", "hyperparameters": {"batch_size": 32}}
    for index, name in enumerate(digits_submission.logs):
        pace = 0.33 + index * 0.002
        digits_submission.logs[name] = make_log(
            200 + index, name=name, seconds_per_epoch=pace, batch_size=32
        )
    return [*ids, submit(digits_submission).json()["id"]]


def test_two_submissions_stand_side_by_side_with_what_differs_and_who_is_faster(two, client):
    address = f"/compare?ids={two[0]},{two[1]}"
    answer = client.get(address, headers=BROWSER)
    words = words_of(answer.text)

    assert answer.status_code == 200
    assert "A is significantly faster than B" in words
    assert "batch_size differs 64 32 0.500 × A" in words
    assert "Hardware class same" in words
    assert "than B" in words
    assert "The board may tell the same two apart or not: it counts other tests" in words
    assert 'style="' not in answer.text
    assert f'href="/api/v1/compare?submissions={two[0]}%2C{two[1]}"' in answer.text
    different = words_of(client.get(address + "&rows=different", headers=BROWSER).text)
    assert "batch_size differs" in different
    assert "Hardware class same" not in different
    for chart in ("curves-chart", "times-chart"):
        assert f'id="{chart}"' in answer.text


def test_beside_each_one_stands_how_it_is_known(two, client, database):
    known = (("claimed", "epochs_agree"), ("measured", None))
    for submission_id, (evidence, check) in zip(two, known, strict=True):
        with database.write() as session:
            submission = session.get_one(Submission, submission_id)
            submission.evidence, submission.check_word = evidence, check
    page = client.get(f"/compare?ids={two[0]},{two[1]}", headers=BROWSER).text
    sides = page.split('class="sides"')[1].split("</ol>")[0]

    first, second = (words_of(each) for each in sides.split("</li>")[:2])
    assert "claimed · epochs agree" in first
    assert "measured" in second


def test_what_a_form_sends_leads_to_one_address(two, client):
    pasted = f"http://testserver/submissions/{two[1]}/"
    answer = client.get(
        "/compare", params={"ids": [two[0], "", pasted, two[0]]}, follow_redirects=False
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/compare?ids={two[0]},{two[1]}"


def test_one_submission_is_offered_the_others_of_its_board(two, client):
    page = client.get(f"/compare?ids={two[1]}", headers=BROWSER).text
    assert f'<option value="{two[0]}">' in page
    assert f'<option value="{two[1]}">' not in page
    assert f'<input type="hidden" name="ids" value="{two[1]}">' in page
    assert client.get("/compare").status_code == 200


def test_what_cannot_be_compared_is_a_page_that_says_what_to_do(
    two, digits_submission, submit, client, database
):
    def page(*ids):
        answer = client.get(f"/compare?ids={','.join(ids)}", headers=BROWSER)
        return answer.status_code, words_of(answer.text), answer.text

    status, words, text = page(two[0], HOSTILE)
    assert (status, "There is no submission" in words) == (404, True)
    assert f'href="/compare?ids={two[0]}"' in text

    more = [submit(digits_submission).json()["id"] for _ in range(5)]
    status, words, _ = page(*two, *more)
    assert (status, "These are 7 submissions; at most 6" in words) == (422, True)

    with database.write() as session:
        session.get_one(Submission, more[0]).benchmark_id = "cifar10"
    status, words, _ = page(two[1], more[0])
    assert (status, "submissions of cifar10 and digits" in words) == (422, True)
