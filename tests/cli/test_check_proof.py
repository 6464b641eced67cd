"""Files that a submitter makes and checks: submissions, entries, commits and proof bundles."""

import json
import zipfile

import pytest

from finishline.cli import bundles
from finishline.cli.bundles import check_bundle, read_bundle
from finishline.client.errors import Refused
from finishline.client.files import find_submission_files
from finishline.places import commit_of
from finishline.rules.canonical import canonical
from server.verifications.proofs import statement_of, write_envelope
from tests.support import archive_folders
from tests.support.boards import as_row
from tests.support.proofs import zip_of

SHA = "ab" * 32


KEYS = {"keys": [{"id": "x", "public_key": "cd" * 32}]}


def refused(content):
    """The reason of the only check that is made of what is no bundle."""
    (check,) = check_bundle(content, []).checks
    assert (check.name, check.result) == ("bundle", "fail")
    return check.why


def test_a_bundle_is_its_document_and_its_files_by_hash():
    found = read_bundle(zip_of(("proof.dsse.json", b'{"a": 1}'), (f"logs/{SHA}", b"x")))

    assert (found.proof, found.logs) == ({"a": 1}, {SHA: b"x"})
    assert read_bundle(b'{"a": 1}').logs is None


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", f"logs/../{SHA}", f"logs/{SHA}/", "logs/", f"logs/{SHA.upper()}",
     f"logs\\{SHA}", "proof.dsse.json/x", "PROOF.DSSE.JSON", "proof.json", f"logs/{SHA}x",
     f"logs/{SHA}\n"],
)  # fmt: skip
def test_no_other_name_is_read(name):
    assert "unexpected file name" in refused(zip_of(("proof.dsse.json", b"{}"), (name, b"x")))


def test_a_bundle_is_not_unpacked_beyond_its_limits(monkeypatch):
    def bundle_of(count, content):
        logs = ((f"logs/{number:064x}", content) for number in range(count))
        return zip_of(("proof.dsse.json", b"{}"), *logs)

    assert "111 files; expected at most 110" in refused(bundle_of(bundles.FILES_LIMIT, b""))
    bomb = zip_of(("proof.dsse.json", bytes(bundles.PROOF_LIMIT_BYTES + 1)))
    assert len(bomb) < 100_000
    assert "too large unpacked" in refused(bomb)
    monkeypatch.setattr(bundles, "BUNDLE_LIMIT_BYTES", 1000)  # Each is within its own limit.
    assert "expected at most 198 bytes" in refused(bundle_of(3, bytes(400)))


def packed_by(method):
    """A zip whose two headers name another way of packing."""
    content = bytearray(zip_of(("proof.dsse.json", b"{}"), method=zipfile.ZIP_STORED))
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(mark) + offset] = method
    return bytes(content)


GOOD = zip_of(("proof.dsse.json", b'{"a": 1}' * 20))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *((content, "not a readable zip") for content in (
            b"PK", b"PK\x03\x04rubbish", GOOD[:-30], GOOD + b"x", b"PK" + GOOD[30:],

        )),
        # bzip2 and LZMA unpack without a limit. 99 is unknown.
        *((packed_by(method), "packed in another way") for method in (12, 14, 99)),
        (zip_of((f"logs/{SHA}", b"x")), "has no proof"),
        (zip_of(("proof.dsse.json", b"{")), "not JSON"),
        (zip_of(*[("proof.dsse.json", b"{}")] * 2), "appears twice"),
        (b'{"a": 1, "a": 2}', "given twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_unpacked_is_refused(content, why):
    assert why in refused(content)


def test_an_id_is_fetched_with_the_keys_and_its_failures_are_shown(finishline, standin):
    standin.answer("GET /api/v1/verifications/v1/proof", zip_of(("proof.dsse.json", b'{"a": 1}')))
    standin.answer("GET /api/v1/keys", KEYS)
    ran = finishline("proof", "v1")

    assert ran.code == 1
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0] == "Verification ? of submission ?, ?: ?"
    assert [line.split()[:2] for line in lines[2:4]] == [["bundle", "pass"], ["envelope", "fail"]]
    assert "field payload: missing" in ran.out
    assert lines[-1] == "Do not rely on this: envelope failed."


def test_the_proof_of_another_verification_answers_nothing(finishline, standin):
    """Each of its checks may pass: it is as sound as it ever was, of something else."""
    payload = canonical(statement_of({"verification": {"id": "v2"}}, []))
    content = write_envelope(payload, key_id="x", signature=b"x")
    standin.answer("GET /api/v1/verifications/v1/proof", content)
    standin.answer("GET /api/v1/keys", KEYS)
    ran = finishline("proof", "v1", "--json")

    assert (ran.code, ran.out) == (4, "")
    assert "the proof of verification 'v2'; expected that of 'v1'" in ran.err


