"""`finishline check-proof` on real bundles: honest ones pass, each part that is changed is named.

A change is tried twice: by somebody who cannot sign, and by the server itself, which hashes and
signs whatever it likes. The second kind is caught by what the rules derive again.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from finishline.cli.bundles import check_bundle
from finishline.cli.main import main
from finishline.rules.errors import RuleError
from finishline.rules.logs.mllog_write import mllog_line
from finishline.rules.proof.check import check_proof
from finishline.rules.proof.envelope import PAYLOAD_TYPE
from finishline.rules.submissions.submission import score_submission
from finishline.rules.verification.job import Draw, seal
from server.base.models import Evidence, Verification
from server.base.signing import load_signer
from tests.support.proofs import TakenApart, take_apart, zip_of

INTERVAL = ("tta_low_seconds", "tta_high_seconds")


@dataclass
class Bundle:
    """A proof and its files, to be changed and audited."""

    proof: TakenApart
    key: Path
    folder: Path
    capsys: Any = field(repr=False)

    @property
    def document(self):
        return self.proof.document

    @property
    def files(self):
        return self.proof.files

    def sign(self):
        """Hash and sign what is in the document, as only the server can."""
        self.proof.sign()

    def audit(self, *more, name="proof.zip"):
        """The exit code, and the result of each check."""
        path = self.folder / name
        is_zip = name.endswith(".zip")
        path.write_bytes(zip_of(*self.proof.entries()) if is_zip else self.proof.proof()[1])
        code = main(["check-proof", str(path), "--json", *(more or ("--key", str(self.key)))])
        view = json.loads(self.capsys.readouterr().out)
        assert view["passed"] == (code == 0)
        self.checks = {check["name"]: check for check in view["checks"]}
        return code, {name: check["result"] for name, check in self.checks.items()}

    def failed(self):
        """The names of the checks that fail, without the subjects, which are the logs too."""
        code, results = self.audit()
        found = {name for name, result in results.items() if result == "fail"}
        assert code == (1 if found else 0)
        return found - {"subjects"} if "logs" in found else found


@pytest.fixture
def ended(replay, make_report):
    """An honest verification that has ended."""
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    return replay


@pytest.fixture(scope="module")
def honest():
    """The bundle of an honest verification: the first test makes it for all."""
    return []


@pytest.fixture
def bundle(request, honest, tmp_path, capsys):
    """The bundle of an honest verification, and the server's public key in a file."""
    if not honest:
        ended, settings = (request.getfixturevalue(name) for name in ("ended", "settings"))
        (kept := tmp_path / "kept").mkdir()
        honest.append(fetch(ended, settings, kept, capsys))
    key = Path(shutil.copy(honest[0].key, tmp_path))
    return Bundle(deepcopy(honest[0].proof), key, tmp_path, capsys)


def fetch(replay, settings, folder, capsys):
    key = folder / "keys.json"
    proof = take_apart(replay.client, replay.verification_id, signing_key=settings.signing_key_path)
    key.write_bytes(replay.client.get("/api/v1/keys").content)
    return Bundle(proof, key, folder, capsys)


CHECKS = (
    "bundle", "envelope", "signature", "signer", "statement", "subjects", "format", "parts",
    "definition", "logs", "score", "seal", "seeds", "calibration", "band", "runs", "times",
    "posted", "curves", "attempts", "verdict",
)  # fmt: skip


def test_an_honest_bundle_passes_every_check(bundle):
    code, results = bundle.audit()

    assert code == 0, bundle.checks
    assert results == dict.fromkeys(CHECKS, "pass")
    page = (Path(__file__).parents[2] / "docs" / "verifying.md").read_text()
    rows = re.findall(r"^\| `?([a-z]+)`? \|", page, re.MULTILINE)
    parts = rows.index("part")
    assert rows[1:parts] == list(CHECKS), "the page lists every check, in order"
    named = set(rows[parts + 1 :])
    assert set(bundle.document) == named | {"format"}, "the page lists every part"


def test_without_the_logs_what_needs_them_is_open(bundle):
    code, results = bundle.audit(name="proof.dsse.json")

    assert code == 0
    needed = {"logs", "score", "subjects"} & set(results)
    assert {name for name, result in results.items() if result == "open"} == needed
    assert "not in this file" in bundle.checks["logs"]["why"]


