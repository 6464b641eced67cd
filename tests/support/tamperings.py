"""Named ways to tamper with a proof: the check that must fail, the sound proof that it changes, and
a function that changes it. The check is None where the changed proof must still pass.

Those that sign again act as the server itself would. The others act without its key.
"""

import base64
import hashlib
import json
import struct
from copy import deepcopy

from finishline.rules.proof.envelope import ENVELOPE_NAME
from tests.support.proofs import files_of, seal_again

TAMPERINGS = {}


def _add(of, rows, *, sign=lambda proof: None):
    """Add tamperings of a sound proof that was taken apart. Each changes it or returns bytes."""
    for check, name, change in rows:

        def tampering(proof, change=change):
            content = change(proof)
            sign(proof)
            return content if isinstance(content, bytes) else proof.pack()

        TAMPERINGS[name] = (check, of, tampering)


def _enveloped(proof, **changed):
    """The bundle with other fields in its envelope."""
    document = json.loads(files_of(proof.pack())[ENVELOPE_NAME]) | changed
    return proof.pack(envelope=json.dumps(document).encode())


def _respelled(proof, old, new):
    """The bundle with a payload that the server signed in another spelling."""
    payload = proof.payload()
    assert payload.count(old) == 1
    payload = payload.replace(old, new)
    proof.sign_payload(payload)
    return proof.pack(payload)


def _in_directory(proof, offset, value, *, local=None):
    """A zip with other bytes in the first entry of its directory, and in its local header."""
    content = bytearray(proof.pack())
    (directory,) = struct.unpack_from("<I", content, len(content) - 6)
    content[directory + offset : directory + offset + len(value)] = value
    if local is not None:
        content[local : local + len(value)] = value
    return bytes(content)


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
    return lambda proof: _respelled(proof, b'"format":2,', b'"format":' + value + b",")


_OUTCOME_TWICE = b'{"outcome":"rejected","outcome":'
_TOO_DEEP = b"[" * 120 + b"]" * 120
_add(
    "code",
    [
        ("bundle", "cut_off", lambda p: p.pack()[:-30]),
        ("bundle", "data_behind_the_end", lambda p: p.pack() + b"more"),
        ("bundle", "name_twice_in_the_zip", lambda p: p.pack(more=p.logs())),
        ("bundle", "strange_name_in_the_zip", lambda p: p.pack(more=[("../x", b"{}")])),
        ("bundle", "headers_that_differ", lambda p: _in_directory(p, 16, b"\1\1")),
        ("bundle", "encrypted", lambda p: _in_directory(p, 8, b"\1\0", local=6)),
        ("bundle", "size_that_is_a_lie", lambda p: _in_directory(p, 24, b"\0\1", local=22)),
        ("bundle", "name_twice_in_the_envelope", _name_payload_twice),
        ("envelope", "another_payload_type", lambda p: _enveloped(p, payloadType="text/plain")),
        ("envelope", "payload_of_another_type", lambda p: _enveloped(p, payload=7)),
        ("envelope", "signature_of_another_type",
         lambda p: _enveloped(p, signatures=[{"keyid": "x", "sig": []}])),
        ("envelope", "no_signatures", lambda p: _enveloped(p, signatures=[])),
        ("envelope", "another_base64",
         lambda p: _enveloped(p, payload=base64.b64encode(p.payload()).decode() + "\n")),
        ("signature", "outcome_changed", lambda p: p.document["verdict"].update(outcome=None)),
        ("signature", "signature_flipped", _flip_signature),
        ("signature", "another_key_under_the_servers_id", _forge_by_name),
        ("signer", "signed_with_another_key", _forge),
        ("statement", "number_written_otherwise", _format_as(b"2.0")),
        ("statement", "spaces_in_the_payload", _format_as(b" 2")),
        ("statement", "not_a_number", _format_as(b"NaN")),
        ("statement", "whole_number_no_double_holds", _format_as(b"9007199254740993")),
        ("statement", "half_a_character", _format_as(b'"\\ud800"')),
        ("statement", "nested_too_deep", _format_as(_TOO_DEEP)),
        ("statement", "name_twice_in_the_payload",
         lambda p: _respelled(p, b'{"outcome":', _OUTCOME_TWICE)),
        ("subjects", "log_changed", _change_log),
        ("logs", "log_of_the_claim_changed", _change_log),
        ("subjects", "log_missing", lambda p: p.files.clear()),
    ],
)  # fmt: skip


