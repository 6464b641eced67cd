"""The commands against a server that gives canned answers: outputs, exit codes, requests."""

import json
import sys

import pytest

from finishline.cli.client import ServerClient
from finishline.cli.commands.run import name_of_class
from finishline.devices import local_system
from tests.support.boards import as_row

SYSTEM = {"name": "laptop [2 cores]", "hardware_class": "cpu", "processor": "x"}
RESULT = {
    "tta_seconds": 0.8531, "tta_display": "0.853 s", "reached": 3, "started": 3,
    "cv_percent": 4.2, "tta_low_seconds": 0.8, "tta_high_seconds": 0.9, "cost_usd": None,
    "violations": [],
}  # fmt: skip
SUBMISSION = {
    "id": "s1", "benchmark": "digits", "division": "closed", "model": "conv", "status": "claimed",
    "system": SYSTEM, "result": RESULT, "verifications": [{"id": "v1", "state": "queued"}],
    "runs": [{"file": "run_0.log", "seed": 7, "tta_seconds": 0.8531, "epochs_to_target": 7.0,
              "best_quality": 97.66}],
}  # fmt: skip
VERIFICATION = {
    "id": "v1", "submission_id": "s1", "state": "queued", "seal": "ab12", "runs_planned": 1,
    "target": {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"},
    "control_points": [{"index": 1, "mean": 15.0, "lower": 10.0, "upper": 20.0}],
    "waiting_for": "No worker is free; start one.",
}  # fmt: skip
ENDED = VERIFICATION | {
    "state": "done", "outcome": "verified", "waiting_for": None,
    "reasons": [{"code": "reached_target", "message": "3 of 3 runs reached 97.5.", "numbers": {}}],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    claim = {"benchmark": "digits", "runs": ["run_0.log"]}
    (tmp_path / "submission.json").write_text(json.dumps(claim))
    (tmp_path / "run_0.log").write_bytes(b":::MLLOG {}\n")
    return tmp_path


REPLAY = {
    "attempt": 1, "sequence": 0, "run": 0, "kind": "evaluation", "epoch": 1.0, "seconds": 0.1,
    "quality": 15.2,
}  # fmt: skip


def test_submit_sends_every_file_once_with_a_key_of_their_contents(finishline, standin, folder):
    standin.answer("POST /api/v1/submissions", SUBMISSION, status=201)
    ran = finishline("submit", str(folder), "--token", "fl_a", "--json")
    people = finishline("submit", str(folder / "submission.json"), "--token", "fl_a")
    assert (ran.code, ran.json()["id"]) == (0, "s1")
    assert "TTA 0.853 s (95 %: 0.800 to 0.900 s), CV 4.2 %" in people.out
    assert f"{standin.url}/submissions/s1" in people.out
    first, second = standin.asked
    assert first.headers["Authorization"] == "Bearer fl_a"
    assert first.body.count(b'name="submission"; filename="submission.json"') == 1
    assert first.body.count(b'name="logs"; filename="run_0.log"') == 1
    assert b":::MLLOG {}\n" in first.body
    assert len(first.headers["Idempotency-Key"]) == 64
    assert second.headers["Idempotency-Key"] == first.headers["Idempotency-Key"]


@pytest.mark.parametrize(
    ("about", "last"),
    [
        ({"trained_with": "reference"}, "Next: finishline verify s1 --watch"),
        ({"trained_with": "own"}, None),
        (
            {"trained_with": "reference", "duplicate_of": "s0"},
            "Change a setting, such as the batch size, to have yours measured.",
        ),
    ],
)
def test_the_next_step_is_one_that_can_be_taken(about, last, finishline, standin, folder):
    taken = SUBMISSION | {"result": RESULT | {"eligible": True}} | about
    standin.answer("POST /api/v1/submissions", taken, status=201)
    lines = finishline("submit", str(folder), "--token", "fl_a").out.splitlines()
    assert lines[-1] == (last or f"{standin.url}/submissions/s1")


def test_a_measured_time_stands_above_the_claimed_one(finishline, standin):
    measured = SUBMISSION | {"evidence": "measured", "measured_seconds": 1.234, "rank": 2}
    measured |= {"measured_low_seconds": 1.2, "measured_high_seconds": 1.3, "measured_runs": 3}
    measured |= {"system": {"name": "vm", "hardware_class": "cpu-vm"}, "verifications": []}
    measured |= {"not_first": "lower mean, its head-to-head waits"}
    standin.answer("GET /api/v1/submissions/s1", measured)
    shown = finishline("show", "s1").out.splitlines()

    [at] = [number for number, line in enumerate(shown) if line.startswith("1.234 s")]
    told = "rank 2 on digits, closed division. It has the lower mean, its head-to-head waits."
    assert shown[at].endswith(f"over 3 runs on cpu-vm: {told}")
    assert shown[at + 1].startswith("Claimed TTA 0.853 s (95 %: 0.800 to 0.900 s)")


def test_a_refused_submission_lists_file_line_field_and_expected(finishline, standin, folder):
    problem = {"file": "run_0.log", "line": 1, "field": "key", "message": "no key",
               "expected": "an MLLOG key"}  # fmt: skip
    standin.refuse("POST /api/v1/submissions", 422, "The submission is refused.", [problem])
    ran = finishline("submit", str(folder))
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.splitlines() == [
        "error: The submission is refused.",
        "  run_0.log line 1, field key: no key; expected an MLLOG key",
    ]
    as_json = finishline("submit", str(folder), "--json")
    assert as_json.out == ""
    assert as_json.error()["problems"] == [problem]


@pytest.mark.parametrize(
    ("code", "statuses"),
    [(1, (400, 409, 413, 422)), (4, (302, 500, 502, 503)), (5, (401, 403)), (6, (404,))],
)
def test_exit_codes_follow_the_servers_answer(finishline, standin, code, statuses):
    for status in statuses:
        standin.answers.clear()
        standin.refuse("POST /api/v1/submissions/s1/verifications", status, "No.")
        ran = finishline("verify", "s1", "--json")
        assert (ran.code, ran.error()["exit_code"]) == (code, code), status


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[1]", b'{"problems": "none"}', b'{"problems": [3]}', b'{"benchmarks": 3}',
     b'{"benchmarks": ["digits"]}', b'{"benchmarks": [{"id": "digits", "target": [3]}]}'],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 502])