def test_a_key_in_hex_will_do_and_another_one_will_not(bundle):
    public = load_signer(bundle.proof.signing_key).public_key
    bundle.key.write_text(public + "\n")
    assert bundle.failed() == set()
    listed = json.dumps({"keys": [{"public_key": "ab" * 32}, {"public_key": public}]})
    bundle.key.write_text(f"\n{listed}")
    assert bundle.failed() == set()
    bundle.key.write_text("ab" * 32)
    assert bundle.failed() == {"signer", "signature"}


def test_forgery_fails_its_signer(bundle, tmp_path):
    bundle.proof.signing_key = tmp_path / "forger.pem"
    bundle.document["verdict"]["outcome"] = "rejected"
    bundle.sign()

    assert bundle.failed() == {"signature", "signer", "verdict"}
    bundle.audit("--json")
    assert "pass the server's public key with --key" in bundle.checks["signer"]["why"]


Change = Callable[[dict[str, Any]], None]


def last_run(document):
    return document["report"]["runs"][-1]


def hurry(document):
    last_run(document)["evaluations"][3]["seconds"] -= 0.01


def below(document):
    """Replays that left the band, under the verdict of those that did not."""
    for run in document["report"]["runs"]:
        run["evaluations"][2]["quality"] = 10.0


def never_reached(document):
    last_run(document)["evaluations"][-1]["quality"] = 10.0


def with_qualities(run, qualities):
    for item, quality in zip(run["evaluations"], qualities, strict=True):
        item["quality"] = quality


def one_run_twice(document):
    first = document["report"]["runs"][0]
    with_qualities(last_run(document), [item["quality"] for item in first["evaluations"]])


def curve_of_the_claim(document):
    with_qualities(last_run(document), [row[2] for row in document["submission"]["curves"][0]])


def reached_before(document):
    last_run(document)["evaluations"][-2]["quality"] = 98.5


def drop_a_run(document):
    document["report"]["runs"].pop()


def another_seed(document):
    document["draw"]["seeds"][0] ^= 1
    document["report"]["runs"][0]["seed"] ^= 1


def another_nonce(document):
    document["draw"]["nonce"] = "00" * 32


def looser_definition(document):
    text = document["benchmark"]["definition"]
    document["benchmark"]["definition"] = text.replace("97.5", "90.0")
    assert document["benchmark"]["definition"] != text


def wider_band(document):
    document["plan"]["control_points"][1]["lower"] -= 5.0


def no_band_at_the_end(document):
    document["plan"]["control_points"].pop()


def other_outcome(document):
    document["verdict"]["outcome"] = "inconclusive"


def other_reason(document):
    document["verdict"]["reasons"].pop()


def other_number(document):
    reason = next(r for r in document["verdict"]["reasons"] if r["code"] == "convergence_agrees")
    reason["numbers"]["claimed_mean_epochs"] += 1.0


def numbers_of_earlier_rules(document):
    """A claim from before it named its code, whose verdict had other numbers."""
    document["submission"]["claim"]["trained_with"] = None
    other_number(document)


def left_open_by_workers(document):
    reason = {"code": "no_second_worker", "weight": "leaves_open", "message": "-", "numbers": {}}
    document["verdict"]["reasons"].append(reason)


def open_for_want_of_a_worker(document):
    left_open_by_workers(document)
    document["verdict"]["outcome"] = "inconclusive"


def noted_of_a_worker(document):
    left_open_by_workers(document)
    document["verdict"]["reasons"][-1]["weight"] = "note"


def better_result(document):
    document["submission"]["result"]["tta_seconds"] *= 0.9


def better_run(document):
    document["submission"]["runs"][0]["tta_seconds"] *= 0.99


def other_system(document):
    document["submission"]["claim"]["system"]["memory_gib"] = 1.0


def other_precision(document):
    """A precision that the claim never stated, which the verdict is judged by."""
    assert document["submission"]["claim"]["precision"] is None
    document["submission"]["claim"]["precision"] = "fp32"


def other_log_hash(document):
    document["submission"]["logs"][0]["sha256"] = "00" * 32


def lost_ledger(document):
    last_run(document)["ledger"] = {"train": 0.1}


