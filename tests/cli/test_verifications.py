"""Calibrations, head-to-heads and reruns against a server that gives canned answers."""

import json
import tomllib

import pytest


def size(finished, **changes):
    return {
        "batch_size": 64, "planned": 2, "finished": finished, "under_way": 0, "reached": finished,
        "epochs": [8.0] * finished, "mean": 8.25, "stdev": 0.5, "band": [],
    } | changes  # fmt: skip


RUNNING = {
    "id": "c1", "benchmark": "digits", "version": 3, "state": "running", "judges": False,
    "batch_sizes": [64], "runs": 2, "runs_planned": 2, "runs_finished": 0, "adopted_at": None,
    "sizes": [size(0)], "chunks": [],
}  # fmt: skip


DONE = RUNNING | {"state": "done", "runs_finished": 2, "sizes": [size(2)]}


POST = "POST /api/v1/calibrations"


GET = "GET /api/v1/calibrations/c1"


def test_calibrate_asks_for_runs_at_each_batch_size(finishline, standin):
    standin.answer(POST, RUNNING, status=201)
    given = ("--runs", "20", "--reason", "new torch", "--token", "fl_o")
    ran = finishline("benchmark", "calibrate", "digits", "--batch-sizes", "32,64", *given)
    assert ran.code == 0
    (asked,) = standin.asked
    assert json.loads(asked.body) == {
        "benchmark": "digits",
        "batch_sizes": [32, 64],
        "runs": 20,
        "reason": "new torch",
    }
    assert asked.headers["Authorization"] == "Bearer fl_o"
    assert "Calibration c1: number 3 of digits, running, 0 of 2 runs" in ran.out


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("incomplete", 3), ("cancelled", 3)])
def test_watching_ends_with_the_calibration(state, code, finishline, standin):
    standin.answer(POST, DONE | {"state": state}, status=201)
    command = "benchmark calibrate digits --batch-sizes 64 --runs 2 --watch --json"
    ran = finishline(*command.split())
    assert (ran.code, ran.json()["state"]) == (code, state)


def test_a_calibration_goes_on_with_more_runs(finishline, standin):
    standin.answer(GET, DONE)
    standin.answer(f"{POST}/c1/continuation", RUNNING)
    ran = finishline(
        "benchmark", "calibrate", "digits", "--continue", "c1", "--runs", "40", "--json"
    )
    assert (ran.code, ran.json()["state"]) == (0, "running")
    assert json.loads(standin.asked[1].body) == {"batch_sizes": None, "runs": 40}
    other = finishline("benchmark", "calibrate", "cifar10", "--continue", "c1")
    assert (other.code, len(standin.asked)) == (2, 3)


def test_show_has_a_line_for_each_batch_size_and_says_what_judges(finishline, standin):
    for outdated in (True, False):
        standin.answer(GET, DONE | {"judges": True, "outdated": outdated})
    earlier = finishline("benchmark", "calibrate", "show", "c1").out
    assert "for an earlier definition: not used for new replays" in earlier
    out = finishline("benchmark", "calibrate", "show", "c1").out
    assert "2 of 2 runs, used for new replays" in out
    assert out.splitlines()[-1].split() == ["64", "2/2", "2", "8.25", "0.50", "–"]


def test_the_toml_holds_the_runs_that_went_to_their_end_and_what_made_them(finishline, standin):
    system = {"processor": "x\n[evil]", "software": {"torch": "2.13.0", "numpy": "2.4"}}
    run = {"batch_size": 64, "seed": 7, "status": "reached", "quality": [50.0, 98.1234]}
    runs = [run | {"system": system}, run | {"seed": 8, "status": "failed", "system": system}]
    answer = {
        "id": "c1", "benchmark": "digits", "version": 3, "runs_sha256": "ab", "runs": runs,
        "created_at": "2026-11-21T10:00:00Z",
    }  # fmt: skip
    standin.answer(f"{GET}/runs", answer)
    out = finishline("benchmark", "calibrate", "show", "c1", "--toml").out
    assert tomllib.loads(out) == {
        "reference_runs": [{"batch_size": 64, "seed": 7, "quality": [50.0, 98.1234]}]
    }
    assert "# Made on x [evil], numpy 2.4, torch 2.13.0." in out
    assert finishline("benchmark", "calibrate", "show", "c1", "--runs", "--json").json() == answer