def test_answer_of_another_program_is_one_sentence(finishline, standin, status, body):
    standin.answer("GET /api/v1/benchmarks", body, status=status)
    ran = finishline("board")
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)


@pytest.mark.parametrize(
    "wrong", [{"result": ["fast"]}, {"result": RESULT | {"tta_seconds": "fast"}}, {"runs": 3}]
)
@pytest.mark.parametrize("name", ["submit", "show"])
def test_submission_of_another_shape_is_one_sentence(finishline, standin, folder, name, wrong):
    standin.answer("POST /api/v1/submissions", SUBMISSION | wrong, status=201)
    standin.answer("GET /api/v1/submissions/s1", SUBMISSION | wrong)
    ran = finishline(name, {"submit": str(folder), "show": "s1"}[name])
    assert (ran.code, "Unexpected answer" in ran.err, ran.err.count("\n")) == (4, True, 1)


def test_command_waits_as_long_as_the_server_says(finishline, standin, monkeypatch):
    waits = []
    monkeypatch.setattr("finishline.cli.client.time.sleep", waits.append)
    for seconds, waited in (("2", [2.0] * 5), ("7200", [])):
        standin.later = seconds
        standin.refuse("GET /api/v1/benchmarks", 429, "Too many.")
        ran = finishline("board")
        assert (ran.code, "Too many" in ran.err, waits) == (4, True, waited)
        waits.clear()


