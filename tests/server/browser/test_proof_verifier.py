"""The verifier in JavaScript agrees with `finishline check-proof` on real and tampered proofs,
in Node and in Chromium.

FINISHLINE_PROOFS says how many of each: `make proofs` checks 100.
"""

import json
import shutil
import struct
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from os import environ
from pathlib import Path
from random import Random
from typing import Any

import pytest

from finishline.cli.bundles import check_bundle, keys_in
from tests.support.build import REFERENCE
from tests.support.proofs import take_apart, zip_of
from tests.support.tamperings import TAMPERINGS
from web.assets import STATIC_FOLDER

VERIFIER = STATIC_FOLDER / "verify.mjs"
RUNNER = Path(__file__).parents[2] / "support" / "verify_all.mjs"
PROOFS = int(environ.get("FINISHLINE_PROOFS", "6"))
STRANGE = ("Größe 漢字 😀", 'quotes " and \\', "</script>", "ﬁ é é")
NUMBERS = [1e-7, 1e21, 123456789012345680000.0, 2.0**53, 5e-324, -0.0, 1e16, 4.35, 2**53 - 1, 2**70]


@dataclass(frozen=True)
class Case:
    """A bundle, and the check that must fail in it; None for a real one."""

    name: str
    content: bytes
    fails: str | None


@dataclass(frozen=True)
class Proofs:
    """Real and tampered proofs of a server, and its keys as it answers them."""

    cases: Sequence[Case]
    keys: dict[str, Any]


@pytest.fixture
def make_real(digits_submission, submit, make_log, make_report, replay, olivia, settings):
    """Makes the proof of a verification of its own: verified, rejected or cancelled."""

    def make(number):
        claim = digits_submission.claim | {"model": STRANGE[number % len(STRANGE)] + str(number)}
        logs = {
            name: make_log(1000 + 10 * number + k, name=name, division=claim["division"])
            for k, name in enumerate(digits_submission.logs)
        }
        answer = submit(replace(digits_submission, claim=claim, logs=logs))
        assert answer.status_code == 201, answer.text
        asked = replay.client.post(
            f"/api/v1/submissions/{answer.json()['id']}/verifications",
            json={"reason": STRANGE[number % len(STRANGE)]}, headers=olivia.headers,
        )  # fmt: skip
        assert asked.status_code == 201, asked.text
        mine = replace(
            replay, submission_id=answer.json()["id"], verification_id=asked.json()["id"]
        )
        if number % 5 == 4:
            path = f"/api/v1/verifications/{mine.verification_id}/cancel"
            assert replay.client.post(path, headers=olivia.headers).status_code == 200
        else:
            curve = [*REFERENCE[:2], REFERENCE[2] + number / 1000, *REFERENCE[3:]]
            curve = [10.0] * 8 if number % 5 == 3 else curve
            sent = mine.report(mine.claim().json(), make_report(mine.seeds(), qualities=curve))
            assert sent.status_code == 200, sent.text
        return take_apart(
            replay.client, mine.verification_id, signing_key=settings.signing_key_path
        )

    return make


@pytest.fixture
def proofs(make_real, replay):
    """As many real proofs as are asked for, and as many tampered ones or one of each kind."""
    real = [make_real(number) for number in range(PROOFS)]
    cases = [Case(f"real-{i:03}", zip_of(*each.entries()), None) for i, each in enumerate(real)]
    ways = list(TAMPERINGS.items())
    for number in range(max(PROOFS, len(ways))):
        name, (check, tampering) = ways[number % len(ways)]
        content = tampering(deepcopy(real[number % len(real)]), Random(number))
        cases.append(Case(f"tampered-{number:03}-{name}", content, check))
    return Proofs(cases, replay.client.get("/api/v1/keys").json())


def require_agreement(proofs, answers):
    """Both verifiers answer every check alike, and each case as it must end."""
    keys = keys_in(proofs.keys)
    for case in proofs.cases:
        python = {check.name: check for check in check_bundle(case.content, keys).checks}
        javascript = {check["name"]: check for check in answers[case.name]["checks"]}
        shown = (case.name, python, javascript)
        assert answers[case.name]["ok"] == all(c["ok"] for c in javascript.values()), shown
        for name, check in javascript.items():
            assert check["ok"] == (python[name].result != "fail"), (name, *shown)
        if case.fails is None:
            assert answers[case.name]["ok"], shown
            assert all(check.result != "fail" for check in python.values()), shown
        else:
            assert not javascript[case.fails]["ok"], shown


