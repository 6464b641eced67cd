"""Proof bundles and signing keys as the server gives them out."""

import base64
import hashlib
import json
from dataclasses import asdict, replace
from datetime import datetime

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from finishline.cli.bundles import check_bundle, keys_in
from finishline.rules.verification.messages import Failure
from server.base.errors import ServerError
from server.base.models import Submission
from server.base.signing import load_signer
from server.verifications import proofs
from tests.support.both_databases import at_once
from tests.support.build import ask_for_replay
from tests.support.proofs import files_of, predicate_in

SECP256R1_PEM = generate_private_key(SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
LOCKED_PEM = Ed25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password nobody knows here")
)
# The key says that it is one of X448, which are longer.
BROKEN_PEM = (
    Ed25519PrivateKey.generate()
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .replace(b"BQYDK2Vw", b"BQYDK2Vv")
)


@pytest.fixture
def ended(replay):
    replay.finish()
    assert replay.view()["outcome"] == "verified"
    return replay


def proof_of(replay, **query):
    return replay.client.get(f"/api/v1/verifications/{replay.verification_id}/proof", params=query)


def test_a_bundle_holds_the_document_and_the_files_as_they_were_sent(ended, digits_submission):
    answer = proof_of(ended)
    assert proof_of(ended, format="json").status_code == 422
    assert proof_of(ended).content == answer.content

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    assert f"proof-{ended.verification_id}.zip" in answer.headers["content-disposition"]
    files = files_of(answer.content)
    sent = {hashlib.sha256(log).hexdigest(): log for log in digits_submission.logs.values()}
    assert list(files) == ["proof.dsse.json", *sorted(list(files)[1:])]
    assert files.pop("proof.dsse.json") == proof_of(ended, format="dsse").content
    logs = {name.removeprefix("logs/"): content for name, content in files.items()}
    (claim,) = set(logs) - set(sent)
    assert json.loads(logs.pop(claim)) == digits_submission.claim
    assert logs == sent


def test_the_envelope_is_dsse_over_the_canonical_form_of_an_in_toto_statement(ended, client):
    """By the texts of DSSE, in-toto and RFC 8785, with nothing of this server's code."""
    envelope = proof_of(ended, format="dsse").json()
    (key,) = client.get("/api/v1/keys").json()["keys"]
    payload = base64.b64decode(envelope["payload"], validate=True)
    statement = json.loads(payload)
    predicate = statement["predicate"]
    logs = [name for name in files_of(proof_of(ended).content) if name.startswith("logs/")]

    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert [signature["keyid"] for signature in envelope["signatures"]] == [key["id"]]
    public = bytes.fromhex(key["public_key"])
    assert key["id"] == hashlib.sha256(public).hexdigest()[:16]
    Ed25519PublicKey.from_public_bytes(public).verify(
        base64.b64decode(envelope["signatures"][0]["sig"], validate=True),
        b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload),
    )
    assert payload == rfc8785.dumps(statement)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {"name": name, "digest": {"sha256": name.removeprefix("logs/")}} for name in logs
    ]
    assert predicate["format"] == 2
    assert predicate["parts"] == {
        name: hashlib.sha256(rfc8785.dumps(predicate[name])).hexdigest()
        for name in set(predicate) - {"format", "parts"}
    }


def test_the_document_holds_all_the_verdict_stands_on(ended, client):
    document = predicate_in(proof_of(ended, format="dsse"))
    view, submission = ended.view(), client.get(f"/api/v1/submissions/{ended.submission_id}").json()

    assert document["report"] == view["report"]
    assert document["verdict"] == {"outcome": "verified", "reasons": view["reasons"]}
    assert document["draw"] == {
        "seal": view["seal"], "nonce": view["nonce"], "seeds": view["seeds"],
        "runs": view["runs_planned"], "beside": {},
    }  # fmt: skip
    assert document["plan"]["control_points"] == view["control_points"]
    definition = document["benchmark"]["definition"].encode()
    assert hashlib.sha256(definition).hexdigest() == submission["benchmark_sha256"]
    assert document["submission"]["result"]["tta_seconds"] == submission["result"]["tta_seconds"]
    assert [log["sha256"] for log in document["submission"]["logs"]] == [
        run["log_sha256"] for run in submission["runs"]
    ]
    assert [attempt["state"] for attempt in document["attempts"]] == ["done"]
    (attempt,), (shown,) = document["attempts"], view["attempts"]
    for part, seen, name in (
        (document["verification"], view, "ended_at"),
        (attempt, shown, "started_at"),
        (attempt, shown, "ended_at"),
    ):
        assert datetime.fromisoformat(part[name]) == datetime.fromisoformat(seen[name])
    assert document["report"]["system"]["software"] == {"torch": "2.13.0"}
    assert document["code"]["version"]