def test_proxy_does_not_hide_the_local_server(finishline, standin, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    standin.answer("GET /api/v1/benchmarks", {"benchmarks": []})
    assert finishline("board").code == 0


def test_no_server_is_exit_code_4_and_one_sentence(finishline):
    ran = finishline("board", "--url", "http://127.0.0.1:1")
    assert ran.code == 4
    assert ran.err.startswith("error: No response from http://127.0.0.1:1 ")
    assert "finishline up" in ran.err


USAGE = [
    "show", "frobnicate", "show a b", "board x --limit many", "board --url 127.0.0.1:8000",
    "board --url ftp://server", "board --url http://", "board --url http://[::1",
    "admin token add ann --role king", "admin review v1 maybe --reason x", "admin review v1 keep",
    "account token add --days inf", "account set ann", "login", "up --port 70000", "up --once",
    "up --demo --no-worker", "up season", "verify", "verify s1 --kind race",
    "verify s1 s2 --kind latency --reason r", "verify s1 --benchmark digits",
    "verify s1 --status verified", "verify s1 s2", "verify s1 s2 --reason x --watch",
    "verify --benchmark digits", "verify --head-to-head s1 s2 --dry-run",
    "verify --head-to-head s1", "proof", "proof v1 --log log.json", "benchmark calibrate digits",
    "benchmark calibrate digits --runs 2", "benchmark calibrate digits --batch-sizes 64",
    "benchmark calibrate digits --batch-sizes 6x4 --runs 2", "show \udc80",
    "admin user add \udc80",
]  # fmt: skip


@pytest.mark.parametrize("arguments", USAGE)
def test_wrong_usage_is_one_sentence(finishline, standin, arguments):
    ran = finishline(*arguments.split())
    assert (ran.code, ran.out, standin.asked) == (2, "", [])
    assert ran.err.startswith("error: ")
    assert len(ran.err.splitlines()) == 1
    error = finishline(*arguments.split(), "--json").error()
    assert (error["kind"], error["exit_code"]) == ("usage", 2)


def test_run_refuses_bad_settings_and_folders(finishline, tmp_path):
    claim = tmp_path / "submission.json"
    claim.write_text("earlier")
    kept = finishline("run", "digits", "--out", str(tmp_path))
    assert (kept.code, "already has a submission" in kept.err) == (2, True)
    assert claim.read_text() == "earlier"
    for setting in ("batch_size=abc", "batch_size", "=3"):
        ran = finishline("run", "digits", "--out", str(tmp_path / "fresh"), "--set", setting)
        assert (ran.code, setting in ran.err) == (2, True)
    assert list(tmp_path.iterdir()) == [claim]


@pytest.mark.parametrize(
    ("seed", "runs", "command", "code", "said"),
    [
        (2**32 - 1, 1, (), 1, "no division 'ajar'"),  # The check after the seeds.
        (2**32 - 1, 2, (), 2, "expected at most 4294967295"),
        (5_000_000_000, 1, (), 2, "expected at most 4294967295"),
        (2**63 - 1, 1, ("--", "true"), 1, "wrote no log"),  # It was run.
        (2**63 - 1, 2, ("--", "true"), 2, "expected at most 9223372036854775807"),
        (2**63, 1, ("--", "true"), 2, "9223372036854775807"),
    ],
)
def test_every_seed_is_trained(finishline, tmp_path, seed, runs, command, code, said):
    options = ("--seed", str(seed), "--runs", str(runs), "--division", "ajar")
    ran = finishline("run", "digits", "--out", str(tmp_path / "fresh"), *options, *command)
    assert (ran.code, said in ran.err) == (code, True), ran.err


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("digits", "--set", "batchsize=64"),
         "digits.toml, field hyperparameters.batchsize: unknown hyperparameter (did you mean "
         "'batch_size'?)"),
        (("digits", "--set", "batch_size=0"),
         "digits.toml, field hyperparameters.batch_size: got 0; expected a whole number from 16 "),
        (("digits", "--division", "ajar"), "digits.toml: no division 'ajar'"),
        (("digits", "--device", "cuda:7"), "--device cuda:7: no cuda:7 on this machine;"),
        (("teacher",), "has no reference training"),
    ],
)  # fmt: skip
def test_impossible_training_is_refused_first(finishline, tmp_path, arguments, wrong):
    ran = finishline("run", *arguments, "--out", str(tmp_path / "fresh"))

    assert (ran.code, wrong in ran.err) == (1, True)
    assert "training failed" not in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--device", "cuda")])
def test_card_that_torch_cannot_use_is_refused(finishline, standin, tmp_path, monkeypatch, options):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0f0c-4a)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("finishline.devices.torch_platforms", set)

    ran = finishline("run", "digits", "--token", "fl_d", "--out", str(tmp_path / "fresh"), *options)

    assert ran.code == 1
    assert "--device cuda:0: torch is installed without CUDA" in ran.err
    assert ran.err.rstrip().endswith("or train on the processor with --device cpu.")
    assert standin.asked == []
    assert list(tmp_path.iterdir()) == [tool]