def test_list_compare_adopt_and_cancel(finishline, standin):
    standin.answer("GET /api/v1/calibrations", {"calibrations": [DONE]})
    comparison = {
        "first": "c1", "second": None, "benchmark": "digits",
        "sizes": [{"batch_size": 64, "first": {"mean": 8.0}, "second": {"mean": 8.5},
                   "difference": -0.5, "p_value": 0.0123,
                   "band": [{"mean_difference": -1.5}, {"mean_difference": 0.25}]}],
    }  # fmt: skip
    standin.answer(f"{GET}/compare", comparison)
    standin.answer(f"{POST}/c1/adoption", DONE)
    standin.answer(f"{POST}/c1/cancellation", DONE)

    assert finishline("benchmark", "calibrate", "list").out.splitlines()[-1].split()[:5] == [
        "c1", "digits", "3", "done", "2/2",
    ]  # fmt: skip
    compared = (
        finishline("benchmark", "calibrate", "compare", "c1", "c2").out.splitlines()[-1].split()
    )
    assert compared == ["64", "8.00", "8.50", "-0.50", "0.0123", "1.50"]
    assert standin.asked[-1].path.endswith("/c1/compare?with=c2")
    assert finishline("benchmark", "calibrate", "adopt", "c1", "--reason", "better").code == 0
    assert json.loads(standin.asked[-1].body) == {"reason": "better"}
    assert finishline("benchmark", "calibrate", "cancel", "c1").code == 0
    assert finishline("benchmark", "calibrate", "adopt", "c1").code == 2


RUN = {"run": 0, "seed": 7, "ending": "reached", "seconds": 0.832, "epochs": 8.0}


HEAD_TO_HEAD = {
    "challenger": "s1", "holder": "s2", "order": ["challenger", "holder", "holder", "challenger"],
    "pairs": [], "time": None, "threshold": 0.00083, "continued_by": None,
}  # fmt: skip


QUEUED = {
    "id": "d1", "kind": "head_to_head", "state": "queued", "runs_planned": 10,
    "head_to_head": HEAD_TO_HEAD,
    "target": {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"},
    "control_points": [], "waiting_for": None,
}  # fmt: skip


PAIRS = [
    {"number": 1, "challenger": RUN, "holder": RUN | {"seconds": 1.632}, "ratio": 0.5098,
     "winner": "challenger"},
    {"number": 2, "challenger": RUN, "holder": RUN | {"seconds": None, "ending": "missed"},
     "ratio": None, "winner": "challenger"},
]  # fmt: skip


ENDED = QUEUED | {
    "state": "done", "outcome": "challenger_faster",
    "head_to_head": HEAD_TO_HEAD | {"pairs": PAIRS},
    "reasons": [
        {"code": "head_to_head_time", "message": "the challenger is faster", "numbers": {}}
    ],
}  # fmt: skip


EVALUATION = {
    "attempt": 1, "sequence": 0, "run": 1, "kind": "evaluation", "epoch": 1.0, "seconds": 0.1,
    "quality": 15.2,
}  # fmt: skip


def test_a_head_to_head_is_asked_for_with_both_sides_and_a_reason(finishline, standin):
    standin.answer("POST /api/v1/head-to-heads", QUEUED, status=201)
    ran = finishline(
        "verify", "--head-to-head", "s1", "s2", "--reason", "record", "--token", "fl_o"
    )

    assert ran.code == 0
    assert f"Head-to-head d1 is queued: {standin.url}/verifications/d1" in ran.out
    assert json.loads(standin.asked[0].body) == {
        "challenger": "s1", "holder": "s2", "reason": "record",
    }  # fmt: skip
    assert finishline("verify", "--head-to-head", "s1", "s2", "--json").json() == QUEUED


def test_watching_a_measurement_names_its_control(finishline, standin):
    queued = QUEUED | {"kind": "entry", "head_to_head": None, "control_runs": [1]}
    standin.answer("GET /api/v1/verifications/d1", queued)
    end = queued | {"state": "done", "outcome": "verified", "reasons": []}
    failure = {"message": "the machine was busy", "next_step": "It is trained again."}
    again = queued | {"attempts": [{"number": 1, "failure": failure}]}
    states = [("state", queued), ("state", again), ("state", again)]
    standin.stream("d1", *states, ("replay", EVALUATION), ("end", end))
    ran = finishline("verify", "d1", "--watch")

    assert ran.code == 0
    assert "run 2 shortcut test  evaluation 1" in ran.out
    told = "Attempt 1 ended early: the machine was busy. It is trained again."
    assert ran.out.count(told) == 1


def test_watching_names_the_sides_and_ends_with_the_pairs_and_the_verdict(finishline, standin):
    standin.answer("POST /api/v1/head-to-heads", QUEUED, status=201)
    standin.stream("d1", ("state", QUEUED), ("replay", EVALUATION), ("end", ENDED))
    ran = finishline("verify", "--head-to-head", "s1", "s2", "--watch")

    assert ran.code == 0
    assert "run 2 holder  epoch 1      15.20 %" in ran.out
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["1", "0.832", "s", "1.632", "s", "0.510", "challenger"] in lines
    assert ["2", "0.832", "s", "missed", "–", "challenger"] in lines
    assert lines[-2] == ["Verdict:", "challenger", "faster"]


def test_watching_goes_on_with_the_pairs_that_follow(finishline, standin):
    standin.answer("POST /api/v1/head-to-heads", QUEUED, status=201)
    goes_on = {
        "outcome": "continues",
        "head_to_head": HEAD_TO_HEAD | {"pairs": PAIRS[:1], "continued_by": "d2"},
    }
    standin.stream("d1", ("end", ENDED | goes_on))
    standin.answer("GET /api/v1/verifications/d2", QUEUED | {"id": "d2"})
    standin.stream("d2", ("end", ENDED | {"id": "d2", "outcome": "not_proven"}))
    ran = finishline("verify", "--head-to-head", "s1", "s2", "--watch")

    assert ran.code == 0
    words = " ".join(ran.out.split())
    assert words.index("More pairs are needed.") < words.index("Verdict: not proven")
    assert f"Verification d2: {standin.url}/verifications/d2" in ran.out


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("challenger_faster", 0), ("not_proven", 0), ("inconclusive", 3), (None, 3)],
)
def test_head_to_head_without_result_is_code_3(finishline, standin, outcome, code):
    standin.answer("POST /api/v1/head-to-heads", QUEUED, status=201)
    standin.stream("d1", ("end", ENDED | {"outcome": outcome}))
    assert finishline("verify", "--head-to-head", "s1", "s2", "--watch").code == code