def test_a_document_of_the_wrong_kinds_is_shown_and_not_believed(finishline, tmp_path):
    path = tmp_path / "proof.dsse.json"
    payload = canonical(statement_of({"verdict": [], "draw": 3}, []))
    path.write_bytes(write_envelope(payload, key_id="x", signature=b"x"))
    view = finishline("proof", str(path), "--json")

    assert view.code == 1
    results = {check["name"]: check["result"] for check in view.json()["checks"]}
    assert [results[name] for name in ("signature", "signer", "format")] == ["fail"] * 3


@pytest.mark.parametrize(
    "keys", [{"keys": [{"id": "x"}]}, {"keys": [{"public_key": "zz"}]}, {"strange": 1}]
)
def test_a_server_without_keys_is_said(finishline, standin, keys):
    standin.answer("GET /api/v1/verifications/v1/proof", zip_of(("proof.dsse.json", b"{}")))
    standin.answer("GET /api/v1/keys", keys)

    assert finishline("proof", "v1").code == 4


def test_the_servers_refusal_is_passed_on(finishline, standin):
    standin.refuse("GET /api/v1/verifications/v1/proof", 409, "It is running.")
    ran = finishline("proof", "v1")

    assert (ran.code, ran.err) == (1, "error: It is running.\n")
    assert finishline("proof", "v2").code == 6


def test_an_answer_beyond_the_limit_is_not_read_to_its_end(finishline, standin, monkeypatch):
    monkeypatch.setattr("finishline.cli.commands.proof.BUNDLE_LIMIT_BYTES", 10)
    standin.answer("GET /api/v1/verifications/v1/proof", b"PK" + bytes(100))

    assert "larger than 10 bytes" in finishline("proof", "v1").err


def test_files_that_are_not_there_and_keys_that_are_none_are_named(finishline, tmp_path):
    assert finishline("proof", str(tmp_path / "gone.zip")).code == 1
    (tmp_path / "proof.dsse.json").write_text("{}")
    for content in ("", "zz", "ab" * 31, "{", json.dumps({"keys": [{}]}), "\xff"):
        (tmp_path / "key").write_bytes(content.encode("latin-1"))
        key = str(tmp_path / "key")
        ran = finishline("proof", str(tmp_path / "proof.dsse.json"), "--key", key)
        assert ran.code == 2, content
        assert "No public key in" in ran.err


@pytest.fixture
def folder(tmp_path):
    return write_submission(tmp_path / "sub", runs=["run_0.log", "run_1.log"])


def write_submission(folder, **claim):
    folder.mkdir()
    (folder / "submission.json").write_text(json.dumps({"benchmark": "digits"} | claim))
    for number in range(2):
        (folder / f"run_{number}.log").write_text(f"log {number}")
    return folder


@pytest.mark.parametrize(
    "name", ["../run_0.log", "/etc/passwd", "..", ".", "", "a\\b", "nul\0byte", "run_9.log"]
)
def test_a_listed_log_that_is_not_a_file_beside_the_json_is_refused(tmp_path, name):
    folder = write_submission(tmp_path / "sub", runs=[name])
    (tmp_path / "run_0.log").write_text("outside")
    with pytest.raises(Refused) as caught:
        find_submission_files(folder)
    assert caught.value.problems


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"benchmark": "x"}', '{"runs": [1]}'])
def test_a_json_that_describes_no_submission_is_refused(tmp_path, content):
    (tmp_path / "submission.json").write_text(content)
    with pytest.raises(Refused):
        find_submission_files(tmp_path)


def test_what_is_missing_is_named_once_with_its_path(tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(Refused) as caught:
        find_submission_files(gone)
    whole = f"{gone}: not there; expected a submission's JSON, or its folder"
    assert caught.value.detail == f"{whole}."
    assert [str(problem) for problem in caught.value.problems] == [whole]

    folder = write_submission(tmp_path / "sub", runs=["run_9.log"])
    with pytest.raises(Refused) as refused:
        find_submission_files(folder)
    missing = f"{folder}/run_9.log: not there; expected every run log listed in submission.json."
    assert str(refused.value) == missing, "a program is told once too"
    (folder / "run_9.log.gz").write_bytes(b"")
    with pytest.raises(
        Refused, match=r"run_9\.log: not there, but run_9\.log\.gz; expected .*unpack"
    ):
        find_submission_files(folder)

    package = tmp_path / "package"
    package.mkdir()
    (package / "training.toml").write_text("schema = 1")
    with pytest.raises(Refused, match="code is checked by `finishline check`"):
        find_submission_files(package)


def test_a_misspelt_list_of_logs_is_named_with_the_field_that_was_meant(tmp_path):
    folder = write_submission(tmp_path / "sub", rusn=["run_0.log"])
    with pytest.raises(Refused, match=r"field runs: missing \(did you mean 'runs' where"):
        find_submission_files(folder)


COMMIT = "fb27b827bd83eff9021698ffe576b33a100e0b78"


@pytest.mark.parametrize(
    ("head", "commit"),
    [
        ("ref: refs/heads/master\n", COMMIT),
        ("ref: refs/heads/packed\n", COMMIT),
        (COMMIT, COMMIT),
        *((head, None) for head in (
            "", "ref: refs/heads/gone", "ref: refs/../../secret", "not a commit", COMMIT[:39],
        )),
    ],
)  # fmt: skip
def test_the_commit_of_a_folder_is_that_of_its_checkout(tmp_path, head, commit):
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "CIFAR10" / "train").mkdir(parents=True)
    for name, content in (
        (".git/HEAD", head),
        (".git/refs/heads/master", f"{COMMIT}\n"),
        (".git/packed-refs", f"# pack-refs with: peeled\n{COMMIT} refs/heads/packed\n"),
        ("secret", COMMIT),
    ):
        (tmp_path / name).write_text(content)
    assert commit_of(tmp_path) == commit_of(tmp_path / "CIFAR10" / "train") == commit