@pytest.mark.parametrize("listed", [True, False])
def test_class_has_the_name_of_the_server(standin, listed):
    system = local_system()
    known = system | {"name": "lab-box"}
    if listed:
        standin.answer("GET /api/v1/hardware-classes", {"hardware_classes": [known]})
    with ServerClient(standin.url, None) as server:
        name = name_of_class(server, system)

    assert name == ("lab-box" if listed else system["hardware_class"])


def test_flags_of_the_root_stand_before_or_after_the_command(finishline, standin):
    standin.answer("GET /api/v1/queue", {"classes": []})
    given = (f"--url={standin.url}", "--token", "fl_a", "--json")
    queue = ("admin", "queue", "list")
    for arguments in ((*given, *queue), (*queue, *given), ("--json", *queue, *given[:3])):
        assert finishline(*arguments).json() == {"classes": []}
        assert standin.asked.pop().headers["Authorization"] == "Bearer fl_a"
    assert (
        finishline("admin", "queue", "list").out == "The queue is empty.\n"
    )  # The flags end with their command.
    assert finishline("--json", "frobnicate").error()["kind"] == "usage"


def test_flags_behind_two_dashes_are_of_the_program(finishline, tmp_path):
    show = "import sys; sys.exit(sys.argv[1:] != ['--json'])"
    ran = finishline("run", "digits", "--runs", "1", "--out", str(tmp_path / "fresh"), "--",
                     sys.executable, "-c", show, "--json")  # fmt: skip
    assert (ran.code, "wrote no log" in ran.err) == (1, True)


def test_verify_without_watching_answers_at_once(finishline, standin):
    standin.answer("POST /api/v1/submissions/s1/verifications", VERIFICATION, status=201)
    ran = finishline("verify", "s1", "--reason", "too good", "--token", "fl_o")
    assert ran.code == 0
    assert f"Verification v1 is queued: {standin.url}/verifications/v1" in ran.out
    assert json.loads(standin.asked[0].body) == {"reason": "too good"}


@pytest.mark.parametrize(
    ("outcome", "code"), [("verified", 0), ("rejected", 3), ("inconclusive", 3), (None, 3)]
)
def test_watching_ends_with_the_verdicts_exit_code(finishline, standin, outcome, code):
    standin.answer("POST /api/v1/submissions/s1/verifications", VERIFICATION, status=201)
    end = ENDED | {"outcome": outcome}
    standin.stream("v1", ("state", VERIFICATION), ("replay", REPLAY), ("end", end))
    ran = finishline("verify", "s1", "--watch", "--json")
    assert ran.code == code
    assert ran.json()["outcome"] == outcome
    assert ran.err == ""


def test_watching_shows_evaluations_and_verdict(finishline, standin):
    standin.answer("POST /api/v1/submissions/s1/verifications", VERIFICATION, status=201)
    standin.stream("v1", ("state", VERIFICATION), ("state", VERIFICATION), ("replay", REPLAY))
    failure = {"code": "clock_mismatch", "message": "It took 1 s.", "next_step": "Look there."}
    ended = ENDED | {"attempts": [{"number": 1, "failure": failure}]}
    standin.stream("v1", ("x", {}), ("end", ended))
    ran = finishline("verify", "s1", "--watch")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == f"Verification v1: {standin.url}/verifications/v1"
    assert ran.out.count("No worker is free; start one.") == 1
    assert "run 1  epoch 1      15.20 %   0.100 s  inside 10.00..20.00" in ran.out
    assert "  attempt 1 failed (clock_mismatch): It took 1 s. Look there.\n" in ran.out
    assert "Verdict: verified\n  reached_target: 3 of 3 runs reached 97.5.\n" in ran.out
    streams = [asked for asked in standin.asked if asked.path.endswith("/events")]
    assert [asked.headers.get("Last-Event-ID") for asked in streams] == [None, "3"]


