"""Named ways to tamper with a proof: the check that must fail, the sound proof that it changes, and
a function that changes it. The check is None where the changed proof must still pass.

Those that sign again act as the server itself would. The others act without its key.
"""

import base64
import hashlib
import json
import struct
from copy import deepcopy
from functools import reduce
from operator import getitem

from finishline.rules.proof.proof import ENVELOPE_NAME
from tests.support.proofs import files_of, seal_again

TAMPERINGS = {}
GONE = object()
EVALUATION = "report.runs.-1.evaluations.1"


def _unsigned(proof):
    """Leave the signature as it is."""


def _signed(proof):
    proof.sign_payload(proof.payload())


def _hashed(proof):
    proof.sign()


def _sealed(proof):
    seal_again(proof.document)
    proof.sign()


def _put(document, path, value):
    """Put a value at a path of the document, or what a function makes of the value there."""
    *steps, last = (int(s) if s.lstrip("-").isdigit() else s for s in path.split("."))
    place = reduce(getitem, steps, document)
    if value is GONE:
        del place[last]
    else:
        place[last] = value(place[last]) if callable(value) else value


def _add(of, end, rows):
    """Add changes of a sound proof that was taken apart, and how each is signed at its end.

    A change is a path in the document and a value, or a function that may return the bytes.
    """
    for check, name, *changes in rows:

        def tampering(proof, changes=changes):
            content = None
            for change in changes:
                if callable(change):
                    content = change(proof)
                else:
                    _put(proof.document, *change)
            end(proof)
            return content if isinstance(content, bytes) else proof.pack()

        TAMPERINGS[name] = (check, of, tampering)


def _enveloped(**changed):
    def change(proof):
        document = json.loads(files_of(proof.pack())[ENVELOPE_NAME]) | changed
        return proof.pack(envelope=json.dumps(document).encode())

    return change


def _respelled(old, new):
    """The bundle with a payload that the server signed in another spelling."""

    def change(proof):
        payload = proof.payload()
        assert payload.count(old) == 1
        payload = payload.replace(old, new)
        proof.sign_payload(payload)
        return proof.pack(payload)

    return change


def _in_directory(offset, value, *, local=None):
    """A zip with other bytes in the first entry of its directory, and in its local header."""

    def change(proof):
        content = bytearray(proof.pack())
        (directory,) = struct.unpack_from("<I", content, len(content) - 6)
        content[directory + offset : directory + offset + len(value)] = value
        if local is not None:
            content[local : local + len(value)] = value
        return bytes(content)

    return change


def _flip_signature(proof):
    key_id, value = proof.signed
    proof.signed = (key_id, bytes([value[0] ^ 1]) + value[1:])


def _forge(proof):
    proof.sign_payload(proof.payload(), key=proof.signing_key.with_name("forger.pem"))


def _forge_by_name(proof):
    """A signature of another key under the id of the server's."""
    key_id, _ = proof.signed
    _forge(proof)
    proof.signed = (key_id, proof.signed[1])


def _name_payload_twice(proof):
    envelope = files_of(proof.pack())[ENVELOPE_NAME]
    return proof.pack(envelope=envelope[:-1] + b',"payload":"e30="}')


def _change_log(proof):
    sha256 = next(iter(proof.files))
    proof.files[sha256] = proof.files[sha256].replace(b"train", b"brain")


def _format_as(value):
    return _respelled(b'"format":2,', b'"format":' + value + b",")


