"""Dry runs of submissions, over the API and in the browser: the same checks, and nothing stored."""

import re
from dataclasses import replace

import pytest

from tests.server.test_entries import Entries
from tests.support.pages import ORIGIN, sign_in

SUBMISSIONS = "/api/v1/submissions"
DRY = {"dry_run": "true"}


@pytest.fixture
def try_out(alice):
    def send(parts, **form):
        return alice.post(SUBMISSIONS, params=DRY, data=form, files=parts.files())

    return send


def listed(person):
    return person.get(SUBMISSIONS).json()["submissions"]


def test_a_preview_has_the_score_and_place_that_the_submission_gets(
    digits_submission, make_log, submit, try_out, bob, alice, stored_files
):
    submit(digits_submission, by=bob)
    kept = stored_files()
    logs = {
        name: make_log(number, name=name, seconds_per_epoch=0.2 + number / 1000)
        for number, name in enumerate(digits_submission.logs)
    }
    slower = replace(digits_submission, logs=logs)

    answer = try_out(slower)

    assert answer.status_code == 200, answer.text
    preview = answer.json()
    assert (preview["rank"], preview["entries"]) == (None, 2)
    assert len(listed(alice)) == 1
    assert stored_files() == kept
    sent = submit(slower, as_is=True).json()
    stored = alice.get(f"{SUBMISSIONS}/{sent['id']}").json()
    same = ("result", "runs", "rank", "benchmark", "division", "system", "evidence")
    assert {name: preview[name] for name in same} == {name: stored[name] for name in same}


def test_a_dry_run_refuses_as_a_submission_does(digits_submission, submit, try_out):
    broken = replace(digits_submission, claim=digits_submission.claim | {"division": "ajar"})
    problem = try_out(broken).json()["problems"][0]
    assert (problem["file"], problem["field"]) == ("submission.json", "division")
    assert submit(digits_submission, as_is=True).status_code == 201
    again = try_out(digits_submission)
    assert (again.status_code, "byte for byte" in again.json()["detail"]) == (409, True)
    assert try_out(digits_submission, archive="true").status_code == 403


def test_code_is_tried_out(client, database, walter, alice, olivia):
    entries = Entries(client, database, walter)
    entries.greet()
    preview = entries.hand_in(alice, dry_run=True).json()
    assert (preview["kind"], preview["result"], preview["rank"]) == ("code", None, None)
    assert preview["package"]["environment"] == "numpy-2.4"
    assert preview["system"]["hardware_class"] == "cpu-test"
    assert listed(alice) == []
    body = {"gpu_seconds_per_month": 0, "reason": "nothing is left"}
    assert olivia.put("/api/v1/quotas/alice", body).is_success
    used_up = entries.hand_in(alice, dry_run=True)
    assert used_up.status_code == 403
    assert "accelerator seconds in 30 days" in used_up.json()["detail"]


def send(client, parts, **fields):
    files = [("files", part) for _, part in parts.files()]
    return client.post("/submit", data=fields, files=files, headers=ORIGIN, follow_redirects=False)


def key_in(page):
    return str(re.findall(r'name="key" value="([^"]+)"', page)[0])


def test_files_are_previewed_and_sent_once(digits_submission, client, alice, settings):
    sign_in(client, alice)

    page = send(client, digits_submission)

    assert page.status_code == 200, page.text
    assert "<b>none</b><small>of 1, claimed: not measured here" in page.text
    assert page.text.count("run_1.log") == 1
    assert listed(alice) == []
    assert not list((settings.artifacts_dir / "incoming").iterdir())
    key = key_in(page.text)
    sent, again = (send(client, digits_submission, key=key, send="yes") for _ in range(2))
    assert (sent.status_code, again.headers["location"]) == (303, sent.headers["location"])
    assert client.get(sent.headers["location"]).status_code == 200
    assert len(listed(alice)) == 1
    other = send(client, digits_submission, key="another form", send="yes")
    assert (other.status_code, "byte for byte" in other.text) == (409, True)


def test_problems_name_file_and_field_and_keep_the_choices(digits_submission, client, alice):
    sign_in(client, alice)
    broken = replace(digits_submission, claim=digits_submission.claim | {"division": "ajar"})

    assert send(client, broken, send="yes").status_code == 422
    page = send(client, broken, benchmark="digits", key="typed")

    assert (page.status_code, key_in(page.text)) == (422, "typed")
    assert '<b class="mono">submission.json</b>, <span class="mono">division</span>' in page.text
    assert '<option value="digits" selected>' in page.text
    alone = [("files", ("run_0.log", b"")), ("files", ("a.log", b""))]
    page = client.post("/submit", files=alone, headers=ORIGIN)
    assert "a.log, run_0.log: no submission.json and no training.toml among them." in page.text


def test_a_folder_is_sent_with_the_logs_that_its_claim_lists(digits_submission, client, alice):
    sign_in(client, alice)
    parts = [*(part for _, part in digits_submission.files()), ("ticket.json", b"{}"), (".x", b"")]
    paths = "\n".join(f"runs/{name}" for name, _ in parts)
    files = [("files", part) for part in parts]

    page = client.post("/submit", data={"paths": paths}, files=files, headers=ORIGIN)

    assert page.status_code == 200, page.text
    sent = {"paths": paths, "send": "yes"}
    done = client.post("/submit", data=sent, files=files, headers=ORIGIN, follow_redirects=False)
    assert done.status_code == 303

    packed = {"paths": paths.replace("run_1.log", "run_1.log.gz")}
    page = client.post("/submit", data=packed, files=files, headers=ORIGIN)
    assert "&#39;run_1.log&#39; was not sent, but &#39;run_1.log.gz&#39;" in page.text
    assert "the log unpacked: it is read and published as plain text" in page.text