def test_each_evaluation_is_compared_with_the_band_of_its_number(finishline, standin):
    points = [(1, 10.0, 20.0), (2, 40.0, 101.5)]
    bands = [{"index": i, "mean": 0, "lower": low, "upper": high} for i, low, high in points]
    qualities = ((1, 0, 20.0), (1, 0, 39.9), (1, 0, 58400 / 599), (1, 1, 20.1), (2, 0, 9.9))
    events = [
        REPLAY | {"sequence": number, "attempt": attempt, "run": run, "quality": quality}
        for number, (attempt, run, quality) in enumerate(qualities)
    ]
    phases = [
        {"attempt": 1, "sequence": 0, "run": 0, "kind": "phase", "phase": phase}
        for phase in ("compile", "data", "train")
    ]
    over = REPLAY | {"attempt": 2, "kind": "run_finished", "status": "below_band"}
    state = VERIFICATION | {"control_points": bands, "waiting_for": None}
    told = [("state", state), *(("replay", each) for each in (*phases, *events, over))]
    standin.answer("POST /api/v1/submissions/s1/verifications", state, status=201)
    standin.stream("v1", *told, ("end", ENDED))

    lines = finishline("verify", "s1", "--watch").out.splitlines()

    assert [line.split(maxsplit=2)[2] for line in lines if line.startswith("  run ")] == [
        "compiling, on made-up data",
        "reading the data",
        "epoch 1      20.00 %   0.100 s  inside 10.00..20.00",
        "epoch 1      39.90 %   0.100 s  below 40.00..100.00",
        "epoch 1     97.496 %   0.100 s",  # 584 of 599, where 585 are the target.
        "epoch 1      20.10 %   0.100 s  above 10.00..20.00",
        "epoch 1       9.90 %   0.100 s  below 10.00..20.00",
        "below band",
    ]


@pytest.mark.parametrize("named", ["s1", "v1"])
def test_watching_goes_along_with_a_verification_that_is_under_way(finishline, standin, named):
    others = [
        {"id": "v0", "kind": "replay", "state": "done"},
        {"id": "l1", "kind": "latency", "state": "running"},
        {"id": "v1", "kind": "replay", "state": "running"},
    ]
    standin.answer("GET /api/v1/submissions/s1", SUBMISSION | {"verifications": others})
    standin.answer("GET /api/v1/verifications/v1", VERIFICATION | {"state": "running"})
    standin.stream("v1", ("replay", REPLAY), ("end", ENDED))

    ran = finishline("verify", named, "--watch")

    assert (ran.code, ran.err) == (0, "")
    assert "already under way; following it" in ran.out
    assert "epoch 1      15.20 %" in ran.out
    assert "Verdict: verified" in ran.out
    assert not [asked for asked in standin.asked if asked.method == "POST"]


def test_watching_shows_the_verdict_of_a_replay_that_is_done(finishline, standin):
    done = {"id": "v1", "kind": "replay", "state": "done"}
    standin.answer("GET /api/v1/submissions/s1", SUBMISSION | {"verifications": [done]})
    standin.answer("GET /api/v1/verifications/v1", VERIFICATION | done)
    standin.stream("v1", ("end", ENDED))

    ran = finishline("verify", "s1", "--watch")

    assert ran.code == 0
    assert "has ended" in ran.out
    assert "verified" in ran.out
    assert {asked.method for asked in standin.asked} == {"GET"}


def test_watching_asks_for_a_replay_where_those_before_have_failed(finishline, standin):
    ended = [{"id": "v0", "kind": "replay", "state": "failed"}]
    standin.answer("GET /api/v1/verifications/v0", VERIFICATION | ended[0])
    standin.answer("GET /api/v1/submissions/s1", SUBMISSION | {"verifications": ended})
    standin.answer("POST /api/v1/submissions/s1/verifications", VERIFICATION, status=201)
    standin.stream("v1", ("end", ENDED))

    ran = finishline("verify", "s1", "--watch")

    assert ran.code == 0
    assert "under way" not in ran.out
    assert [asked.method for asked in standin.asked] == ["GET", "POST", "GET"]


def test_failing_server_gets_no_request(finishline, standin):
    standin.refuse("GET /api/v1/submissions/s1", 500, "No.")
    assert finishline("verify", "s1", "--watch").code == 4
    assert [asked.method for asked in standin.asked] == ["GET"]