_add("code", _unsigned, [
    ("bundle", "cut_off", lambda p: p.pack()[:-30]),
    ("bundle", "data_behind_the_end", lambda p: p.pack() + b"more"),
    ("bundle", "name_twice_in_the_zip", lambda p: p.pack(more=p.logs())),
    ("bundle", "strange_name_in_the_zip", lambda p: p.pack(more=[("../x", b"{}")])),
    ("bundle", "headers_that_differ", _in_directory(16, b"\1\1")),
    ("bundle", "encrypted", _in_directory(8, b"\1\0", local=6)),
    ("bundle", "size_that_is_a_lie", _in_directory(24, b"\0\1", local=22)),
    ("bundle", "name_twice_in_the_envelope", _name_payload_twice),
    ("envelope", "another_payload_type", _enveloped(payloadType="text/plain")),
    ("envelope", "payload_of_another_type", _enveloped(payload=7)),
    ("envelope", "signature_of_another_type", _enveloped(signatures=[{"keyid": "x", "sig": []}])),
    ("envelope", "no_signatures", _enveloped(signatures=[])),
    ("envelope", "another_base64",
     lambda p: _enveloped(payload=base64.b64encode(p.payload()).decode() + "\n")(p)),
    ("signature", "outcome_changed", ("verdict.outcome", None)),
    ("signature", "signature_flipped", _flip_signature),
    ("signature", "another_key_under_the_servers_id", _forge_by_name),
    ("signer", "signed_with_another_key", _forge),
    ("statement", "number_written_otherwise", _format_as(b"2.0")),
    ("statement", "spaces_in_the_payload", _format_as(b" 2")),
    ("statement", "not_a_number", _format_as(b"NaN")),
    ("statement", "whole_number_no_double_holds", _format_as(b"9007199254740993")),
    ("statement", "half_a_character", _format_as(b'"\\ud800"')),
    ("statement", "nested_too_deep", _format_as(b"[" * 120 + b"]" * 120)),
    ("statement", "name_twice_in_the_payload",
     _respelled(b'{"outcome":', b'{"outcome":"rejected","outcome":')),
    ("subjects", "log_changed", _change_log),
    ("logs", "log_of_the_claim_changed", _change_log),
    ("subjects", "log_missing", lambda p: p.files.clear()),
])  # fmt: skip
_add("code", _signed, [
    ("statement", "another_format", ("format", 3)),
    ("statement", "another_type", lambda p: p.statement.update(_type="Statement/v0.1")),
    ("statement", "subject_of_another_digest",
     lambda p: p.statement["subject"][0]["digest"].update(sha256="ab" * 32)),
    ("subjects", "subject_twice", lambda p: p.statement["subject"].extend(p.statement["subject"])),
    ("parts", "part_changed", ("code.version", "9.9")),
    ("parts", "part_without_a_hash", ("parts.report", GONE)),
    ("format", "part_missing", ("plan", GONE)),
])  # fmt: skip


def _hash_of(content):
    return hashlib.sha256(content).hexdigest()


def _other_index(proof):
    """The same index of a package in another spelling, by its hash."""
    (content,) = proof.files.values()
    content = content.replace(b",", b", ", 1)
    proof.files = {_hash_of(content): content}
    proof.document["submission"]["claim_sha256"] = _hash_of(content)


def _other_log(proof):
    """Another log, of which every hash tells. Its quality differs from the result."""
    log = proof.document["submission"]["logs"][0]
    content = proof.files.pop(log["sha256"])
    assert b"98.1" in content
    content = content.replace(b"98.1", b"98.2")
    log["sha256"] = _hash_of(content)
    proof.files[log["sha256"]] = content


def _refused_today(proof):
    """A log that the rules of today refuse. The proof repeats the scoring alone."""
    log = proof.document["submission"]["logs"][0]
    first, rest = proof.files.pop(log["sha256"]).split(b"\n", 1)
    told = json.loads(first.removeprefix(b":::MLLOG "))
    told |= {"event_type": "POINT_IN_TIME", "key": "accelerators_per_node", "value": 8}
    content = b"\n".join([first, b":::MLLOG " + json.dumps(told).encode(), rest])
    log |= {"sha256": _hash_of(content), "size_bytes": len(content)}
    proof.files[log["sha256"]] = content


def _judged_by_halves(benchmark):
    """A definition that judges by the second half, which an evaluation lacks."""
    text = benchmark["definition"].replace("[trainings]\n", "[trainings]\nhalves = true\n")
    return benchmark | {"definition": text, "sha256": _hash_of(text.encode())}