def strange_phase(document):
    last_run(document)["ledger"] = {"lunch": 0.1}


def hidden_attempt(document):
    document["attempts"][0]["number"] = 2


def replay_thrown_away(document):
    """A first attempt that was cancelled and done over: how a bad replay could be got rid of."""
    first = deepcopy(document["attempts"][0])
    document["attempts"][0]["number"] = 2
    document["attempts"].insert(0, first | {"state": "cancelled"})


def tried_again_after(document, *, state, kind):
    told = {"kind": kind, "code": "child_died", "message": "it ended", "next_step": "look"}
    first = deepcopy(document["attempts"][0]) | {"state": state, "failure": told}
    document["attempts"][0]["number"] = 2
    document["attempts"].insert(0, first)


def tried_again_after_a_loss(document):
    tried_again_after(document, state="lost", kind="infrastructure")


def tried_again_after_its_own_failure(document):
    tried_again_after(document, state="failed", kind="submitter")


def more_runs_drawn(document):
    document["draw"]["runs"] += 1


def another_calibration(document):
    document["draw"]["beside"] = {"calibration": "another"}


def other_commit(document):
    document["code"]["commit"] = "f" * 40


def other_reason_given(document):
    document["verification"]["reason"] = "none"


# What was changed, the part it is in, and which checks a dishonest server could not make pass.
CHANGES: list[tuple[Change, str, set[str]]] = [
    (hurry, "report", {"times"}),
    (below, "report", {"verdict"}),
    (never_reached, "report", {"times", "verdict"}),
    (one_run_twice, "report", {"posted", "curves"}),
    (curve_of_the_claim, "report", {"posted", "curves"}),
    (reached_before, "report", {"posted", "times"}),
    (drop_a_run, "report", {"runs", "verdict"}),
    (another_seed, "draw", {"seal", "seeds"}),
    (another_nonce, "draw", {"seal", "seeds"}),
    (looser_definition, "benchmark", {"definition"}),
    (wider_band, "plan", {"band"}),
    (no_band_at_the_end, "plan", {"band"}),
    (other_outcome, "verdict", {"verdict"}),
    (other_reason, "verdict", {"verdict"}),
    (other_number, "verdict", {"verdict"}),
    (numbers_of_earlier_rules, "verdict", set()),
    (left_open_by_workers, "verdict", {"verdict"}),
    (open_for_want_of_a_worker, "verdict", set()),
    (noted_of_a_worker, "verdict", set()),
    (better_result, "submission", {"score"}),
    (better_run, "submission", {"score"}),
    (other_system, "submission", {"score"}),
    (other_precision, "submission", {"score"}),
    (other_log_hash, "submission", {"logs", "score"}),
    (lost_ledger, "report", {"times"}),
    (strange_phase, "report", {"times"}),
    (hidden_attempt, "attempts", {"attempts"}),
    (replay_thrown_away, "attempts", {"attempts"}),
    (tried_again_after_a_loss, "attempts", set()),
    (tried_again_after_its_own_failure, "attempts", {"attempts"}),
    (more_runs_drawn, "draw", {"seal", "seeds"}),
    (another_calibration, "draw", {"seal", "calibration"}),
    (other_commit, "code", set()),
    (other_reason_given, "verification", set()),
]


@pytest.mark.parametrize(("change", "part", "caught"), CHANGES)
def test_a_changed_part_is_named(bundle, change, part, caught):
    change(bundle.document)

    failed = bundle.failed()
    assert {"signature", "parts"} <= failed
    assert caught <= failed
    assert part in bundle.checks["parts"]["why"].split(": ", 1)[1].split("; ")[0].split(", ")
    bundle.sign()
    assert bundle.failed() >= caught
    assert not bundle.failed() & {"signature", "signer", "parts"}
    assert bool(bundle.failed()) == bool(caught)


def no_definition(document):
    document["benchmark"]["definition"] = "no TOML ["


def definition_of_another(document):
    document["benchmark"]["id"] = "cifar10"


@pytest.mark.parametrize("change", [looser_definition, no_definition, definition_of_another])
def test_by_another_definition_nothing_more_is_judged(bundle, change):
    change(bundle.document)
    bundle.sign()

    assert bundle.failed() == {"definition"}
    assert list(bundle.checks)[-1] == "definition"


