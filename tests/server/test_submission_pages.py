"""The pages of a submission, of its runs and of several side by side, and its badge."""

import io
import re
from dataclasses import replace

import pytest

from server.base.models import Submission
from server.pages.runs import read_lines
from tests.support.pages import BROWSER, HOSTILE, words_of


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


def test_a_page_shows_a_sample_of_evaluations(digits_submission, submit, client, monkeypatch):
    runs = len(digits_submission.logs)
    ids = [submit(digits_submission).json()["id"] for _ in range(2)]
    pages = (f"/submissions/{ids[0]}?tab=runs", f"/compare?ids={ids[0]},{ids[1]}")
    shown = [client.get(page, headers=BROWSER).text for page in pages]
    assert not any("evenly apart" in page for page in shown)
    assert all('id="evaluations-table"' in page for page in shown)

    monkeypatch.setattr("server.pages.queries.MOST_EVALUATIONS", 4 * runs)
    monkeypatch.setattr("server.pages.queries.FEWEST_OF_A_RUN", 1)
    shown = [client.get(page, headers=BROWSER).text for page in pages]
    for page, times in zip(shown, (1, 2), strict=True):
        words = f"{times * 4 * runs} of {times * 8 * runs} evaluations are shown, evenly spaced"
        assert words in page
        table = page[page.index('id="evaluations-table"') :].split("</details>")[0]
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


def test_what_a_form_sends_leads_to_one_address(two, client):
    pasted = f"http://testserver/submissions/{two[1]}/"
    answer = client.get(
        "/compare", params={"ids": [two[0], "", pasted, two[0]]}, follow_redirects=False
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/compare?ids={two[0]},{two[1]}"


def test_a_failed_comparison_says_why(two, digits_submission, submit, client, database):
    def page(*ids):
        answer = client.get(f"/compare?ids={','.join(ids)}", headers=BROWSER)
        return answer.status_code, words_of(answer.text), answer.text

    status, words, text = page(two[0], HOSTILE)
    assert (status, "There is no submission" in words) == (404, True)
    assert f'href="/compare?ids={two[0]}"' in text

    more = [submit(digits_submission).json()["id"] for _ in range(5)]
    status, words, _ = page(*two, *more)
    assert (status, "These are 7 submissions. At most 6" in words) == (422, True)

    with database.write() as session:
        session.get_one(Submission, more[0]).benchmark_id = "cifar10"
    status, words, _ = page(two[1], more[0])
    assert (status, "submissions of cifar10 and digits" in words) == (422, True)


def test_lines_of_a_log_are_read_in_pages_and_long_ones_cut():
    log = b"one\ntwo\r\n" + b"x" * 5_000 + b"\n\x1b[31mfour\nfive"
    pages = [read_lines(io.BytesIO(log), first=first, count=2) for first in (1, 3, 5, 7)]

    second = (["x" * 1_000, r"\x1b[31mfour"], True)
    assert pages == [(["one", "two"], True), second, (["five"], False), ([], False)]


def test_a_run_has_a_page_with_its_log(digits_submission, submit, client, monkeypatch):
    address = f"/submissions/{submit(digits_submission).json()['id']}"
    page = client.get(f"{address}/runs/0", headers=BROWSER)

    assert page.status_code == 200
    assert '<a id="L1" href="#L1">1</a>' in page.text
    assert 'data-label="Quality of the run, with the target"' in page.text
    assert "Seconds by phase" in words_of(page.text)
    assert f'href="{address}/runs/0"' in client.get(f"{address}?tab=runs").text

    monkeypatch.setattr("server.pages.runs.LINES", 5)
    second = client.get(f"{address}/runs/0?page=2").text
    assert re.findall(r'<a id="L(\d+)"', second) == ["6", "7", "8", "9", "10"]
    assert f'href="{address}/runs/0?page=3#log"' in second
    assert client.get(f"{address}/runs/9").status_code == 404
