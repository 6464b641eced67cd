"""`finishline import` against a stand-in that keeps submissions as the server does."""

import email
import email.policy
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pytest

from finishline.cli.commands import import_archive as importing
from finishline.client.transport import Retries
from tests.support.archive_folders import CURVE, ENTRY, make_log, write_entries, write_package
from tests.support.processes import wait_for
from tests.support.serving import serving

INFERENCE = ENTRY | {"latency": 2.5, "cost": 4e-6, "top1Accuracy": 94.5}
SYSTEM = {"division": "closed", "system_name": "Big", "number_of_nodes": "2",
          "accelerators_per_node": "8", "accelerator_model_name": "H100",
          "framework": "torch 2.9"}  # fmt: skip
Form = dict[str, list[tuple[str | None, bytes]]]


@dataclass
class Keeper:
    """Keeps what is sent by its key; `refused` and `failing` hold words that make it say no."""

    url: str = ""
    kept: dict[str, Form] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    statuses: list[int] = field(default_factory=list)
    refused: bytes | None = None
    failing: bytes | None = None
    crowd: int = 0
    hold_seconds: float = 0.0
    lock: threading.Condition = field(default_factory=threading.Condition)

    def answer(self, key, body, form):
        """Status, document, and whether it was sent before."""
        with self.lock:
            self.crowd += 1
            if self.hold_seconds:
                self.lock.wait(self.hold_seconds)
            self.crowd -= 1
            self.keys.append(key)
            status = self.statuses.pop(0) if self.statuses else 201
            if status != 201:
                return status, {"status": status, "detail": f"said {status}"}, False
            if self.failing is not None and self.failing in body:
                return 503, {"status": 503, "detail": "broken today"}, False
            if self.refused is not None and self.refused in body:
                problem = {"file": "result_2.txt", "line": 7, "field": None,
                           "message": "too odd", "expected": "less"}  # fmt: skip
                return 422, {"status": 422, "detail": "no", "problems": [problem]}, False
            repeated = key in self.kept
            self.kept.setdefault(key, form)
            return 201, {"id": key[:12], "result": {"eligible": True}}, repeated


def read_form(kind, body):
    message = email.message_from_bytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=email.policy.HTTP
    )
    form = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        form.setdefault(name, []).append((part.get_filename(), part.get_payload(decode=True)))
    return form


@pytest.fixture
def keeper(monkeypatch):
    def respond(request, body):
        keeper.tokens.add(request.headers.get("Authorization"))
        form = read_form(request.headers["Content-Type"], body)
        answer = keeper.answer(request.headers["Idempotency-Key"], body, form)
        status, document, repeated = answer
        headers = {"Idempotent-Replayed": "true"} if repeated else {}
        return status, headers, json.dumps(document).encode()

    monkeypatch.setattr(importing, "RETRIES", Retries(count=3, pause=lambda _: None))
    with serving(respond) as url:
        keeper = Keeper(url)
        yield keeper


@pytest.fixture
def import_it(finishline, keeper):
    def run(*arguments, url=None):
        return finishline("import", *arguments, "--url", url or keeper.url, "--token", "fl_1")

    return run


@pytest.fixture
def tree(tmp_path):
    """Three DAWNBench entries: one whole, one of inference, one without its TSV."""
    folder = write_entries(tmp_path / "dawnbench")
    (folder / "CIFAR10" / "inference").mkdir()
    (folder / "CIFAR10" / "inference" / "fast.json").write_text(json.dumps(INFERENCE))
    return folder


def write_packages(folder, number):
    for place in range(number):
        write_package(folder, f"Org{place:02}", system=SYSTEM)
    return folder


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "training_results_v5.1"
    for organisation in ("ACME", "Bolt", "Core"):
        write_package(folder, organisation, system=SYSTEM)
    return folder


def paths(outcomes):
    return [outcome["path"] for outcome in outcomes]


@pytest.mark.parametrize(
    ("part", "name", "runs"), [("train", "good", ("good.tsv",)), ("inference", "fast", ())]
)
def test_dawnbench_entry_is_sent_unchanged(tree, keeper, import_it, part, name, runs):
    folder = tree / "CIFAR10" / part
    (tree / "CIFAR10" / "inference" / "fast.tsv").write_text(CURVE)  # An inference has no run.
    assert import_it("dawnbench", str(folder), "--json").json()["runs_imported"] == len(runs)
    (form,) = keeper.kept.values()
    assert form == {
        "submission": [(f"{name}.json", (folder / f"{name}.json").read_bytes())],
        **({"logs": [(run, (folder / run).read_bytes()) for run in runs]} if runs else {}),
        "benchmark": [(None, b"cifar10")],
        "archive": [(None, b"true")],
    }
    assert keeper.tokens == {"Bearer fl_1"}