BACKENDS = [
    {"backend": "eager", "samples": 1198, "passes": 2.0, "mean_ms": 0.31, "p50_ms": 0.3,
     "p90_ms": 0.4, "p99_ms": None, "items_per_second": 3225.8, "drift_percent": 1.25,
     "cost_usd_per_10000": 0.0031},
    {"backend": "compiled", "samples": 0, "mean_ms": None, "p50_ms": None, "p90_ms": None,
     "p99_ms": None, "items_per_second": None, "drift_percent": None, "cost_usd_per_10000": None},
]  # fmt: skip


def test_a_latency_is_asked_for_by_its_kind_and_ends_in_a_table_of_backends(finishline, standin):
    standin.answer("POST /api/v1/submissions/s1/verifications", VERIFICATION, status=201)
    standin.stream("v1", ("end", ENDED | {"backends": BACKENDS}))
    ran = finishline("verify", "s1", "--kind", "latency", "--watch")

    assert ran.code == 0
    [asked] = [asked for asked in standin.asked if asked.method == "POST"]
    assert json.loads(asked.body)["kind"] == "latency"
    rows = [line.split() for line in ran.out.splitlines()[-2:]]
    assert rows[0][:7] == ["eager", "0.310", "ms", "0.300", "ms", "0.400", "ms"]
    assert rows[0][-2:] == ["1198", "2.0"]
    assert rows[1][0] == "compiled"
    assert set(rows[1][1:]) == {"–"}


def test_leaderboard_passes_its_filters_on_and_ranks_as_the_server_did(finishline, standin):
    entry = {"rank": 1, "tied": True, "submission_id": "s1", "submitter": "ann", "model": "conv",
             "status": "verified", "system": SYSTEM, "tta_display": "0.853 s",
             "tta_seconds": 0.8531, "runs_reached": 3, "runs_started": 3}  # fmt: skip
    missed = entry | {"rank": None, "tied": False, "unranked_reason": "breaks a rule"}
    others = [missed | {"submission_id": "s2"}, missed | {"submission_id": "s3"},
              missed | {"submission_id": "s4", "unranked_reason": "withdrawn"}]  # fmt: skip
    entries = [as_row(each) for each in (entry, *others)]
    board = {"benchmark": "digits", "division": "open", "entries": entries}
    standin.answer("GET /api/v1/leaderboards/digits", board)
    ran = finishline("board", "digits", "--division", "open", "--q", "a b")
    assert ran.code == 0
    assert standin.asked[0].path == "/api/v1/leaderboards/digits?division=open&q=a+b&limit=50"
    _, *rows, first_reason, second_reason = ran.out.splitlines()
    firsts = [line.split()[:3] for line in rows]
    assert firsts == [["=1", "0.853", "s"], *[["–", "0.853", "s"]] * 3]
    assert first_reason == "not ranked, breaks a rule: s2, s3"
    assert second_reason == "not ranked, withdrawn: s4"
    assert finishline("board", "digits", "--json").json() == board
    first, *_ = finishline("board", "digits").out.splitlines()
    assert first == "Division open; --division shows another."


def test_a_preview_is_asked_for_with_the_token_and_says_what_it_is(finishline, standin):
    note = "Only organisers see this: the board as if its embargo were over now."
    entries = [{"rank": 1, "submission_id": "s1"}, {"rank": 2, "submission_id": "s2"}]
    board = {"benchmark": "digits", "entries": [as_row(each) for each in entries]}
    standin.answer("GET /api/v1/leaderboards/digits", board)
    previewed = board | {"preview": {"note": note, "hidden": ["s2"]}}
    standin.answer("GET /api/v1/leaderboards/digits/preview", previewed)

    ran = finishline("board", "digits", "--preview", "--q", "a", "--token", "fl_o")

    assert standin.asked[0].path == "/api/v1/leaderboards/digits/preview?q=a&limit=50"
    assert standin.asked[0].headers["Authorization"] == "Bearer fl_o"
    assert ran.out.splitlines()[:2] == [note, "under embargo: s2"]
    plain = finishline("board", "digits", "--token", "fl_o")
    assert "embargo" not in plain.out


