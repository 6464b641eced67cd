"""The verifier in JavaScript: its page, its size, and how it writes numbers.

tests/sweeps/test_proofs.py compares what it finds in frozen proofs.
"""

import json
import struct
from random import Random

import pytest

from finishline.cli.bundles import check_bundle, keys_in
from server.base.signing import load_signer
from tests.support.frozen_proofs import FOLDER, KEYS, verified_in_node
from tests.support.proofs import take_apart
from web.assets import STATIC_FOLDER

VERIFIER = STATIC_FOLDER / "verify.mjs"
SOUND = FOLDER / "sound" / "verified.zip"
NUMBERS = [
    1e-7,
    1e21,
    123456789012345680000.0,
    2.0**53,
    5e-324,
    -0.0,
    1e16,
    4.35,
    2**53 - 1,
    2.0**70,
]


@pytest.mark.nightly
def test_both_write_every_number_and_name_alike(tmp_path):
    """By any two bytes that differ the statement would not be canonical for one of them."""
    key = tmp_path / "key.pem"
    proof, random = take_apart(SOUND.read_bytes(), signing_key=key), Random(7)
    doubles = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(5000)]
    texts = ["".join(chr(random.randrange(0xD800)) for _ in range(9)) for _ in range(500)]
    proof.document["code"] |= {"numbers": [*NUMBERS, *(n for n in doubles if abs(n) <= 1e100)]}
    proof.document["code"] |= {f"{text}\U0001f600\ufb01": text for text in texts}
    proof.sign()
    keys = {"keys": [{"public_key": load_signer(key).public_key}]}
    checks = {c.name: c.result for c in check_bundle(proof.pack(), keys_in(keys)).checks}
    answers = verified_in_node({"numbers": proof.pack()}, keys, tmp_path)

    assert answers["numbers"]["ok"], answers
    assert checks["statement"] == "pass"


def test_the_verifier_asks_nobody_and_is_short():
    text = VERIFIER.read_text()

    assert len(text.splitlines()) <= 250
    for word in ("import ", "import(", "fetch(", "XMLHttpRequest", "eval("):
        assert word not in text


@pytest.mark.browser
def test_a_proof_is_checked_on_the_page_without_a_network(address, browser, tmp_path):
    proof = take_apart(SOUND.read_bytes(), signing_key=None)
    context = browser.new_context()
    page = context.new_page()
    complaints = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{address}/proof", wait_until="networkidle")
    context.set_offline(True)

    def outcome(wanted):
        path = tmp_path / f"{wanted}.zip"
        path.write_bytes(proof.pack())
        page.set_input_files("input[type=file]", path)
        page.wait_for_selector(f"[data-outcome={wanted}]", timeout=10_000)
        return str(page.inner_text("#outcome"))

    page.click("main summary")
    page.fill("#keys", KEYS.read_text())
    assert "The proof holds" in outcome("holds")
    assert page.locator("#outcome tbody tr").count() == 11
    sha256 = next(iter(proof.files))
    proof.files[sha256] += b"x"
    assert "subjects, logs failed" in outcome("fails")
    page.fill("#keys", json.dumps({"keys": [{"public_key": "ab" * 32}]}))
    page.press("#keys", "Tab")
    page.get_by_text("signature, signer, subjects, logs failed").wait_for(timeout=10_000)
    context.close()
    assert not complaints
