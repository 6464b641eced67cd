"""Who sends a request: a secret that proved good, else an address."""

import hashlib
from typing import Any

import pytest
from starlette.types import Scope

from server.limits.requesters import KnownSecrets, Requester
from server.sessions.cookies import HOST_PREFIX, NAME

SECRET = hashlib.sha256(b"fl_secret").hexdigest()


def scope_of(*headers: tuple[str, str], client: Any = ("198.51.100.7", 50000)) -> Scope:
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return {"type": "http", "client": client, "headers": pairs}


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer fl_secret")],
        [("authorization", "bearer  fl_secret ")],
        [("cookie", f"{NAME}=fl_secret")],
        [("cookie", f"theme=dark; {HOST_PREFIX}{NAME}=fl_secret; other=1")],
        [("cookie", f"{NAME}=another"), ("authorization", "Bearer fl_secret")],
        [("authorization", "Bearer fl_secret"), ("cookie", f"{NAME}=another")],
    ],
)
def test_a_secret_is_the_bearer_token_else_the_cookie(headers: list[tuple[str, str]]) -> None:
    known = KnownSecrets()
    unproven = known.requester(scope_of(*headers))
    assert unproven == Requester("198.51.100.7", SECRET, None)
    assert (unproven.is_unproven, unproven.key) == (True, "address:198.51.100.7")

    known.note(SECRET, "submitter")
    proven = known.requester(scope_of(*headers))
    assert (proven.role, proven.is_unproven) == ("submitter", False)
    assert proven.key == known.requester(scope_of(*headers, client=("2001:db8::1", 1))).key
    assert proven.key != Requester("198.51.100.7", "f" * 64, "submitter").key

    known.forget(SECRET)
    assert known.requester(scope_of(*headers)) == unproven


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Basic fl_secret")],
        [("cookie", "theme=dark")],
        [("cookie", f"{NAME}")],
        [("cookie", f"my_{NAME}=fl_secret")],
    ],
)
def test_without_a_secret_it_is_the_address(headers: list[tuple[str, str]]) -> None:
    found = KnownSecrets().requester(scope_of(*headers))

    assert found == Requester("198.51.100.7", None, None)
    assert (found.is_unproven, found.key) == (False, "address:198.51.100.7")


def test_of_an_address_its_network_counts_and_a_local_socket_has_none() -> None:
    def address(host: str) -> str:
        return KnownSecrets().requester(scope_of(client=(host, 1))).address

    assert address("2001:db8::1") == address("2001:db8::2") != address("2001:db8:0:1::1")
    assert address("::ffff:198.51.100.7") == "198.51.100.7"
    assert KnownSecrets().requester(scope_of(client=None)).address == "local"


@pytest.mark.parametrize(
    ("role", "trusted"),
    [("organiser", True), ("admin", True), ("submitter", False), ("worker", False), (None, False)],
)
def test_organisers_are_trusted(role: str | None, trusted: bool) -> None:
    assert Requester("198.51.100.7", SECRET, role).is_trusted is trusted


def test_of_the_secrets_the_latest_are_known() -> None:
    known = KnownSecrets(most=2)
    for secret in ("one", "two", "one", "three"):
        known.note(hashlib.sha256(secret.encode()).hexdigest(), "submitter")

    roles = {
        secret: known.requester(scope_of(("authorization", f"Bearer {secret}"))).role
        for secret in ("one", "two", "three")
    }
    assert roles == {"one": "submitter", "two": None, "three": "submitter"}