def test_a_board_names_what_was_scored_by_other_rules(finishline, standin):
    def entry(name, sha256):
        return {"rank": 1, "submission_id": name, "benchmark_sha256": sha256 * 32}

    entries = [entry("s1", "aa"), entry("s2", "bb"), entry("s3", "cc"), entry("s4", "bb")]
    board = {"benchmark": "digits", "entries": [as_row(each) for each in entries]}
    board["other_rules"] = {"bb" * 32: "version 1, other target"}
    standin.answer("GET /api/v1/leaderboards/digits", board)
    for kind in ("train", "inference"):
        board["kind"] = kind
        *_, last = finishline("board", "digits").out.splitlines()
        assert last == "other rules, not comparable (version 1, other target): s2, s4"


def test_an_empty_board_says_whether_others_were_left_out(finishline, standin):
    standin.answer("GET /api/v1/leaderboards/digits", {"benchmark": "digits", "entries": []})
    assert finishline("board", "digits").out.startswith("No submissions yet.")
    rejected = finishline("board", "digits", "--status", "rejected").out
    assert rejected == "No submission matches the filters.\n"


def test_a_board_and_a_submission_say_how_they_are_known(finishline, standin):
    entry = {"rank": None, "submission_id": "s1", "evidence": "claimed",
             "check": "epochs_agree", "tta_seconds": 2.0, "duplicate_of": "s2"}  # fmt: skip
    measured = {"rank": 1, "submission_id": "s2", "evidence": "measured", "tta_seconds": 2.29,
                "measured_seconds": 2.75, "measured_runs": 10}  # fmt: skip
    board = {"benchmark": "digits", "entries": [as_row(measured), as_row(entry)]}
    standin.answer("GET /api/v1/leaderboards/digits", board)
    standin.answer("GET /api/v1/submissions/s1", SUBMISSION | entry)

    first, second = finishline("board", "digits").out.splitlines()[1:]
    assert first.split()[:3] == ["1", "2.75", "s"]
    assert "10 measured" in first
    assert second.split()[0] == "–"
    assert "claimed · epochs agree" in second
    shown = finishline("show", "s1").out
    assert "claimed · epochs agree" in shown
    assert "\nA duplicate of s2, which is trained and ranked in its place.\n" in shown
    assert "verification v1: queued" in shown
    assert finishline("show", "s1", "--json").json() == SUBMISSION | entry
    assert finishline("show", "../tokens").code == 6
    assert standin.asked[-1].path == "/api/v1/verifications/..%2Ftokens"


def test_benchmarks_and_workers_of_every_page_are_listed(finishline, standin):
    benchmark = {"id": "digits", "version": "1", "target": VERIFICATION["target"],
                 "clock": "mlperf", "runs": {"count": 3, "dropped": 0}, "divisions": ["closed"],
                 "replayable": True, "submissions": 0}  # fmt: skip
    standin.answer("GET /api/v1/benchmarks", {"benchmarks": [benchmark]})
    worker = {"name": "local", "hardware_class": "cpu", "state": "paused", "alive": True,
              "last_seen_at": "2026-01-01T00:00:00Z", "system": SYSTEM, "held": "paused",
              "held_by": "olga", "held_at": "2026-01-01T00:00:00Z",
              "held_because": "new [fans]"}  # fmt: skip
    others = [{"name": name, "system": {}} for name in "ab"]
    standin.answer("GET /api/v1/workers", {"workers": others, "next_cursor": "alive.b"})
    standin.answer("GET /api/v1/workers", {"workers": [worker], "next_cursor": None})
    assert "top-1 accuracy ≥ 97.50 %" in finishline("board").out
    assert finishline("admin", "worker", "list", "--json").json() == {"workers": [*others, worker]}
    assert "cursor=alive.b" in standin.asked[2].path
    listed = finishline("admin", "worker", "list").out
    assert "local   cpu" in listed
    assert listed.endswith("local paused by olga since 2026-01-01 00:00 UTC: new [fans]\n")