def test_half_an_entry_is_refused_and_stops_no_other(tree, import_it):
    ran = import_it("dawnbench", str(tree), "--json")
    assert ran.code == 1
    document = ran.json()
    assert paths(document["imported"]) == ["CIFAR10/inference/fast.json", "CIFAR10/train/good.json"]
    (refused,) = document["refused"]
    assert refused["path"] == "CIFAR10/train/half.json"
    assert "half.tsv" in refused["problems"][0]["message"]
    assert document["skipped"] == []


def test_an_mlperf_set_is_sent_with_a_claim_and_its_logs(packages, keeper, import_it):
    ran = import_it("mlperf", str(packages), "--json")
    assert ran.code == 0
    assert ran.json()["runs_imported"] == 15
    form = next(form for form in keeper.kept.values() if b"Bolt" in form["submission"][0][1])
    claim = json.loads(form["submission"][0][1])
    assert claim["benchmark"] == "mlperf-v5.1-retinanet"
    assert claim["division"] == "closed"
    assert claim["organisation"] == "Bolt"
    assert claim["framework"] == "torch 2.9"
    assert (claim["system"]["accelerator"], claim["system"]["accelerator_count"]) == ("H100", 16)
    assert "benchmark" not in form
    assert claim["runs"] == [f"result_{number}.txt" for number in range(5)]
    folder = packages / "Bolt" / "results" / "big" / "retinanet"
    assert form["logs"] == [(name, (folder / name).read_bytes()) for name in claim["runs"]]


def test_a_round_that_was_guessed_is_told(packages, tmp_path, keeper, import_it):
    def warnings(folder):
        document = import_it("mlperf", str(folder), "--json").json()
        sent = (*document["imported"], *document["already_there"])
        return [problem["code"] for each in sent for problem in each.get("warnings", ())]

    assert "round_not_told" not in warnings(packages)
    assert warnings(packages.rename(tmp_path / "nameless")).count("round_not_told") == 3


def test_a_broken_line_is_one_warning_whatever_the_command(packages, finishline, import_it):
    place = "ACME/results/big/retinanet/result_0.txt"
    log = packages / place
    log.write_text(':::MLLOG {"key": "init_start", "value": nullACME/x.py"}\n' + log.read_text())

    def told(problems):
        kept = ("code", "severity", "file", "line")
        return [[p[name] for name in kept] for p in problems if p["code"] == "bad_json"]

    record = json.loads(finishline("score", str(packages)).out.splitlines()[0])
    checked = finishline("check", str(packages), "--json")
    dry, sent = (
        import_it("mlperf", str(packages), "--json", *more).json() for more in (["--dry-run"], [])
    )
    assert (record["eligible"], checked.code) == (True, 0)
    lists = (
        record["problems"], checked.json()["problems"],
        dry["to_import"][0]["warnings"], sent["imported"][0]["warnings"],
    )  # fmt: skip
    assert [told(each) for each in lists] == [[["bad_json", "warning", place, 1]]] * 4


@pytest.mark.parametrize(
    ("changed", "content", "imported"),
    [
        (None, "", []),
        ("results/big/retinanet/result_3.txt", make_log(seed=99), ["ACME/results/big/retinanet"]),
        ("systems/big.json", json.dumps(SYSTEM | {"framework": "torch 3.0"}),
         ["ACME/results/big/retinanet"]),
    ],
)  # fmt: skip
def test_a_second_import_sends_what_has_changed_wherever_it_lies(
    packages, tmp_path, keeper, import_it, changed, content, imported
):
    import_it("mlperf", str(packages))
    (tmp_path / "elsewhere").mkdir()
    moved = packages.rename(tmp_path / "elsewhere" / "v5.1")
    if changed is not None:
        (moved / "ACME" / changed).write_text(content)
    again = import_it("mlperf", str(moved), "--json")
    assert (again.code, paths(again.json()["imported"])) == (0, imported)
    assert len(again.json()["already_there"]) == 3 - len(imported)
    assert len(keeper.kept) == 3 + len(imported)