ENTRY = archive_folders.ENTRY | {"latency": 2.5, "cost": 0.000004, "top1Accuracy": 94.0}
RESULT = {
    "latency_ms": 2.5, "cost_usd_per_10000": 0.04, "metric": "top1Accuracy", "quality": 94.5,
    "eligible": True,
}  # fmt: skip


VIEW = {
    "id": "s1", "kind": "inference", "benchmark": "cifar10", "division": "open", "model": "M",
    "status": "claimed", "system": {"name": "H"}, "result": RESULT, "runs": [],
    "verifications": [],
}  # fmt: skip


@pytest.fixture
def entry(tmp_path):
    path = tmp_path / "entry.json"
    path.write_text(json.dumps(ENTRY))
    return path


def test_an_entry_without_a_log_is_checked_offline(finishline, entry):
    ran = finishline("check", str(entry), "--benchmark", "cifar10")
    assert (ran.code, ran.err) == (0, "")
    words = " ".join(ran.out.split())
    assert "cifar10 open, latency 2.500 ms, 10,000 items cost $0.040000" in words
    assert "not ranked" not in words
    document = finishline("check", str(entry), "--benchmark", "cifar10", "--json").json()
    assert (document["claim"]["kind"], document["claim"]["run_files"]) == ("inference", [])
    assert (document["result"]["latency_ms"], document["result"]["eligible"]) == (2.5, True)


def test_an_entry_below_the_target_is_accepted_and_not_ranked(finishline, entry):
    entry.write_text(json.dumps(ENTRY | {"top1Accuracy": 93.9}))
    ran = finishline("check", str(entry), "--benchmark", "cifar10")
    assert ran.code == 0
    assert "not ranked: the model did not reach the target" in " ".join(ran.out.split())


def test_an_entry_without_latency_and_log_says_what_is_missing(finishline, entry):
    entry.write_text(json.dumps({k: v for k, v in ENTRY.items() if k != "latency"}))
    ran = finishline("check", str(entry), "--benchmark", "cifar10", "--json")
    (problem,) = ran.error()["problems"]
    assert (ran.code, problem["message"]) == (1, "no run logs")
    assert "latency" in problem["expected"]


def test_submit_sends_the_entry_alone_and_tells_its_figures(finishline, standin, entry):
    standin.answer("POST /api/v1/submissions", VIEW, status=201)
    ran = finishline("submit", str(entry), "--benchmark", "cifar10", "--token", "fl_1")
    assert ran.code == 0
    body = standin.asked[0].body
    assert body.count(b"filename=") == 1
    assert b'name="benchmark"' in body
    words = " ".join(ran.out.split())
    assert "cifar10 open inference" in words
    assert "latency 2.500 ms, 10,000 items cost $0.040000, top1Accuracy 94.5000." in words


def test_an_inference_board_has_its_own_columns(finishline, standin):
    entries = [
        {"rank": 1, "tied": True, "latency_ms": 2.5, "cost_usd_per_10000": None, "quality": 94.5,
         "submitter": "ada", "model": "M", "system": {"name": "H"}, "submission_id": "s1"},
    ]  # fmt: skip
    board = {"kind": "inference", "entries": [as_row(each) for each in entries]}
    standin.answer("GET /api/v1/leaderboards/cifar10", board)
    ran = finishline("board", "cifar10", "--metric", "latency")
    assert standin.asked[0].path == "/api/v1/leaderboards/cifar10?metric=latency&limit=50"
    header, row = ran.out.splitlines()[:2]
    assert header.split()[:2] == ["rank", "latency"]
    assert "TTA" not in header
    assert row.split()[:5] == ["=1", "2.500", "ms", "–", "94.5000"]