@pytest.mark.parametrize(
    ("entries", "why", "told"),
    [
        ("anyone", None, "w1 trains code submissions of anyone: a-1, b-2"),
        ("known", "no cgroup",
         "w1 trains code submissions of approved users (no cgroup): a-1, b-2"),
        ("off", "no [bubblewrap]", "w1 trains no code submissions (no [bubblewrap])"),
    ],
)  # fmt: skip
def test_workers_tell_whose_packages_they_train(entries, why, told, finishline, standin):
    box = {"entries": entries, "why": why, "environments": {"a-1": "ab", "b-2": "cd"}}
    standin.answer("GET /api/v1/workers", {"workers": [{"name": "w1", "box": box}]})
    assert finishline("admin", "worker", "list").out.splitlines()[-1] == told


def test_a_worker_is_shown_after_an_order(finishline, standin):
    paused = {"name": "w 1", "state": "paused", "held": "paused", "held_by": "olga",
              "held_at": "2026-01-01T00:00:00Z", "held_because": "fans"}  # fmt: skip
    standin.answer("PATCH /api/v1/workers/w%201", {"worker": paused})
    assert finishline("admin", "worker", "set", "w 1", "pause").code == 2  # Without a reason.
    said = finishline("admin", "worker", "set", "w 1", "pause", "--reason", "fans").out
    assert said.endswith("w 1 paused by olga since 2026-01-01 00:00 UTC: fans\n")
    assert finishline("admin", "worker", "set", "w 1", "resume").code == 0
    assert [json.loads(asked.body) for asked in standin.asked] == [
        {"paused": True, "reason": "fans"}, {"paused": False},
    ]  # fmt: skip


def test_the_queue_is_paused_resumed_and_shown(finishline, standin):
    standin.answer("PATCH /api/v1/queue", {"classes": []})
    assert (
        "Every queue is paused"
        in finishline("admin", "queue", "set", "pause", "--reason", "move").out
    )
    assert "Every queue is resumed" in finishline("admin", "queue", "set", "resume").out
    assert [json.loads(asked.body) for asked in standin.asked] == [
        {"paused": True, "reason": "move"}, {"paused": False},
    ]  # fmt: skip

    item = {"position": 1, "verification_id": "v1", "kind": "replay", "benchmark": "digits",
            "asked_at": "2026-01-01T00:00:00Z", "expected_start": None,
            "why_unknown": "nobody knows"}  # fmt: skip
    standin.answer("GET /api/v1/queue", {"classes": [{"hardware_class": "cpu", "waiting": [item]}]})
    pause = {"by": "olga", "since": "2026-01-01T00:00:00Z", "reason": "we move"}
    standin.answer("GET /api/v1/queue", {"paused": pause, "classes": []})
    listed = finishline("admin", "queue", "list").out
    assert "v1" in listed
    assert "nobody knows" in listed
    assert "2026-01-01 00:00Z" in listed
    assert finishline("admin", "queue", "list").out.splitlines() == [
        "The queue is empty.",
        "every queue paused by olga since 2026-01-01 00:00 UTC: we move",
    ]


@pytest.mark.parametrize(
    ("count", "told"), [(2, "2 under embargo wait."), (1, "1 under embargo waits.")]
)
def test_what_waits_under_embargo_is_counted(finishline, standin, count, told):
    waiting = {"hardware_class": "cpu", "waiting": [], "under_embargo": count}
    standin.answer("GET /api/v1/queue", {"classes": [waiting]})
    assert finishline("admin", "queue", "list").out.splitlines() == [
        told,
        "Nothing else is queued.",
    ]


@pytest.mark.parametrize(
    ("command", "path"),
    [("board digits", "/leaderboards/digits"), ("board", "/benchmarks"),
     ("benchmark calibrate list",
     "/calibrations"), ("benchmark calibrate show c1", "/calibrations/c1"),
     ("benchmark calibrate compare c1",
     "/calibrations/c1/compare"), ("admin price list", "/prices"),
     ("proof v1", "/verifications/v1/proof"), ("admin worker list", "/workers"),
     ("admin queue list", "/queue"),
     ("compare v1 v2", "/verifications/compare"),
     ("verify --list", "/verifications"), ("show s1", "/submissions/s1")],
)  # fmt: skip
def test_reads_send_the_token_which_a_server_for_members_needs(finishline, standin, command, path):
    standin.refuse(f"GET /api/v1{path}", 404, "nothing")
    assert finishline(*command.split(), "--token", "fl_mine").code == 6
    assert standin.asked[0].headers["Authorization"] == "Bearer fl_mine"