def run_node(proofs, folder):
    """Answers of the verifier in Node by the names of the cases."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: install nodejs")
    (folder / "proofs").mkdir()
    for case in proofs.cases:
        (folder / "proofs" / case.name).write_bytes(case.content)
    (folder / "keys.json").write_text(json.dumps(proofs.keys))
    ran = subprocess.run(
        [node, str(RUNNER), str(VERIFIER), str(folder / "proofs"), str(folder / "keys.json")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    print(f"{len(proofs.cases)} proofs in {found['milliseconds']:.0f} ms")
    return dict(found["answers"])


@pytest.mark.nightly
def test_node_and_python_agree_on_every_proof(proofs, tmp_path):
    require_agreement(proofs, run_node(proofs, tmp_path))


@pytest.mark.nightly
def test_both_write_every_number_and_name_alike(make_real, replay, tmp_path):
    """By any two bytes that differ the statement would not be canonical for one of them."""
    proof, random = make_real(0), Random(7)
    doubles = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(5000)]
    texts = ["".join(chr(random.randrange(0xD800)) for _ in range(9)) for _ in range(500)]
    proof.document["code"] |= {"numbers": [*NUMBERS, *(n for n in doubles if isfinite(n))]}
    proof.document["code"] |= {f"{text}\U0001f600\ufb01": text for text in texts}
    proof.sign()
    keys = replay.client.get("/api/v1/keys").json()
    cases = [Case("numbers", zip_of(*proof.entries()), None)]
    answer = run_node(Proofs(cases, keys), tmp_path)["numbers"]

    assert answer["ok"], answer
    results = {c.name: c.result for c in check_bundle(cases[0].content, keys_in(keys)).checks}
    assert results["statement"] == "pass"
    assert proof.document["code"]["numbers"][:2] == [1e-7, 1e21]


def test_the_verifier_asks_nobody_and_is_short():
    text = VERIFIER.read_text()

    assert len(text.splitlines()) <= 250
    for word in ("import ", "import(", "fetch(", "XMLHttpRequest", "eval("):
        assert word not in text


ASK = """async ([folder, count]) => {
  const { verify } = await import(`${folder}/static/verify.mjs`);
  const read = async (path) => (await fetch(`${folder}/${path}`)).arrayBuffer();
  const keys = JSON.parse(new TextDecoder().decode(await read("api/v1/keys")));
  const answers = [];
  for (let i = 0; i < count; i++) answers.push(await verify(await read(`case/${i}`), keys));
  return answers;
}"""


@pytest.mark.browser
@pytest.mark.nightly
def test_chromium_and_python_agree_on_every_proof(proofs, address, browser):
    contents = [case.content for case in proofs.cases]

    def body_of(url):
        return contents[int(url.rpartition("/")[2])]

    page = browser.new_page()
    page.route("**/case/*", lambda asked: asked.fulfill(body=body_of(asked.request.url)))
    page.goto(f"{address}/proof")
    answers = page.evaluate(ASK, [address, len(contents)])
    page.close()

    named = {case.name: answer for case, answer in zip(proofs.cases, answers, strict=True)}
    require_agreement(proofs, named)


@pytest.mark.browser
def test_a_proof_is_checked_on_the_page_without_a_network(
    make_real, replay, address, browser, tmp_path
):
    proof = make_real(1)
    context = browser.new_context()
    page = context.new_page()
    complaints = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{address}/proof", wait_until="networkidle")
    context.set_offline(True)

    def outcome(wanted):
        path = tmp_path / f"{wanted}.zip"
        path.write_bytes(zip_of(*proof.entries()))
        page.set_input_files("input[type=file]", path)
        page.wait_for_selector(f"[data-outcome={wanted}]", timeout=10_000)
        return str(page.inner_text("#outcome"))

    assert "The proof holds" in outcome("holds")
    assert page.locator("#outcome tbody tr").count() == 11
    sha256 = next(iter(proof.files))
    proof.files[sha256] += b"x"
    assert "subjects, logs failed" in outcome("fails")
    page.click("main summary")
    page.fill("#keys", json.dumps({"keys": [{"public_key": "ab" * 32}]}))
    page.press("#keys", "Tab")
    page.get_by_text("signature, signer, subjects, logs failed").wait_for(timeout=10_000)
    context.close()
    assert not complaints