def _other_digest(proof):
    proof.statement["subject"][0]["digest"]["sha256"] = "ab" * 32


_add(
    "code",
    [
        ("statement", "another_format", lambda p: p.document.update(format=3)),
        ("statement", "another_type", lambda p: p.statement.update(_type="Statement/v0.1")),
        ("statement", "subject_of_another_digest", _other_digest),
        ("subjects", "subject_twice", lambda p: p.statement["subject"].extend(
            p.statement["subject"])),
        ("parts", "part_changed", lambda p: p.document["code"].update(version="9.9")),
        ("parts", "part_without_a_hash", lambda p: p.document["parts"].pop("report")),
        ("format", "part_missing", lambda p: p.document.pop("plan")),
    ],
    sign=lambda proof: proof.sign_payload(proof.payload()),
)  # fmt: skip


def _other_index(proof):
    """The same index of a package in another spelling, by its hash."""
    (content,) = proof.files.values()
    content = content.replace(b",", b", ", 1)
    sha256 = hashlib.sha256(content).hexdigest()
    proof.files = {sha256: content}
    proof.document["submission"]["claim_sha256"] = sha256


def _other_log(proof):
    """Another log, of which every hash tells. Its quality differs from the result."""
    log = proof.document["submission"]["logs"][0]
    content = proof.files.pop(log["sha256"])
    assert b"98.1" in content
    content = content.replace(b"98.1", b"98.2")
    log["sha256"] = hashlib.sha256(content).hexdigest()
    proof.files[log["sha256"]] = content