BATCH = {
    "dry_run": True,
    "replays": [{"submission_id": "s1", "verification_id": None, "runs_expected": 3.5,
                 "seconds_expected": 70.0, "accelerators": 0, "basis": "run limit"}],
    "skipped": [{"submission_id": "s2", "why": "Verification v9 is under way."}],
    "gpu_seconds_expected": 0.0, "cpu_seconds_expected": 70.0,
}  # fmt: skip


REPLAYED_RUN = {"index": 0, "seed": 1, "status": "reached", "tta_seconds": 1.5,
       "epochs_to_target": 8.0, "best_quality": 98.0}  # fmt: skip


SIDE = {"id": "v1", "state": "done", "outcome": "verified", "published": True, "worker": "w",
        "hardware_class": "cpu", "reasons": [{"code": "reached_target"}],
        "runs": [REPLAYED_RUN]}  # fmt: skip


COMPARISON = {
    "submission_id": "s1", "benchmark": "digits", "first": SIDE,
    "second": SIDE | {"id": "v2", "outcome": "rejected", "published": False, "runs": []},
    "same_band": False,
    "differences": [{"figure": "tta_seconds", "first_mean": 1.5, "second_mean": None,
                     "ratio": None, "p_value": None, "comparable": False}],
    "systems": [{"field": "threads", "first": "1", "second": "2"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (["s1", "s2"], {"submissions": ["s1", "s2"], "dry_run": False}),
        (["s1", "--dry-run"], {"submissions": ["s1"], "dry_run": True}),
        (["--benchmark", "digits", "--status", "verified"],
         {"benchmark": "digits", "status": "verified", "dry_run": False}),
        (["--benchmark", "digits", "--dry-run"],
         {"benchmark": "digits", "status": None, "dry_run": True}),
    ],
)  # fmt: skip
def test_several_submissions_are_asked_for_at_once(finishline, standin, arguments, body):
    standin.answer("POST /api/v1/verifications/batch", BATCH)
    ran = finishline("verify", *arguments, "--reason", "driver")

    assert ran.code == 0
    assert json.loads(standin.asked[0].body) == body | {"reason": "driver"}
    assert "skipped s2: Verification v9 is under way." in ran.out
    last = ran.out.splitlines()[-1]
    assert last.startswith("1 would be queued, 1 skipped; expected 0")
    assert finishline("verify", *arguments, "--reason", "driver", "--json").json() == BATCH


def test_batch_tells_each_verification(finishline, standin):
    queued = {**BATCH["replays"][0], "verification_id": "v1"}
    for replays in ([], [queued]):
        batch = BATCH | {"dry_run": False, "replays": replays}
        standin.answer("POST /api/v1/verifications/batch", batch)
    asked = ("verify", "s1", "s2", "--reason", "driver")

    assert finishline(*asked).code == 1, "none of those named is replayed"
    ran = finishline(*asked)

    assert (ran.code, "s1          v1" in ran.out) == (0, True)
    assert "finishline verify VERIFICATION --watch" in ran.out
    assert f"{standin.url}/verifications/VERIFICATION" in ran.out


def test_a_decision_is_sent_with_its_reason(finishline, standin):
    view = {"id": "v1", "outcome": "rejected"}
    standin.answer("POST /api/v1/verifications/v1/decision", view)
    ran = finishline("admin", "review", "v1", "keep", "--reason", "throttled")

    assert (ran.code, ran.out) == (0, "Verdict of v1, rejected: keep. throttled\n")
    assert json.loads(standin.asked[0].body) == {"decision": "keep", "reason": "throttled"}
    assert (
        "rejected: publish. x"
        in finishline("admin", "review", "v1", "publish", "--reason", "x").out
    )


def test_two_verifications_are_shown_side_by_side(finishline, standin):
    standin.answer("GET /api/v1/verifications/v1", {"id": "v1"})
    standin.answer("GET /api/v1/verifications/compare", COMPARISON)
    ran = finishline("compare", "v1", "v2")

    assert ran.code == 11
    assert standin.asked[1].path.endswith("/compare?first=v1&second=v2")
    rows = [line.split() for line in ran.out.splitlines()]
    assert [row[1:4] for row in rows[1:3]] == [
        ["done", "verified", "yes"], ["done", "rejected", "no"],
    ]  # fmt: skip
    assert ["threads:", "1", "|", "2"] in rows
    assert "other hardware" in ran.out
    assert "different bands" in ran.out


@pytest.mark.parametrize(
    ("ratio", "is_clear", "code", "faster"),
    [(0.8, True, 10, "a"), (1.25, True, 0, "b"), (0.8, False, 11, None), (None, False, 11, None)],
)
def test_two_ids_end_with_who_is_faster(finishline, standin, ratio, is_clear, code, faster):
    pair = {"told_apart": is_clear, "ratio": ratio, "sentence": "s1 takes less time than s2."}
    standin.answer("GET /api/v1/compare", {"pairs": [pair]})
    ran = finishline("compare", "s1", "s2")
    assert (ran.code, ran.out) == (code, "s1 takes less time than s2.\n")
    assert finishline("compare", "s1", "s2", "--json").json()["faster"] == faster

    times = {"figure": "tta_seconds", "ratio": ratio, "p_value": 0.01 if is_clear else 0.2}
    standin.answer("GET /api/v1/verifications/v1", {"id": "v1"})
    standin.answer("GET /api/v1/verifications/compare", COMPARISON | {"differences": [times]})
    assert finishline("compare", "v1", "v2").code == code


def test_the_whole_log_is_kept_in_a_file_page_by_page(finishline, standin, tmp_path):
    record = {"id": 2, "at": "2026-01-01T00:00:00+00:00", "actor": "olivia [x]", "reason": None,
              "action": "token.create", "subject_kind": "token", "subject_id": "7"}  # fmt: skip
    standin.answer("GET /api/v1/audit", {"records": [record], "next_before": 2})
    standin.answer("GET /api/v1/audit", {"records": [record | {"id": 1}], "next_before": None})
    path = tmp_path / "log.json"
    ran = finishline("admin", "audit", "--out", str(path), "--token", "fl_o")

    assert ran.code == 0
    assert [item["id"] for item in json.loads(path.read_text())["records"]] == [1, 2]
    assert "before=2" in standin.asked[1].path
    shown = finishline("admin", "audit", "--limit", "5")
    assert "olivia [x]" in shown.out
    assert "token 7" in shown.out
    assert finishline("admin", "audit", "--out", str(tmp_path / "no" / "log.json")).code == 1


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"records": 1}', '{"records": [1]}', '{"records": [{"id": "1"}]}']
)
def test_a_file_that_is_no_log_is_refused(finishline, tmp_path, content):
    path = tmp_path / "log.json"
    path.write_text(content)
    ran = finishline("proof", "--log", str(path))

    assert (ran.code, "No audit log in" in ran.err) == (1, True)
