"""A system held against what it rented: refused where the book knows better, else told."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from fastapi.testclient import TestClient

CLOUD = {"provider": "cloud", "instance": "<b>cpu.2</b>", "region": "north", "count": 1}
# What the submissions of the tests state: two processors, 24 GiB and no accelerator.
SHAPE = {"accelerator_count": 0, "processor_count": 2, "memory_gib": 25.0}


@pytest.fixture
def add_shape(client: TestClient, olivia: Any) -> Callable[..., int]:
    """Adds a price of the instance with a shape to the book; the number of the entry."""

    def add(**others: Any) -> int:
        names = {name: CLOUD[name] for name in ("provider", "instance", "region")}
        body = names | {
            "usd_per_hour": 2.0, "effective_on": "2026-01-01",
            "source_url": "https://cloud.example/prices",
        } | others  # fmt: skip
        answer = client.post("/api/v1/prices", json=body, headers=olivia.headers)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    return add


@pytest.fixture
def send(digits_submission: Any, submit: Callable[..., Any]) -> Callable[..., Any]:
    """Sends runs made on the instance; its system differs as told. The answer."""

    def sent(form: dict[str, str] | None = None, by: Any = None, **system: Any) -> Any:
        parts = deepcopy(digits_submission)
        parts.claim["system"] |= {"cloud": CLOUD} | system
        parts.form |= form or {}
        return submit(parts, by=by)

    return sent


def test_a_system_that_is_not_what_it_names_is_refused_with_field_and_both_figures(
    client: TestClient,
    send: Callable[..., Any],
    add_shape: Callable[..., int],
    row_counts: Callable[[], Any],
) -> None:
    number = add_shape(**SHAPE)
    before = row_counts()
    answer = send(processor_count=8, memory_gib=64, accelerator="H100", accelerator_count=8)

    assert answer.status_code == 422
    problems = answer.json()["problems"]
    assert [problem["field"] for problem in problems] == [
        "system.accelerator", "system.accelerator_count", "system.processor_count",
        "system.memory_gib",
    ]  # fmt: skip
    assert problems[2]["file"] == "submission.json"
    assert problems[2]["message"] == "got 8"
    assert problems[2]["expected"].startswith("2, as 1 x <b>cpu.2</b> of cloud")
    assert f"price {number} of the price book" in problems[2]["expected"]
    assert row_counts() == before
    assert (
        send(cloud=CLOUD | {"count": 2}).json()["problems"][0]["expected"].startswith("4, as 2 x")
    )

    sent = send()
    assert sent.status_code == 201
    check = sent.json()["instance_check"]
    assert (check["price"], check["differs"]) == (number, False)
    assert [each["field"] for each in check["figures"]] == [
        "accelerator_count", "processor_count", "memory_gib",
    ]  # fmt: skip
    assert check["source_url"] == "https://cloud.example/prices"
    page = client.get(f"/submissions/{sent.json()['id']}").text
    assert f'<a href="/prices#price-{number}">as price {number} says: number of acc' in page


def test_an_instance_without_a_shape_is_taken_and_said_to_be_unchecked(
    client: TestClient, send: Callable[..., Any], add_shape: Callable[..., int]
) -> None:
    add_shape()
    add_shape(**SHAPE, effective_on="2999-01-01")
    sent = send(processor_count=8).json()

    check = sent["instance_check"]
    assert (check["price"], check["figures"], check["differs"]) == (None, [], False)
    assert check["in_words"] == "not checked: the price book has no shape of cloud <b>cpu.2</b>"
    page = client.get(f"/submissions/{sent['id']}").text
    assert "no shape of cloud &lt;b&gt;cpu.2&lt;/b&gt;" in page
    assert "Not the system that was rented" not in page
    assert send(cloud=None).json()["instance_check"] is None


def test_what_the_book_comes_to_know_later_is_told_and_refuses_nothing(
    client: TestClient, send: Callable[..., Any], add_shape: Callable[..., int]
) -> None:
    sent = send(processor_count=8).json()
    number = add_shape(**SHAPE)

    shown = client.get(f"/api/v1/submissions/{sent['id']}").json()
    assert shown["result"]["eligible"]
    assert shown["instance_check"]["differs"]
    (listed,) = client.get("/api/v1/submissions").json()["submissions"]
    assert listed["instance_check"] == shown["instance_check"]
    page = client.get(f"/submissions/{sent['id']}").text
    assert "Not the system that was rented" in page
    assert '<span class="mono">processor_count</span>: 8 stated, 2 rented' in page
    assert f"not what was rented by price {number}: number of processors 8, expected 2" in page
    add_shape(processor_count=8, supersedes=number)
    mended = client.get(f"/api/v1/submissions/{sent['id']}").json()["instance_check"]
    assert not mended["differs"]


def test_an_archive_is_kept_as_it_was_published_and_only_told(
    send: Callable[..., Any], add_shape: Callable[..., int], olivia: Any
) -> None:
    add_shape(**SHAPE)
    answer = send({"archive": "true"}, by=olivia, processor_count=8)

    assert answer.status_code == 201, answer.text
    assert answer.json()["instance_check"]["differs"]