def test_flipped_signature_fails_alone(bundle):
    key_id, value = bundle.proof.signed
    bundle.proof.signed = (key_id, bytes([value[0] ^ 1]) + value[1:])

    assert bundle.failed() == {"signature"}


@pytest.mark.parametrize(
    "change", [{"payload": 7}, {"payload": None}, {"signatures": [{"keyid": "x", "sig": []}]}]
)
def test_an_envelope_of_other_types_fails(change):
    signed = [{"keyid": "x", "sig": "AA=="}]
    envelope = {"payloadType": PAYLOAD_TYPE, "payload": "e30=", "signatures": signed}
    whole, changed = (
        check_bundle(json.dumps(each).encode(), [bytes(32)]).failed
        for each in (envelope, envelope | change)
    )

    assert ("envelope" in whole, changed) == (False, ["envelope"])


def nested(document):
    """The submission of a document as its own holder's, and again: deeper than Python calls."""
    found = dict(document["submission"])
    for _ in range(300):
        found = document["submission"] | {"against": found}
    return found


@pytest.mark.parametrize("change", [nested, lambda document: {"waivers": 7}])
def test_a_document_that_no_server_writes_fails_its_format(bundle, change):
    bundle.document["submission"] |= change(bundle.document)

    (check,) = check_proof(bundle.document, bundle.files)
    assert (check.name, check.result) == ("format", "fail")


def test_later_format_fails_its_statement(bundle):
    bundle.document["format"] = 3
    bundle.sign()

    assert bundle.failed() == {"statement"}


def test_a_flipped_byte_of_a_log_is_named(bundle):
    log = bundle.document["submission"]["logs"][1]
    content = bytearray(bundle.files[log["sha256"]])
    content[-2] ^= 1
    bundle.files[log["sha256"]] = bytes(content)

    assert "logs" in bundle.failed()
    assert log["file"] in bundle.checks["logs"]["why"]


def test_logs_that_were_swapped_with_their_hashes_do_not_come_to_the_result(bundle):
    """A server that rewrites a log and everything about it still has to change the result."""
    log = bundle.document["submission"]["logs"][0]
    content = bundle.files.pop(log["sha256"]).replace(b"1790000000", b"1790000001", 1)
    log["sha256"] = hashlib.sha256(content).hexdigest()
    bundle.files[log["sha256"]] = content.replace(b"98.1", b"97.9")
    log["sha256"], bundle.proof.files = rehash(log["sha256"], bundle.files)
    log["size_bytes"] = len(bundle.files[log["sha256"]])
    bundle.sign()

    assert bundle.failed() == {"score"}


def test_a_log_that_todays_door_would_refuse_is_scored_as_it_was(bundle, digits):
    """A claim was accepted by the checks of its day, and its proof repeats the scoring alone."""
    submission = bundle.document["submission"]
    log = submission["logs"][0]
    first, rest = bundle.files[log["sha256"]].split(b"\n", 1)
    stamp = int(first.split(b'"time_ms":')[1].split(b",")[0])
    told = mllog_line("accelerators_per_node", 8, time_ms=stamp)
    content = first + b"\n" + told + rest
    del bundle.files[log["sha256"]]
    log["sha256"] = hashlib.sha256(content).hexdigest()
    bundle.files[log["sha256"]] = content

    claim = bundle.files[submission["claim_sha256"]]
    logs = {each["file"]: bundle.files[each["sha256"]] for each in submission["logs"]}
    with pytest.raises(RuleError, match="8 accelerators"):
        score_submission(claim, logs, {"digits": digits})
    assert score_of(bundle, ("claim_sha256",), submission["claim_sha256"]) == ""


def rehash(old, files):
    content = files.pop(old)
    sha256 = hashlib.sha256(content).hexdigest()
    return sha256, files | {sha256: content}