def test_large_seed_keeps_digits(digits_submission, submit, client, database, olivia, walter):
    """A JSON number holds whole numbers up to 2^53 - 1, and a log has seeds of 63 bits."""
    log = digits_submission.logs["run_0.log"]
    log = log.replace(b'"key":"seed","value":100', b'"key":"seed","value":1152921504606846977')
    digits_submission.logs["run_0.log"] = log
    submission_id = submit(digits_submission).json()["id"]
    replay = ask_for_replay(client, database, submission_id, by=olivia, worker=walter)
    replay.finish()
    proof = proof_of(replay)
    keys = keys_in(client.get("/api/v1/keys").json())

    runs = predicate_in(proof_of(replay, format="dsse"))["submission"]["runs"]
    assert [run["seed"] for run in runs] == ["1152921504606846977", 101, 102]
    assert [c for c in check_bundle(proof.content, keys).checks if c.result == "fail"] == []


def test_there_is_no_proof_before_the_end(replay):
    for _ in range(2):
        answer = proof_of(replay)
        assert answer.status_code == 409
        assert "once it has ended" in answer.json()["detail"]
        assert not any(str(seed) in answer.text for seed in replay.seeds() if seed > 9999)
        replay.claim()


def test_a_lost_file_is_said_by_its_hash(ended, settings):
    sha256 = predicate_in(proof_of(ended, format="dsse"))["submission"]["logs"][0]["sha256"]
    (settings.artifacts_dir / sha256[:2] / sha256).unlink()
    answer = proof_of(ended)

    assert answer.status_code == 500
    assert sha256 in answer.json()["detail"]


def test_a_rescored_result_and_another_release_leave_the_evidence_as_it_was(ended, monkeypatch):
    before = proof_of(ended, format="dsse").content
    monkeypatch.setattr(proofs, "code_part", lambda session: {"version": "99.0"})
    with ended.database.write() as session:
        submission = session.get_one(Submission, ended.submission_id)
        submission.result = submission.result | {"tta_seconds": 1.0}
        submission.runs[0].tta_seconds = 1.0

    assert proof_of(ended, format="dsse").content == before


def test_attempts_without_a_report_keep_what_they_had_measured(replay, make_report):
    grant = replay.claim().json()
    evaluation = {"sequence": 1, "run": 0, "kind": "evaluation", "epoch": 1.0, "samples": 1152,
                  "seconds": 0.5, "quality": 12.5}  # fmt: skip
    replay.post(grant, [{"sequence": 0, "run": 0, "kind": "run_started"}, evaluation])
    failure = Failure("infrastructure", "child_died", "x", "y")
    report = make_report(replay.seeds())
    lost = replace(report, runs=[], failure=failure)
    assert replay.post_report(grant, lost).status_code == 200
    replay.report(replay.claim().json(), report)
    first, second = predicate_in(proof_of(replay, format="dsse"))["attempts"]

    assert (first["state"], first["failure"]) == ("failed", asdict(failure))
    assert first["evaluations"] == [
        {"run": 0, "epoch": 1.0, "samples": 1152, "seconds": 0.5, "quality": 12.5}
    ]
    assert (second["state"], second["evaluations"]) == ("done", [])


def test_the_key_is_made_once_and_only_its_owner_can_read_it(client, settings):
    path = settings.artifacts_dir.parent / "signing-key.pem"
    first = client.get("/api/v1/keys").json()

    assert path.stat().st_mode & 0o777 == 0o600
    assert client.get("/api/v1/keys").json() == first
    assert path.read_bytes() not in json.dumps(first).encode()


def signed_by(ended):
    (signature,) = proof_of(ended, format="dsse").json()["signatures"]
    return signature["keyid"]


def test_an_earlier_key_stays_listed_after_a_rotation(ended, client, settings):
    earlier = signed_by(ended)
    settings.signing_key_path.unlink()
    present = signed_by(ended)

    listed = [(key["id"], key["current"]) for key in client.get("/api/v1/keys").json()["keys"]]
    assert listed == [(present, True), (earlier, False)]
    assert present != earlier


def test_a_key_that_cannot_be_used_is_kept_and_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "file" / "key.pem"):
        with pytest.raises(ServerError, match=rf"{path.name} cannot be used"):
            load_signer(path)
    path = tmp_path / "key.pem"
    for content in (b"", b"not a key", SECP256R1_PEM, LOCKED_PEM, BROKEN_PEM):
        path.write_bytes(content)
        with pytest.raises(ServerError, match=r"key\.pem cannot be used"):
            load_signer(path)
        assert path.read_bytes() == content


def test_servers_that_make_the_key_at_once_share_one(tmp_path):
    path = tmp_path / "new" / "folder" / "key.pem"
    found = at_once(*[lambda: load_signer(path).key_id] * 8)

    assert len(set(found)) == 1
    assert [item.name for item in path.parent.iterdir()] == ["key.pem"]
