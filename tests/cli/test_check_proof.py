"""`finishline check-proof`: hostile bundles, a bundle from a server, and what it says to people.

What the checks find in real bundles is tested with the server that makes them.
"""

import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from finishline.cli import bundles
from finishline.cli.bundles import read_bundle
from finishline.cli.errors import CliError

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

SHA = "ab" * 32
KEYS = {"keys": [{"id": "x", "public_key": "cd" * 32}]}


def zip_of(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of the duplicate name that is wanted here.
        with zipfile.ZipFile(target, "w", method) as opened:
            for name, content in entries:
                opened.writestr(name, content)
    return target.getvalue()


def refused(content: bytes) -> str:
    with pytest.raises(CliError) as error:
        read_bundle(content, file="x.zip")
    assert error.value.exit_code == 1
    return str(error.value.problems[0])


def test_a_bundle_is_its_document_and_its_files_by_hash() -> None:
    found = read_bundle(zip_of(("proof.json", b'{"a": 1}'), (f"logs/{SHA}", b"x")), file="x.zip")

    assert (found.document, found.logs) == ({"a": 1}, {SHA: b"x"})
    assert read_bundle(b'{"a": 1}', file="x.json").logs is None


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", f"logs/../{SHA}", f"logs/{SHA}/", "logs/", f"logs/{SHA.upper()}",
     f"logs\\{SHA}", "proof.json/x", "PROOF.JSON", f"logs/{SHA}x", f"logs/{SHA}\n"],
)  # fmt: skip
def test_no_other_name_is_read(name: str) -> None:
    assert "unexpected file name" in refused(zip_of(("proof.json", b"{}"), (name, b"x")))


def test_a_file_that_is_there_twice_is_refused() -> None:
    assert "appears twice" in refused(zip_of(("proof.json", b"{}"), ("proof.json", b"{}")))


def test_too_many_files_are_refused() -> None:
    names = [f"logs/{number:064x}" for number in range(bundles.FILES_LIMIT)]
    content = zip_of(("proof.json", b"{}"), *((name, b"") for name in names))

    assert "111 files; expected at most 110" in refused(content)


def test_a_bomb_is_not_unpacked_beyond_the_limit() -> None:
    bomb = zip_of(("proof.json", bytes(bundles.PROOF_LIMIT_BYTES + 1)))

    assert len(bomb) < 100_000
    assert "too large unpacked" in refused(bomb)


def test_many_files_within_their_limits_may_not_be_too_much_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundles, "BUNDLE_LIMIT_BYTES", 1000)
    entries = [(f"logs/{number:064x}", bytes(400)) for number in range(3)]

    assert "expected at most 198 bytes" in refused(zip_of(("proof.json", b"{}"), *entries))


def test_a_size_that_is_a_lie_is_refused() -> None:
    content = bytearray(zip_of(("proof.json", b"{}" * 50), method=zipfile.ZIP_STORED))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = content.index(mark) + offset
        content[place : place + 4] = (2).to_bytes(4, "little")

    assert refused(bytes(content))


def test_what_cannot_be_unpacked_is_refused() -> None:
    good = zip_of(("proof.json", b'{"a": 1}' * 20), method=zipfile.ZIP_STORED)
    broken = good.replace(b'{"a": 1}', b'{"a": 2}', 1)
    encrypted = bytearray(good)
    encrypted[good.index(b"PK\x01\x02") + 8] |= 1
    unknown = bytearray(good)
    unknown[good.index(b"PK\x01\x02") + 10] = 99
    for content in (broken, bytes(unknown), b"PK", b"PK\x03\x04rubbish", good[:-30]):
        assert "not a readable zip" in refused(content)
    assert "is encrypted" in refused(bytes(encrypted))
    assert "contains no proof.json" in refused(zip_of((f"logs/{SHA}", b"x")))
    assert "not JSON" in refused(zip_of(("proof.json", b"{")))
    assert "given twice" in refused(b'{"a": 1, "a": 2}')


def test_an_id_is_fetched_with_the_keys_and_its_failures_are_shown(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("GET /api/v1/verifications/v1/proof", zip_of(("proof.json", b'{"a": 1}')))
    standin.answer("GET /api/v1/keys", KEYS)
    ran = finishline("check-proof", "v1")

    assert ran.code == 1
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0] == "Verification ? of submission ?, ?: ?"
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["signature", "fail"], ["signer", "fail"], ["format", "fail"],
    ]  # fmt: skip
    assert "expected finishline-proof/1" in ran.out
    assert lines[-1] == "Do not rely on this: signature, signer, format failed."


def test_the_proof_of_another_verification_answers_nothing(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    """Each of its checks may pass: it is as sound as it ever was, of something else."""
    proof = {"format": "finishline-proof/1", "verification": {"id": "v2"}}
    standin.answer("GET /api/v1/verifications/v1/proof", json.dumps(proof).encode())
    standin.answer("GET /api/v1/keys", KEYS)
    ran = finishline("check-proof", "v1", "--json")

    assert (ran.code, ran.out) == (4, "")
    assert "the proof of verification 'v2'; expected that of 'v1'" in ran.err


def test_a_document_of_the_wrong_kinds_is_shown_and_not_believed(
    finishline: "Finishline", tmp_path: Path
) -> None:
    path = tmp_path / "proof.json"
    path.write_text('{"format": "finishline-proof/1", "verdict": [], "signature": 3}')
    view = finishline("check-proof", str(path), "--json")

    assert view.code == 1
    assert {check["result"] for check in view.json()["checks"]} == {"fail"}


@pytest.mark.parametrize(
    "keys", [{"keys": [{"id": "x"}]}, {"keys": [{"public_key": "zz"}]}, {"strange": 1}]
)
def test_a_server_without_keys_is_said(
    finishline: "Finishline", standin: "StandIn", keys: Any
) -> None:
    standin.answer("GET /api/v1/verifications/v1/proof", zip_of(("proof.json", b"{}")))
    standin.answer("GET /api/v1/keys", keys)

    assert finishline("check-proof", "v1").code == 4


def test_the_servers_refusal_is_passed_on(finishline: "Finishline", standin: "StandIn") -> None:
    standin.refuse("GET /api/v1/verifications/v1/proof", 409, "It is running.")
    ran = finishline("check-proof", "v1")

    assert (ran.code, ran.err) == (1, "error: It is running.\n")
    assert finishline("check-proof", "v2").code == 6


def test_an_answer_beyond_the_limit_is_not_read_to_its_end(
    finishline: "Finishline", standin: "StandIn", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finishline.cli.commands.check_proof.BUNDLE_LIMIT_BYTES", 10)
    standin.answer("GET /api/v1/verifications/v1/proof", b"PK" + bytes(100))

    assert "larger than 10 bytes" in finishline("check-proof", "v1").err


def test_files_that_are_not_there_and_keys_that_are_none_are_named(
    finishline: "Finishline", tmp_path: Path
) -> None:
    assert finishline("check-proof", str(tmp_path / "gone.zip")).code == 1
    (tmp_path / "proof.json").write_text("{}")
    for content in ("", "zz", "ab", "{", json.dumps({"keys": [{}]}), "\xff"):
        (tmp_path / "key").write_bytes(content.encode("latin-1"))
        key = str(tmp_path / "key")
        ran = finishline("check-proof", str(tmp_path / "proof.json"), "--key", key)
        assert ran.code == 2, content
        assert "No public key in" in ran.err