def test_refused_submission_is_listed_with_paths(packages, keeper, import_it):
    """It has the problems that the server found and those of our own reading."""
    keeper.refused = b'"organisation":"ACME"'
    folder = packages / "ACME" / "results" / "big" / "retinanet"
    (folder / "result_4.txt").write_text((folder / "result_1.txt").read_text() + "\n")
    ran = import_it("mlperf", str(packages), "--json")
    assert ran.code == 1
    assert len(ran.json()["imported"]) == 2
    (refused,) = ran.json()["refused"]
    theirs, ours = refused["problems"]
    assert theirs["file"] == "ACME/results/big/retinanet/result_2.txt"
    assert (theirs["line"], theirs["message"], theirs["expected"]) == (7, "too odd", "less")
    assert ours["field"] == "seed"
    out = import_it("mlperf", str(packages)).out
    assert "result_2.txt line 7: too odd; expected less" in out
    assert "2 already there, 1 refused, 0 failed, 0 skipped" in out


def test_a_refusal_without_a_list_of_problems_is_a_problem_itself(packages, keeper, import_it):
    keeper.statuses = [413]
    (refused,) = import_it("mlperf", str(packages), "--json").json()["refused"]
    (problem,) = refused["problems"]
    assert (problem["file"], problem["message"]) == (refused["path"], "said 413")


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_server_that_fails_for_a_moment_is_asked_again(packages, keeper, import_it, status):
    keeper.statuses = [status, status]
    ran = import_it("mlperf", str(packages), "--json")
    assert (ran.code, len(ran.json()["imported"]), len(keeper.keys)) == (0, 3, 5)


def test_failed_submission_stops_no_other(packages, keeper, import_it):
    keeper.failing = b'"organisation":"ACME"'
    ran = import_it("mlperf", str(packages), "--json")
    assert ran.code == 4
    document = ran.json()
    assert paths(document["failed"]) == ["ACME/results/big/retinanet"]
    assert document["failed"][0]["reason"] == "broken today"
    assert (len(document["imported"]), len(keeper.keys)) == (2, 2 + 4)


def test_without_a_server_nothing_is_tried(packages, import_it):
    ran = import_it("mlperf", str(packages), "--json", url="http://127.0.0.1:9")
    assert (ran.code, len(ran.json()["not_tried"])) == (4, 3)
    assert "No response from http://127.0.0.1:9" in ran.error()["message"]


@pytest.mark.parametrize(("status", "before"), [(403, 0), (401, 6)])
def test_refused_token_leaves_a_summary(tmp_path, keeper, import_it, status, before):
    folder = write_packages(tmp_path / "v5.1", 30)
    keeper.statuses = [201] * before + [status] * 30
    ran = import_it("mlperf", str(folder), "--json")
    assert ran.code == 5
    document = ran.json()
    assert (len(document["imported"]), document["runs_imported"]) == (before, 5 * before)
    assert f"said {status}" in ran.error()["message"]
    assert len(keeper.keys) == before + 1
    assert len(document["not_tried"]) == 30 - before
    everything = [f"Org{number:02}/results/big/retinanet" for number in range(30)]
    named = [*document["imported"], *document["not_tried"]]
    assert sorted(paths(named)) == everything


def test_an_interrupted_import_says_how_far_it_came_and_is_resumed(tmp_path, keeper, import_it):
    folder = write_packages(tmp_path / "v5.1", 12)
    keeper.hold_seconds = 60.0
    process = subprocess.Popen(
        [sys.executable, "-m", "finishline.cli.main", "import", "mlperf", str(folder), "--json"],
        env=os.environ | {"FINISHLINE_URL": keeper.url, "FINISHLINE_TOKEN": "fl_1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        wait_for(lambda: keeper.crowd == 1, seconds=30, what="a request", pause=0.02)
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=30)
    with keeper.lock:  # The server stores what it was sent all the same.
        keeper.hold_seconds = 0.0
        keeper.lock.notify_all()
    assert (process.returncode, error) == (130, b"Interrupted by Ctrl-C.\n")
    document = json.loads(said)
    assert [len(document[state]) for state in ("imported", "failed", "not_tried")] == [0, 0, 12]
    wait_for(lambda: len(keeper.kept) == 1, seconds=10, what="the request that was left")
    again = import_it("mlperf", str(folder), "--json").json()
    assert (len(again["already_there"]), len(again["imported"])) == (1, 11)


def test_a_dry_run_shows_the_claims_and_sends_nothing(packages, keeper, import_it):
    ran = import_it("mlperf", str(packages), "--dry-run", "--json")
    assert ran.code == 0
    claims = [outcome["claim"] for outcome in ran.json()["to_import"]]
    assert [claim["submission"]["organisation"] for claim in claims] == ["ACME", "Bolt", "Core"]
    assert not any("submitted_on" in claim["submission"] for claim in claims)
    assert keeper.keys == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("retinanet", "retinanet_v9"), "mlperf v5.1 retinanet_v9 has no definition"),
        (('"time_ms": 1700000000000, "event_type": "INTERVAL_START"', '"time_s": 1'), "got None"),
        (('"key": "eval_accuracy",', '"key": "eval_accuracy"'), "broken JSON"),
        (('"key": "seed",', '"key": "seed"'), None),
        (
            ('"seed", "value": 0', '"seed", "value": 1'),
            None,
        ),  # A seed twice is stored, and not ranked.
    ],
)
def test_a_dry_run_counts_what_an_import_would_refuse(packages, import_it, change, reason):
    old, new = change
    if old == "retinanet":
        for folder in packages.glob("*/results/big/retinanet"):
            folder.rename(folder.with_name(new))
    else:
        log = packages / "ACME/results/big/retinanet/result_0.txt"
        log.write_text(log.read_text().replace(old, new))
    ran = import_it("mlperf", str(packages), "--dry-run", "--json")
    document = ran.json()
    refused = [each["reason"] for each in document["refused"]]
    count = 0 if reason is None else 3 if old == "retinanet" else 1
    assert (ran.code, len(document["to_import"])) == (int(count > 0), 3 - count)
    assert len(refused) == count
    assert all(reason in each for each in refused)