def _give_curve(proof, qualities):
    """Report and post another curve of the last run."""
    run = proof.document["report"]["runs"][-1]
    posted = [
        each
        for each in proof.document["attempts"][-1]["posted"]
        if each["run"] == run["index"] and each["quality"] is not None
    ]
    for table in (run["evaluations"], posted):
        for each, quality in zip(table, qualities, strict=True):
            each["quality"] = quality


def _repeat_curve(proof):
    first = proof.document["report"]["runs"][0]["evaluations"]
    _give_curve(proof, [each["quality"] for each in first])


def _claimed_curve(proof):
    _give_curve(proof, [row[2] for row in proof.document["submission"]["curves"][-1]])


def _earlier_attempt(state, kind):
    """An attempt with this end, before the one that counted."""
    told = {"kind": kind, "code": "child_died", "message": "it ended", "next_step": "look"}
    end = {"state": state, "failure": told if kind else None}
    return ("attempts", lambda all_: [deepcopy(all_[0]) | end, all_[0] | {"number": 2}, *all_[1:]])


def _told_of_workers(weight):
    reason = {"code": "no_second_worker", "weight": weight, "message": "-", "numbers": {}}
    return ("verdict.reasons", lambda reasons: [*reasons, reason])


def _turn(runs):
    """Change the times of the two sides of a pair."""
    first, second = runs[:2]
    times = first["tta_seconds"], second["tta_seconds"]
    second["tta_seconds"], first["tta_seconds"] = times
    return runs


def _raise_number(reasons):
    numbers = next(each["numbers"] for each in reasons if each["code"] == "convergence_agrees")
    numbers["claimed_mean_epochs"] += 1.0
    return reasons


def _with_fresh_runs(draw):
    """Something sealed that no rule knows."""
    return draw | {"beside": draw["beside"] | {"fresh_runs": len(draw["seeds"])}}


_MADE_UP = {"code": "division_contradicts_claim", "message": "made up"}
_RAISED = {"verdict": "pass", "message": "", "factor": 1.25, "mean": 9.0}
_WAIVER = {"rule": "copied_log", "reason": "no matter", "by": "olivia"}
_CHOSEN = ("draw.seeds.-1", lambda seed: seed ^ 1), ("report.runs.-1.seed", lambda seed: seed ^ 1)
_CANCELLED = ("verification.state", "cancelled"), ("report", None)
# No number in a stranger's file is a number of seeds to draw.
_BILLION = ("draw.beside.fresh_runs", 10**9), ("draw.runs", 10**9)