def score_of(bundle, path, value):
    """What the score is found to be wrong in where the submission has another value somewhere."""
    document = deepcopy(bundle.document)
    place = document["submission"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    checks = check_proof(document, bundle.files)
    found = next((one for one in checks if one.name == "score"), checks[0])
    assert (found.result == "fail") is bool(found.why)
    return found.why


def other_than(value):
    """Another value of the same kind, by as little as a published number could be bettered."""
    if value is None or isinstance(value, str):
        return "fp32"
    if isinstance(value, bool):
        return not value
    return value - 1 if isinstance(value, int) else value * (1 - 1e-8) - 1e-12


def test_every_figure_of_a_result_and_of_its_runs_is_scored_again(bundle):
    submission = bundle.document["submission"]
    # Violations and convergence are tables; what the steps explain is in the figures.
    figures = set(submission["result"]) - {"violations", "steps", "rcp", *INTERVAL}
    assert len(figures) == 11
    paths = [("result", name) for name in figures]
    # These are not kept with a run.
    of_run = set(submission["runs"][1]) - {"convergence", "evaluation_interval_seconds"}
    assert len(of_run) == 6
    paths += [("runs", 1, name) for name in of_run]
    paths += [("claim", name) for name in ("model", "framework", "precision")]
    paths += [("claim", "system", name) for name in submission["claim"]["system"]]
    paths += [("claim", "hyperparameters", "batch_size")]
    paths += [("curves", 2, 3, column) for column in range(4)]
    for path in paths:
        value = submission
        for step in path:
            value = value[step]
        assert score_of(bundle, path, value) == ""
        assert score_of(bundle, path, other_than(value)), path
    named = score_of(bundle, ("result", "cost_usd"), 1e-9)
    assert "result.cost_usd" in named
    assert "stored 1e-09" in named
    assert "runs[2].seed" in score_of(bundle, ("runs", 2, "seed"), 7)


def test_figures_that_differ_in_the_last_digits_of_a_machine_are_equal(bundle):
    result = bundle.document["submission"]["result"]

    assert score_of(bundle, ("result", "tta_seconds"), result["tta_seconds"] * (1 + 5e-10)) == ""
    assert score_of(bundle, ("result", "tta_seconds"), result["tta_seconds"] * (1 + 2e-9)) != ""
    assert score_of(bundle, ("result", "reached"), True) != ""


def test_violations_convergence_and_runs_are_those_of_the_logs(bundle):
    submission = bundle.document["submission"]
    broken = {"code": "division_contradicts_claim", "message": "made up"}
    assert "result.violations" in score_of(bundle, ("result", "violations"), [broken])
    assert score_of(bundle, ("result", "violations"), ["no table"])
    raised = {"verdict": "pass", "message": "", "factor": 1.25, "mean": 9.0}
    assert "result.rcp.verdict" in score_of(bundle, ("result", "rcp"), raised)
    assert "2 runs" in score_of(bundle, ("runs",), submission["runs"][:2])
    # Results of earlier rules know neither the raw time nor the convergence.
    earlier = {k: v for k, v in submission["result"].items() if k not in ("raw_tta_seconds", "rcp")}
    assert score_of(bundle, ("result",), earlier) == ""
    assert score_of(bundle, ("result",), earlier | dict.fromkeys(INTERVAL, 1.0)) == ""
    for name in set(earlier) - {"steps", "violations", *INTERVAL}:
        absent = {other: v for other, v in earlier.items() if other != name}
        assert f"result.{name}" in score_of(bundle, ("result",), absent)
    assert "division" in score_of(bundle, ("division",), "open")
    copied = [{"rule": "copied_log", "reason": "no matter", "by": "olivia"}]
    assert "a waiver of 'copied_log'" in score_of(bundle, ("waivers",), copied)


def test_a_bundle_holds_the_files_of_the_claim_whole_and_no_other(bundle):
    def logs(**changed):
        files = {k: changed.get(k, v) for k, v in bundle.files.items()}
        checks = check_proof(bundle.document, {k: v for k, v in files.items() if v})
        return next(one.why for one in checks if one.name == "logs")

    submission = bundle.document["submission"]
    claim, log = submission["claim_sha256"], submission["logs"][2]
    assert logs() == ""
    assert logs(**{claim: b""}).startswith("the claim: not in the bundle")
    assert logs(**{claim: b"{}"}).startswith("the claim: its bytes differ")
    assert logs(**{log["sha256"]: b""}).startswith("run_2.log: not in the bundle")
    assert logs(**{log["sha256"]: b"x"}).startswith("run_2.log: its bytes differ")
    log["size_bytes"] += 1
    assert logs().startswith(f"run_2.log: {log['size_bytes'] - 1:,} bytes")


def test_a_missing_and_a_needless_file_fail(bundle):
    sha256, content = next(iter(bundle.files.items()))
    bundle.files["0" * 64] = b"x"
    assert bundle.failed() == {"logs"}
    del bundle.files["0" * 64], bundle.files[sha256]
    assert bundle.failed() == {"logs", "score"}
    bundle.files[sha256] = content
    assert bundle.failed() == set()


def test_seeds_that_a_server_chose_are_caught_though_it_sealed_them(
    replay, make_report, settings, tmp_path, capsys, digits
):
    with replay.database.write() as session:
        row = session.get_one(Verification, replay.verification_id)
        row.trainings[0].seed = 1
        row.seal = seal(
            digits, replay.submission_id, Draw(tuple(row.seeds), row.nonce, row.own_runs)
        )
    replay.report(replay.claim().json(), make_report(replay.seeds()))

    assert fetch(replay, settings, tmp_path, capsys).failed() == {"seeds"}


def test_the_proof_of_a_claim_with_code_of_its_own_passes_as_that_alone(
    digits_submission, request, make_report, settings, tmp_path, capsys
):
    digits_submission.claim["trained_with"] = "own"
    replay = request.getfixturevalue("replay")
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    found = fetch(replay, settings, tmp_path, capsys)

    assert found.failed() == set()
    found.document["submission"]["claim"]["trained_with"] = "reference"
    found.sign()
    assert "verdict" in found.failed()


def test_a_verification_from_before_the_nonce_drew_the_seeds_has_that_check_open(
    replay, make_report, settings, tmp_path, capsys, digits
):
    """As they are in databases of earlier servers: another nonce, no evidence kept."""
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    with replay.database.write() as session:
        session.delete(session.get_one(Evidence, replay.verification_id))

    def of_draw(number):
        with replay.database.write() as session:
            row = session.get_one(Verification, replay.verification_id)
            row.nonce = "cd" * 32
            drawn = Draw(tuple(row.seeds), row.nonce, row.own_runs)
            row.seal = seal(digits, replay.submission_id, drawn, draw=number)
        code, results = fetch(replay, settings, tmp_path, capsys).audit()
        return code, {name: result for name, result in results.items() if result != "pass"}

    assert of_draw(1) == (0, {"seeds": "open"})
    assert of_draw(2) == (1, {"seeds": "fail"})


def test_a_proof_that_follows_from_other_rules_names_the_version_that_judged(bundle):
    def told():
        bundle.sign()
        path = bundle.folder / "proof.dsse.json"
        path.write_bytes(bundle.proof.proof()[1])
        main(["check-proof", str(path), "--key", str(bundle.key)])
        return " ".join(bundle.capsys.readouterr().out.split())

    commit = bundle.document["code"]["commit"]
    assert "lead to another result" not in told()
    bundle.document["verdict"]["reasons"][0]["numbers"] = {"target": 12.5}
    by = f"reached by Finishline {bundle.document['code']['version']}"
    assert f"{by}, commit {commit};" in told() or (commit is None and f"{by};" in told())
    bundle.document["code"]["commit"] = None
    assert f"{by}; check with that one too" in told()
    bundle.document["draw"]["seal"] = "0" * 64
    assert "lead to another result" not in told()


def test_a_rejected_claim_and_a_replay_below_the_band_pass_the_audit(
    replay, make_report, settings, tmp_path, capsys
):
    replay.report(replay.claim().json(), make_report(replay.seeds(), qualities=[10.0] * 8))
    assert replay.view()["outcome"] == "rejected"

    assert fetch(replay, settings, tmp_path, capsys).failed() == set()


def test_a_cancelled_verification_passes_without_a_report(
    replay, olivia, settings, tmp_path, capsys
):
    replay.client.post(
        f"/api/v1/verifications/{replay.verification_id}/cancel", headers=olivia.headers
    )
    code, results = fetch(replay, settings, tmp_path, capsys).audit()

    assert code == 0
    assert {name for name, result in results.items() if result == "open"} == {
        "runs",
        "times",
        "posted",
        "curves",
    }
