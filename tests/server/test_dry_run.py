"""Dry runs of submissions, over the API and in the browser: the same checks, and nothing stored."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.settings import Settings
from server.submissions import drafts
from tests.server.conftest import Person
from tests.server.test_entries import FILES, Entries
from tests.server.test_entry_pages import ORIGIN
from tests.server.test_entry_pages import sign_in as sign_in
from tests.support.services import services_of

SUBMISSIONS = "/api/v1/submissions"
DRY = {"dry_run": "true"}


@pytest.fixture
def try_out(client: TestClient, alice: Person) -> Callable[..., Any]:
    """Sends a submission that is to be checked alone."""

    def send(parts: Any, **form: str) -> Any:
        return client.post(
            SUBMISSIONS, params=DRY, files=parts.files(), data=form, headers=alice.headers
        )

    return send


def listed(client: TestClient, person: Person) -> list[Any]:
    found: list[Any] = client.get(SUBMISSIONS, headers=person.headers).json()["submissions"]
    return found


def test_a_preview_has_the_score_and_place_that_the_submission_gets(
    digits_submission: Any,
    make_log: Callable[..., bytes],
    submit: Callable[..., Any],
    try_out: Callable[..., Any],
    client: TestClient,
    bob: Person,
    alice: Person,
    stored_files: Callable[[], Any],
) -> None:
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
    assert (preview["rank"], preview["provisional_rank"], preview["entries"]) == (None, 2, 2)
    assert len(listed(client, alice)) == 1
    assert stored_files() == kept
    sent = submit(slower, as_is=True).json()
    stored = client.get(f"{SUBMISSIONS}/{sent['id']}", headers=alice.headers).json()
    same = ("result", "runs", "provisional_rank", "benchmark", "division", "system", "evidence")
    assert {name: preview[name] for name in same} == {name: stored[name] for name in same}


def test_a_dry_run_refuses_as_a_submission_does(
    digits_submission: Any, submit: Callable[..., Any], try_out: Callable[..., Any]
) -> None:
    broken = replace(digits_submission, claim=digits_submission.claim | {"division": "ajar"})
    problem = try_out(broken).json()["problems"][0]
    assert (problem["file"], problem["field"]) == ("submission.json", "division")
    assert submit(digits_submission, as_is=True).status_code == 201
    again = try_out(digits_submission)
    assert (again.status_code, "byte for byte" in again.json()["detail"]) == (409, True)
    assert try_out(digits_submission, archive="true").status_code == 403


def test_a_package_is_tried_out(
    client: TestClient, database: Any, walter: Person, alice: Person, olivia: Person
) -> None:
    Entries(client, database, walter).greet()
    files = [("files", part) for part in FILES.items()]

    answer = client.post("/api/v1/trainings", params=DRY, files=files, headers=alice.headers)

    assert answer.status_code == 200, answer.text
    preview = answer.json()
    assert (preview["result"], preview["package"]["environment"]) == (None, "numpy-2.4")
    assert preview["system"]["hardware_class"] == "cpu-test"
    assert listed(client, alice) == []
    body = {"gpu_seconds_per_month": 0, "reason": "nothing is left"}
    assert client.put("/api/v1/quotas/user/alice", json=body, headers=olivia.headers).is_success
    used_up = client.post("/api/v1/trainings", params=DRY, files=files, headers=alice.headers)
    assert used_up.status_code == 403
    assert "accelerator seconds in 30 days" in used_up.json()["detail"]


def check(client: TestClient, csrf: str, parts: Any, **fields: str) -> Any:
    files = [("files", part) for _, part in parts.files()]
    return client.post("/submit", data={"csrf": csrf, **fields}, files=files, headers=ORIGIN)


def send(client: TestClient, csrf: str, draft: str) -> Any:
    sent = {"csrf": csrf, "draft": draft}
    return client.post("/submit/send", data=sent, headers=ORIGIN, follow_redirects=False)


def draft_in(page: str) -> str:
    return str(re.findall(r'name="draft" value="([^"]+)"', page)[0])


def test_files_are_previewed_kept_and_sent_once(
    digits_submission: Any,
    client: TestClient,
    alice: Person,
    settings: Settings,
    sign_in: Callable[[Person], str],
) -> None:
    csrf = sign_in(alice)

    page = check(client, csrf, digits_submission)

    assert page.status_code == 200, page.text
    assert '<b class="num">(1)</b><small>of 1; claimed: not measured here' in page.text
    assert page.text.count("run_1.log") == 1
    assert listed(client, alice) == []
    draft = draft_in(page.text)
    sent, again = send(client, csrf, draft), send(client, csrf, draft)
    assert (sent.status_code, again.headers["location"]) == (303, sent.headers["location"])
    assert client.get(sent.headers["location"]).status_code == 200
    assert len(listed(client, alice)) == 1
    assert not list((settings.artifacts_dir / "incoming").iterdir())


def test_problems_name_file_and_field_and_keep_the_choices(
    digits_submission: Any, client: TestClient, alice: Person, sign_in: Callable[[Person], str]
) -> None:
    csrf = sign_in(alice)
    broken = replace(digits_submission, claim=digits_submission.claim | {"division": "ajar"})

    page = check(client, csrf, broken, benchmark="digits")

    assert page.status_code == 422
    assert '<b class="mono">submission.json</b>, <span class="mono">division</span>' in page.text
    assert '<option value="digits" selected>' in page.text
    assert check(client, "ab" * 64, digits_submission).status_code == 403
    alone = {"csrf": csrf}, [("files", ("run_0.log", b"")), ("files", ("a.log", b""))]
    page = client.post("/submit", data=alone[0], files=alone[1], headers=ORIGIN)
    assert "a.log, run_0.log: no submission.json and no training.toml among them." in page.text


def test_a_folder_is_sent_with_the_logs_that_its_claim_lists(
    digits_submission: Any, client: TestClient, alice: Person, sign_in: Callable[[Person], str]
) -> None:
    csrf = sign_in(alice)
    parts = [*(part for _, part in digits_submission.files()), ("ticket.json", b"{}"), (".x", b"")]
    paths = "\n".join(f"runs/{name}" for name, _ in parts)
    files = [("files", part) for part in parts]

    page = client.post("/submit", data={"csrf": csrf, "paths": paths}, files=files, headers=ORIGIN)

    assert page.status_code == 200, page.text
    assert send(client, csrf, draft_in(page.text)).status_code == 303

    packed = {"csrf": csrf, "paths": paths.replace("run_1.log", "run_1.log.gz")}
    page = client.post("/submit", data=packed, files=files, headers=ORIGIN)
    assert "&#39;run_1.log&#39; was not sent, but &#39;run_1.log.gz&#39;" in page.text
    assert "the log unpacked: it is read and published as plain text" in page.text


def test_a_draft_is_its_owners_and_ends_after_an_hour_or_with_the_next(
    digits_submission: Any,
    client: TestClient,
    alice: Person,
    bob: Person,
    settings: Settings,
    sign_in: Callable[[Person], str],
) -> None:
    csrf = sign_in(alice)
    first = draft_in(check(client, csrf, digits_submission).text)
    second = draft_in(check(client, csrf, digits_submission).text)
    assert "no longer kept" in send(client, csrf, first).text
    bobs = sign_in(bob)
    for code in (second, "../../finishline.db", ""):
        assert send(client, bobs, code).status_code == 404
    csrf = sign_in(alice)
    (path,) = (settings.artifacts_dir / "incoming").iterdir()
    long_ago = time.time() - drafts.KEPT_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    assert send(client, csrf, second).status_code == 404
    services_of(client).artifacts.sweep(older_than_seconds=drafts.KEPT_SECONDS)
    assert not Path(path).exists()
    assert listed(client, alice) == []