_add("code", _hashed, [
    ("package", "index_spelled_otherwise", _other_index),
    ("format", "part_added", ("note", "more")),
    ("logs", "claim_of_another_hash", ("submission.claim_sha256", "ab" * 32)),
    ("runs", "second_half_left_out",
     ("benchmark", _judged_by_halves), (f"{EVALUATION}.second_half", None)),
    ("seal", "billion_fresh_runs", *_BILLION),
    ("times", "changed_time_of_code", (f"{EVALUATION}.seconds", 0.001)),
    ("verdict", "other_outcome_of_code", ("verdict.outcome", "rejected")),
])  # fmt: skip
_add("code", _sealed, [
    ("seeds", "sealed_beside_the_draw", ("draw", _with_fresh_runs)),
    ("seeds", "chosen_seed_of_code", *_CHOSEN),
])  # fmt: skip
_add("verified", _hashed, [
    ("score", "log_swapped_with_its_hash", _other_log),
    (None, "log_that_is_refused_today", _refused_today),
    ("definition", "looser_definition",
     ("benchmark.definition", lambda text: text.replace("97.5", "90.0"))),
    ("seal", "other_seed", ("draw.seeds", lambda seeds: seeds[::-1])),
    ("seal", "other_nonce", ("draw.nonce", "00" * 32)),
    ("seal", "more_runs_drawn", ("draw.runs", 10**9)),
    ("band", "wider_band", ("plan.control_points.1.lower", 0.0)),
    ("band", "no_band_at_the_end", ("plan.control_points.-1", GONE)),
    ("runs", "run_left_out", ("report.runs.-1", GONE)),
    ("times", "changed_time", (f"{EVALUATION}.seconds", 0.001)),
    ("posted", "changed_quality", (f"{EVALUATION}.quality", 50.0)),
    ("curves", "one_run_twice", _repeat_curve),
    ("curves", "curve_of_the_claim", _claimed_curve),
    ("attempts", "dropped_attempt", ("attempts.0.number", 2)),
    ("attempts", "replay_thrown_away", _earlier_attempt("cancelled", None)),
    ("attempts", "own_failure", _earlier_attempt("failed", "submitter")),
    ("verdict", "other_outcome", ("verdict.outcome", "inconclusive")),
    ("verdict", "other_reason", ("verdict.reasons.-1", GONE)),
    ("verdict", "other_number", ("verdict.reasons", _raise_number)),
    ("verdict", "open_and_verified", _told_of_workers("leaves_open")),
    ("score", "better_result", ("submission.result.tta_seconds", 0.1)),
    ("score", "better_run", ("submission.runs.0.tta_seconds", 0.1)),
    ("score", "made_up_violation", ("submission.result.violations", [_MADE_UP])),
    ("score", "raised_convergence", ("submission.result.rcp", _RAISED)),
    ("score", "claimed_run_left_out", ("submission.runs.-1", GONE)),
    ("score", "another_division", ("submission.division", "open")),
    ("score", "waiver_of_a_copy", ("submission.waivers", [_WAIVER])),
    ("score", "other_precision", ("submission.claim.precision", "fp32")),
    ("format", "waivers_of_another_type", ("submission.waivers", 7)),
    ("logs", "log_of_another_size", ("submission.logs.0.size_bytes", 9)),
    (None, "result_of_earlier_rules",
     ("submission.result.raw_tta_seconds", GONE), ("submission.result.rcp", GONE)),
    ("format", "claim_without_code", ("submission.claim.trained_with", GONE)),
    (None, "note_of_a_worker", _told_of_workers("note")),
    (None, "no_second_worker",
     _told_of_workers("leaves_open"), ("verdict.outcome", "inconclusive")),
    (None, "tried_again", _earlier_attempt("lost", "infrastructure")),
    (None, "other_commit", ("code.commit", "f" * 40)),
    (None, "other_reason_given", ("verification.reason", "none")),
])  # fmt: skip
_add("verified", _sealed, [
    ("seeds", "chosen_seed", *_CHOSEN),
    ("calibration", "another_calibration", ("draw.beside.calibration", "another")),
    ("seeds", "drawn_by_no_nonce", ("draw.nonce", "cd" * 32)),
])  # fmt: skip
_add("own-code", _hashed, [
    ("verdict", "reference", ("submission.claim.trained_with", "reference")),
])  # fmt: skip
_add("head-to-head", _hashed, [
    ("seeds", "other_holder", ("submission.against.id", "another")),
    ("seeds", "holder_without_a_package", ("submission.against.claim.trained_with", "reference")),
    ("verdict", "cancelled_after_the_verdict", *_CANCELLED),
    (None, "cancelled_pair", *_CANCELLED, ("verdict.outcome", None), ("verdict.reasons", [])),
    ("times", "turned_pair", ("report.runs", _turn)),
    ("verdict", "without_earlier_pairs", ("plan.contest.earlier", [])),
    ("verdict", "higher_threshold", ("plan.contest.threshold", 0.05)),
    ("verdict", "other_winner", ("verdict.outcome", "challenger_faster")),
])  # fmt: skip
_add("head-to-head", _sealed, [
    ("seeds", "other_settings", ("draw.beside.hyperparameters.1", {"batch_size": 64})),
])  # fmt: skip