def test_a_set_of_mlperf_hpc_is_skipped(packages, import_it):
    folder = packages / "ACME/results/big/retinanet"
    (folder.parent / "weak").mkdir()
    folder.rename(folder.parent / "weak" / "deepcam")
    for more in (["--dry-run"], []):
        skipped = import_it("mlperf", str(packages), "--json", *more).json()["skipped"]
        assert [each["reason"] for each in skipped] == ["MLPerf HPC is not scored"]


def test_the_day_of_a_round_is_sent_where_it_is_given(packages, tree, import_it):
    given = ("--published", "2024-11-13", "--dry-run", "--json")
    claims = import_it("mlperf", str(packages), *given).json()["to_import"]
    assert {each["claim"]["submission"]["submitted_on"] for each in claims} == {"2024-11-13"}
    refused = import_it("dawnbench", str(tree), *given)
    assert (refused.code, "their own dates" in refused.err) == (1, True)


def test_a_link_among_the_logs_is_refused_and_never_followed(packages, tmp_path, keeper, import_it):
    secret = tmp_path / "secret.txt"
    secret.write_text("do not send")
    linked = packages / "ACME" / "results" / "big" / "retinanet" / "result_1.txt"
    linked.unlink()
    linked.symlink_to(secret)
    ran = import_it("mlperf", str(packages), "--json")
    assert ran.code == 1
    (refused,) = ran.json()["refused"]
    assert "symbolic link" in refused["problems"][0]["message"]
    assert len(keeper.keys) == 2


def test_compressed_logs_are_told_and_not_read(packages, import_it):
    folder = packages / "ACME" / "results" / "big" / "retinanet"
    (folder / "result_9.txt.gz").write_bytes(gzip.compress(make_log(1, seed=9).encode()))
    (folder / "weights.gz").write_bytes(gzip.compress(b""))
    ran = import_it("mlperf", str(packages), "--dry-run")
    path = "ACME/results/big/retinanet/result_9.txt.gz"
    assert f"Not read: 1 compressed file, the first {path}." in ran.err


def test_logs_outside_a_package_are_skipped(tmp_path, keeper, import_it):
    (tmp_path / "alone.txt").write_text(make_log(1, seed=1))
    ran = import_it("mlperf", str(tmp_path / "alone.txt"), "--json")
    assert ran.code == 0
    assert "outside a package" in ran.json()["skipped"][0]["reason"]
    assert keeper.keys == []


def test_a_path_with_nothing_of_that_kind_is_an_error(packages, import_it):
    ran = import_it("dawnbench", str(packages), "--json")
    assert ran.code == 1
    assert "Nothing to import" in ran.error()["message"]


@pytest.mark.parametrize(
    ("commit", "told"),
    [
        ("441d65f4445cd59687466533fd9f55399136e7a4", "Source: MLPerf Training v5.1 at 441d65f"),
        ("fb27b827bd83eff9021698ffe576b33a100e0b78", "checked: commit fb27b827"),
        ("0" * 40, "checked: unknown commit 000"),
    ],
)
def test_commit_of_another_archive_is_no_source(packages, import_it, commit, told):
    ran = import_it("mlperf", str(packages), "--commit", commit)
    assert told in ran.out.replace("\n", " ")
