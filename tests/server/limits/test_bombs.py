"""Small requests that would become large: refused, with a sentence, before they cost much."""

import gzip
from typing import Any

import pytest
from fastapi.testclient import TestClient

SUBMISSIONS = "/api/v1/submissions"
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
DEEP = b"[" * 100_000 + b"]" * 100_000


def test_json_that_is_too_deep_is_refused_wherever_it_comes(
    client: TestClient, alice: Any, olivia: Any, digits_submission: Any
) -> None:
    as_json = olivia.headers | {"Content-Type": "application/json"}
    assert client.post("/api/v1/tokens", content=DEEP, headers=as_json).status_code == 400
    parts = [("submission", ("submission.json", DEEP)), *digits_submission.files()[1:]]
    refused = client.post(SUBMISSIONS, files=parts, headers=alice.headers)
    assert refused.status_code == 422
    assert "depth" in refused.json()["detail"]


def test_a_compressed_body_is_not_read(client: TestClient, olivia: Any) -> None:
    body = gzip.compress(b'{"user": "carol", "role": "submitter"}')
    headers = olivia.headers | {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused = client.post("/api/v1/tokens", content=body, headers=headers)
    assert (refused.status_code, refused.json()["title"]) == (415, "Unsupported media type")


@pytest.mark.parametrize(
    ("part", "status"),
    [
        (b'Content-Disposition: form-data; name="a"\r\n\r\nv\r\n', 413),
        (b'Content-Disposition: form-data; name="logs"; filename="f"\r\n\r\nv\r\n', 413),
        (b"X: %s\r\n\r\nv\r\n" % (b"a" * 100_000), 400),
        (b"%s\r\nv\r\n" % (b"X: y\r\n" * 1000), 400),
    ],
    ids=["fields", "files", "long header", "many headers"],
)
def test_a_form_of_too_many_or_too_large_parts_is_refused(
    part: bytes, status: int, client: TestClient, alice: Any
) -> None:
    body = (b"--x\r\n" + part) * 200 + b"--x--\r\n"
    refused = client.post(SUBMISSIONS, content=body[:1_000_000], headers=alice.headers | FORM)
    assert refused.status_code == status


def test_a_form_of_too_many_fields_is_refused(client: TestClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://testserver"}
    body = b"&".join(b"a%d=1" % number for number in range(5000))
    assert client.post("/console/sign-in", content=body, headers=form).status_code == 400