def _refused_today(proof):
    """A log that the rules of today refuse. The proof repeats the scoring alone."""
    log = proof.document["submission"]["logs"][0]
    first, rest = proof.files.pop(log["sha256"]).split(b"\n", 1)
    told = json.loads(first.removeprefix(b":::MLLOG "))
    told |= {"event_type": "POINT_IN_TIME", "key": "accelerators_per_node", "value": 8}
    content = b"\n".join([first, b":::MLLOG " + json.dumps(told).encode(), rest])
    log |= {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    proof.files[log["sha256"]] = content


def _of_the_server(of, rows):
    """Add changes of the document that the server itself hashes and signs."""
    changes = [(check, name, lambda p, do=do: do(p.document)) for check, name, do in rows]
    _add(of, changes, sign=lambda proof: proof.sign())


def _loosen(document):
    text = document["benchmark"]["definition"]
    document["benchmark"]["definition"] = text.replace("97.5", "90.0")


def _choose_seed(document):
    """A seed that the server chose and sealed."""
    document["draw"]["seeds"][-1] ^= 1
    document["report"]["runs"][-1]["seed"] ^= 1
    seal_again(document)


def _name_calibration(document):
    document["draw"]["beside"]["calibration"] = "another"
    seal_again(document)


def _draw_by_no_nonce(document):
    """Sealed seeds that the nonce does not draw."""
    document["draw"]["nonce"] = "cd" * 32
    seal_again(document)


def _leave_half_out(document):
    """A definition that judges by the second half, which an evaluation lacks."""
    text = document["benchmark"]["definition"]
    text = text.replace("[trainings]\n", "[trainings]\nhalves = true\n")
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    document["benchmark"] |= {"definition": text, "sha256": sha256}
    _evaluation(document)["second_half"] = None


def _fresh_runs(document):
    """Something sealed that no rule knows."""
    document["draw"]["beside"]["fresh_runs"] = len(document["draw"]["seeds"])
    seal_again(document)


def _billion_runs(document):
    """No number in a stranger's file is a number of seeds to draw."""
    document["draw"]["beside"]["fresh_runs"] = document["draw"]["runs"] = 10**9


def _cancel(document, *, verdict):
    document["verification"]["state"], document["report"] = "cancelled", None
    document["verdict"] |= verdict


def _without_package(document):
    document["submission"]["against"]["claim"]["trained_with"] = "reference"


def _other_settings(document):
    document["draw"]["beside"]["hyperparameters"][1] = {"batch_size": 64}
    seal_again(document)


def _evaluation(document):
    return document["report"]["runs"][-1]["evaluations"][1]


def _give_curve(document, qualities):
    """Report and post another curve of the last run."""
    run = document["report"]["runs"][-1]
    posted = [
        each
        for each in document["attempts"][-1]["posted"]
        if each["run"] == run["index"] and each["quality"] is not None
    ]
    for table in (run["evaluations"], posted):
        for each, quality in zip(table, qualities, strict=True):
            each["quality"] = quality


def _repeat_curve(document):
    first = document["report"]["runs"][0]["evaluations"]
    _give_curve(document, [each["quality"] for each in first])


def _claimed_curve(document):
    _give_curve(document, [row[2] for row in document["submission"]["curves"][-1]])


def _try_again(document, *, state, kind):
    """An attempt with this end, before the one that counted."""
    told = {"kind": kind, "code": "child_died", "message": "it ended", "next_step": "look"}
    first = deepcopy(document["attempts"][0]) | {"state": state, "failure": told if kind else None}
    document["attempts"][0]["number"] = 2
    document["attempts"].insert(0, first)


def _tell_of_workers(document, weight="leaves_open", **verdict):
    reason = {"code": "no_second_worker", "weight": weight, "message": "-", "numbers": {}}
    document["verdict"]["reasons"].append(reason)
    document["verdict"] |= verdict


def _turn(document):
    """Change the times of the two sides of a pair."""
    first, second = document["report"]["runs"][:2]
    times = first["tta_seconds"], second["tta_seconds"]
    second["tta_seconds"], first["tta_seconds"] = times


_MADE_UP = {"code": "division_contradicts_claim", "message": "made up"}
_RAISED = {"verdict": "pass", "message": "", "factor": 1.25, "mean": 9.0}
_WAIVER = {"rule": "copied_log", "reason": "no matter", "by": "olivia"}


def _result(document, **changes):
    document["submission"]["result"].update(changes)


def _raise_number(document):
    reasons = document["verdict"]["reasons"]
    numbers = next(each["numbers"] for each in reasons if each["code"] == "convergence_agrees")
    numbers["claimed_mean_epochs"] += 1.0


_add("code", [("package", "index_spelled_otherwise", _other_index)], sign=lambda p: p.sign())
_add(
    "verified",
    [
        ("score", "log_swapped_with_its_hash", _other_log),
        (None, "log_that_is_refused_today", _refused_today),
    ],
    sign=lambda p: p.sign(),
)
_of_the_server(
    "verified",
    [
        ("definition", "looser_definition", _loosen),
        ("seal", "other_seed", lambda d: d["draw"].update(seeds=d["draw"]["seeds"][::-1])),
        ("seal", "other_nonce", lambda d: d["draw"].update(nonce="00" * 32)),
        ("seal", "more_runs_drawn", lambda d: d["draw"].update(runs=10**9)),
        ("seeds", "chosen_seed", _choose_seed),
        ("calibration", "another_calibration", _name_calibration),
        ("band", "wider_band", lambda d: d["plan"]["control_points"][1].update(lower=0.0)),
        ("band", "no_band_at_the_end", lambda d: d["plan"]["control_points"].pop()),
        ("runs", "run_left_out", lambda d: d["report"]["runs"].pop()),
        ("times", "changed_time", lambda d: _evaluation(d).update(seconds=0.001)),
        ("posted", "changed_quality", lambda d: _evaluation(d).update(quality=50.0)),
        ("curves", "one_run_twice", _repeat_curve),
        ("curves", "curve_of_the_claim", _claimed_curve),
        ("attempts", "dropped_attempt", lambda d: d["attempts"][0].update(number=2)),
        ("attempts", "replay_thrown_away", lambda d: _try_again(d, state="cancelled", kind=None)),
        ("attempts", "own_failure", lambda d: _try_again(d, state="failed", kind="submitter")),
        ("verdict", "other_outcome", lambda d: d["verdict"].update(outcome="inconclusive")),
        ("verdict", "other_reason", lambda d: d["verdict"]["reasons"].pop()),
        ("verdict", "other_number", _raise_number),
        ("verdict", "open_and_verified", _tell_of_workers),
        ("score", "better_result", lambda d: _result(d, tta_seconds=0.1)),
        ("score", "better_run", lambda d: d["submission"]["runs"][0].update(tta_seconds=0.1)),
        ("score", "made_up_violation", lambda d: _result(d, violations=[_MADE_UP])),
        ("score", "raised_convergence", lambda d: _result(d, rcp=_RAISED)),
        ("score", "claimed_run_left_out", lambda d: d["submission"]["runs"].pop()),
        ("score", "another_division", lambda d: d["submission"].update(division="open")),
        ("score", "waiver_of_a_copy", lambda d: d["submission"].update(waivers=[_WAIVER])),
        ("score", "other_precision", lambda d: d["submission"]["claim"].update(precision="fp32")),
        ("seeds", "drawn_by_no_nonce", _draw_by_no_nonce),
        ("format", "waivers_of_another_type", lambda d: d["submission"].update(waivers=7)),
        ("logs", "log_of_another_size", lambda d: d["submission"]["logs"][0].update(size_bytes=9)),
    ],
)
_of_the_server(
    "verified",
    [
        (
            None,
            "result_of_earlier_rules",
            lambda d: [d["submission"]["result"].pop(name) for name in ("raw_tta_seconds", "rcp")],
        ),
        (
            "format",
            "claim_without_code",
            lambda d: d["submission"]["claim"].pop("trained_with"),
        ),
        (None, "note_of_a_worker", lambda d: _tell_of_workers(d, "note")),
        (None, "no_second_worker", lambda d: _tell_of_workers(d, outcome="inconclusive")),
        (None, "tried_again", lambda d: _try_again(d, state="lost", kind="infrastructure")),
        (None, "other_commit", lambda d: d["code"].update(commit="f" * 40)),
        (None, "other_reason_given", lambda d: d["verification"].update(reason="none")),
    ],
)
_of_the_server(
    "own-code",
    [("verdict", "reference", lambda d: d["submission"]["claim"].update(trained_with="reference"))],
)
_of_the_server(
    "code",
    [
        ("format", "part_added", lambda d: d.update(note="more")),
        ("logs", "claim_of_another_hash", lambda d: d["submission"].update(claim_sha256="ab" * 32)),
        ("runs", "second_half_left_out", _leave_half_out),
        ("seeds", "sealed_beside_the_draw", _fresh_runs),
        ("seal", "billion_fresh_runs", _billion_runs),
        ("seeds", "chosen_seed_of_code", _choose_seed),
        ("times", "changed_time_of_code", lambda d: _evaluation(d).update(seconds=0.001)),
        ("verdict", "other_outcome_of_code", lambda d: d["verdict"].update(outcome="rejected")),
    ],
)
_of_the_server(
    "head-to-head",
    [
        ("seeds", "other_holder", lambda d: d["submission"]["against"].update(id="another")),
        ("seeds", "other_settings", _other_settings),
        ("seeds", "holder_without_a_package", _without_package),
        ("verdict", "cancelled_after_the_verdict", lambda d: _cancel(d, verdict={})),
        (None, "cancelled_pair", lambda d: _cancel(d, verdict={"outcome": None, "reasons": []})),
        ("times", "turned_pair", _turn),
        ("verdict", "other_winner", lambda d: d["verdict"].update(outcome="holder_faster")),
    ],
)
