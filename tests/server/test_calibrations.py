"""Calibrations: asked for, made chunk by chunk, continued, adopted, and their pages."""

import shutil
from dataclasses import replace
from functools import partial
from statistics import fmean

import pytest

from finishline.rules.measurements import PrecisionAudit
from finishline.rules.proof.check import check_proof
from finishline.rules.verification.messages import Failure
from server.base.models import Verification
from tests.server.test_console import Console
from tests.support.build import Replay, build_report, seal_of, taken
from tests.support.copies import serving
from tests.support.pages import BROWSER, words_of
from tests.support.proofs import predicate_in
from tests.support.streams import stream_report

CALIBRATIONS = "/api/v1/calibrations"
BODY = {"benchmark": "digits", "batch_sizes": [64, 32], "runs": 12, "reason": "new torch"}
CURVE = [14.0, 45.0, 73.0, 85.0, 91.0, 95.5, 97.4, 98.1, 98.3]


@pytest.fixture
def start(olivia):
    return lambda **changes: olivia.post(CALIBRATIONS, BODY | changes)


@pytest.fixture
def post(olivia):
    def send(calibration_id, step, body=None):
        return olivia.post(f"{CALIBRATIONS}/{calibration_id}/{step}", body)

    return send


@pytest.fixture
def chunk_of(client, database, walter):
    return partial(Replay, client, database, walter, None)


@pytest.fixture
def train(database, chunk_of):
    def make(chunk_id, *, failure=None, curve=CURVE, touched=None, grant=None):
        chunk = chunk_of(chunk_id)
        grant = grant or chunk.claim().json()
        report = build_report(chunk.seeds(), qualities=curve)
        report = replace(report, runs=[_to_its_end(run) for run in report.runs])
        if failure is not None:
            report = replace(report, runs=[], failure=failure)
        if touched is not None:
            report = replace(report, precision=PrecisionAudit(touched, {touched: 9}, False))
        stream_report(database, grant["attempt_id"], report)
        return chunk.post_report(grant, report)

    return make


def _to_its_end(run):
    shift = (run.seed % 7) * 0.05
    evaluations = [replace(e, quality=e.quality + shift) for e in run.evaluations]
    at_target = next((e.seconds for e in evaluations if e.quality >= 97.5), None)
    status = "not_reached" if at_target is None else "reached"
    return replace(run, evaluations=evaluations, status=status, tta_seconds=at_target)


@pytest.fixture
def calibrated(start, train):
    view = start().json()
    for chunk in chunks_of(view):
        assert train(chunk).status_code == 200
    return view


def get(client, calibration_id, part=""):
    return client.get(f"{CALIBRATIONS}/{calibration_id}{part}").json()


def chunks_of(view):
    return [chunk["verification_id"] for chunk in view["chunks"]]


def test_it_is_planned_in_chunks_whose_runs_are_kept_counted_and_listed(start, post, train, client):
    view = taken(start())
    assert (view["benchmark"], view["version"], view["state"]) == ("digits", 1, "running")
    assert (view["batch_sizes"], view["runs"], view["runs_planned"]) == ([32, 64], 12, 24)
    assert (view["reason"], view["requested_by"]) == ("new torch", "olivia")
    planned = [(c["batch_size"], c["runs"], c["state"]) for c in view["chunks"]]
    assert planned == [(size, 6, "queued") for size in (32, 32, 64, 64)]
    first, *others = chunks_of(view)
    chunk = client.get(f"/api/v1/verifications/{first}").json()
    assert (chunk["kind"], chunk["calibration_id"]) == ("calibration", view["id"])
    assert (chunk["submission_id"], chunk["seeds"]) == (None, None)
    assert get(client, view["id"]) == view
    train(first)
    half = get(client, view["id"])
    assert (half["state"], half["runs_finished"]) == ("running", 6)
    assert [size["finished"] for size in half["sizes"]] == [6, 0]
    for each in others:
        train(each)

    whole = get(client, view["id"])
    assert (whole["state"], whole["runs_finished"]) == ("done", 24)
    assert whole["ended_at"] is not None
    for size in whole["sizes"]:
        assert (size["finished"], size["reached"], len(size["epochs"])) == (12, 12, 12)
        assert set(size["epochs"]) <= {7.0, 8.0}
        assert size["mean"] == pytest.approx(sum(size["epochs"]) / 12)
        assert [point["index"] for point in size["band"]] == list(range(1, 10))
    runs = get(client, view["id"], "/runs")["runs"]
    assert len({run["seed"] for run in runs}) == 24
    assert [(len(run["quality"]), len(run["seconds"])) for run in runs] == [(9, 9)] * 24
    assert {run["system"]["software"]["torch"] for run in runs} == {"2.13.0"}
    assert {run["verification_id"] for run in runs} == {first, *others}
    # What a chunk was sealed with can be checked at its end.
    chunk = client.get(f"/api/v1/verifications/{first}").json()
    settings = [{"batch_size": 32.0}] * 6
    sealed = {
        "benchmark_sha256": view["benchmark_sha256"], "calibration": view["id"],
        "hyperparameters": settings, "kind": "calibration", "runs": 6, "submission": None,
    }  # fmt: skip
    assert seal_of(**sealed, nonce=chunk["nonce"], seeds=chunk["seeds"]) == chunk["seal"]
    assert chunk["hyperparameters"] == settings

    page = client.get("/calibrations?benchmark=digits", headers=BROWSER).text
    assert f'href="/calibrations/{view["id"]}"' in page
    assert "1 ● done 32, 64 fp32 24 of 24 not adopted" in words_of(page)
    none = words_of(client.get("/calibrations?benchmark=cifar10", headers=BROWSER).text)
    assert "finishline benchmark calibrate cifar10" in none
    later = start().json()
    assert later["version"] == 2
    listed = client.get(CALIBRATIONS).json()["calibrations"]
    assert [(one["id"], one["runs_finished"]) for one in listed] == [
        (later["id"], 0), (view["id"], 24),
    ]  # fmt: skip
    for query, found in (({"benchmark": "cifar10"}, 0), ({"limit": 1}, 1)):
        assert len(client.get(CALIBRATIONS, params=query).json()["calibrations"]) == found
    assert client.get(CALIBRATIONS, params={"limit": 0}).status_code == 422

    more = post(view["id"], "continuation", {"runs": 14, "batch_sizes": [128]}).json()
    assert (more["batch_sizes"], more["runs"]) == ([32, 64, 128], 14)
    added = [(c["batch_size"], c["runs"]) for c in more["chunks"][4:]]
    assert added == [(32, 2), (64, 2), (128, 7), (128, 7)]
    assert post(view["id"], "continuation", {"runs": 14}).status_code == 409


def test_a_chunk_trains_to_the_end_and_judges_nobody(start, chunk_of, train, client):
    view = start(batch_sizes=[32], runs=5).json()
    (name,) = chunks_of(view)
    address = f"/verifications/{name}"
    assert client.get(f"/api/v1{address}").json()["hyperparameters"] is None
    assert "The reference is trained to its end" in client.get(address).text
    assert "· calibration</small>" in client.get("/").text
    chunk = chunk_of(name)
    grant = chunk.claim().json()
    job = grant["job"]
    assert (job["purpose"], job["submission_id"]) == ("calibration", None)
    assert {training["stop_at"] for training in job["trainings"]} == {"end"}
    settings = [training["settings"] for training in job["trainings"]]
    assert [(each["batch_size"], each["momentum"]) for each in settings] == [(32.0, 0.9)] * 5
    assert (job["control_points"], job["division"]) == ([], "closed")
    event = {"sequence": 0, "run": 4, "kind": "evaluation", "quality": 50.0, "epoch": 1.0}
    chunk.post(grant, [event])
    (size,) = get(client, view["id"])["sizes"]
    assert (size["finished"], size["under_way"]) == (0, 4)

    answer = train(name, grant=grant).json()
    assert (answer["state"], answer["outcome"]) == ("done", None)
    assert "The reference was measured in 5 runs." in client.get(address).text
    assert client.get(f"{address}/charts/replay.json").status_code == 200
    assert address not in client.get("/").text  # It gives no verdict about anybody.
    (listed,) = client.get("/api/v1/verifications").json()["verifications"]
    assert (listed["kind"], listed["submission_id"]) == ("calibration", None)
    assert "event: end" in client.get(f"/api/v1{address}/events").text


RULES_FAILURE = Failure("rules", "data_set_differs", "another data set", "install the right one")


def test_a_failed_chunk_loses_no_finished_one_and_is_made_up_for(start, post, train, client):
    view = start().json()
    first, *others = chunks_of(view)
    answer = train(first, failure=RULES_FAILURE).json()
    assert (answer["state"], answer["outcome"]) == ("failed", None)
    for each in others:
        train(each)
    failed = get(client, view["id"])
    assert (failed["state"], failed["runs_finished"]) == ("incomplete", 18)
    assert [c["state"] for c in failed["chunks"]] == ["failed", "done", "done", "done"]
    why = [c["why"] for c in failed["chunks"]]
    assert (RULES_FAILURE.message in why[0], why[1:]) == (True, [None] * 3)

    went_on = post(view["id"], "continuation").json()
    assert went_on["state"] == "running"
    assert [(c["batch_size"], c["runs"]) for c in went_on["chunks"][4:]] == [(32, 6)]
    train(chunks_of(went_on)[4])
    assert get(client, view["id"])["state"] == "done"


def test_a_run_that_diverged_counts_but_has_no_curve_to_judge_by(start, train, client):
    view = start(batch_sizes=[64], runs=2).json()
    train(chunks_of(view)[0], curve=[10.0, 20.0])

    ended = get(client, view["id"])
    (size,) = ended["sizes"]
    assert ended["state"] == "done"
    assert (size["finished"], size["reached"], size["mean"]) == (2, 0, None)


def test_a_cancelled_one_keeps_what_is_finished(start, post, train):
    view = start().json()
    train(chunks_of(view)[0])
    cancelled = post(view["id"], "cancellation").json()

    assert (cancelled["state"], cancelled["runs_finished"]) == ("cancelled", 6)
    assert [c["state"] for c in cancelled["chunks"]] == ["done", *["cancelled"] * 3]
    assert post(view["id"], "cancellation").status_code == 409
    went_on = post(view["id"], "continuation").json()
    assert sum(c["runs"] for c in went_on["chunks"] if c["state"] == "queued") == 18


def test_adopted_one_judges_what_is_planned_afterwards(calibrated, post, replay, client, olivia):
    before = replay.view()
    view = post(calibrated["id"], "adoption", {"reason": "torch 2.13"})
    assert view.status_code == 200, view.text
    assert (view.json()["judges"], view.json()["adopted_by"]) == (True, "olivia")
    assert view.json()["adopted_because"] == "torch 2.13"

    assert replay.view()["control_points"] == before["control_points"]
    assert before["calibration_id"] is None
    first = replay.train().json()
    assert first["outcome"] == "verified"
    assert _reference_runs(replay.view()) == 40 + before["runs_planned"]

    replay.ask_again(olivia)
    planned = replay.view()
    assert planned["calibration_id"] == calibrated["id"]
    # The calibration's runs have nine evaluations each, those of the file twenty.
    assert len(planned["control_points"]) == 9
    replay.train()
    assert _reference_runs(replay.view()) == 12 + planned["runs_planned"]
    runs = get(client, calibrated["id"], "/runs")
    view = replay.view()
    sealed = {
        "benchmark_sha256": calibrated["benchmark_sha256"], "calibration": calibrated["id"],
        "reference_runs_sha256": runs["runs_sha256"], "runs": view["runs_planned"],
        "submission": view["submission_id"],
    }  # fmt: skip
    opened = {name: view[name] for name in ("nonce", "seeds")}
    assert planned["seal"] == seal_of(**sealed, **opened)

    address = f"/api/v1/verifications/{replay.verification_id}/proof?format=dsse"
    proof = predicate_in(client.get(address))
    judged_by = {"seal", "calibration", "band", "runs", "verdict"}
    assert judged_by <= {check.name for check in check_proof(proof, None) if check.result == "pass"}
    proof["calibration"]["runs"][0]["quality"][0] += 0.5
    assert _failed(proof) >= {"parts", "calibration"}
    proof["calibration"] = None
    assert _failed(proof) >= {"parts", "calibration", "band"}


def _failed(proof):
    return {check.name for check in check_proof(proof, None) if check.result == "fail"}


def _reference_runs(view):
    return int(
        next(
            reason["numbers"]["reference_runs"]
            for reason in view["reasons"]
            if "reference_runs" in reason["numbers"]
        )
    )


def test_adopted_one_changes_no_more(calibrated, start, post, train, client):
    address = "/benchmarks/digits/convergence"
    before = client.get(f"/api/v1{address}").json()
    assert before["calibration"] is None
    reason = {"reason": "first"}
    for body in (None, {}, {"reason": ""}):
        assert post(calibrated["id"], "adoption", body).status_code == 422
    assert post(calibrated["id"], "adoption", reason).status_code == 200
    assert post(calibrated["id"], "adoption", reason).status_code == 409
    assert post(calibrated["id"], "continuation", {"runs": 100}).status_code == 409
    # It stands beside the points of the file.
    after = client.get(f"/api/v1{address}").json()
    assert after["points"] == before["points"]
    assert after["calibration"]["id"] == calibrated["id"]
    epochs = {s["batch_size"]: sorted(s["epochs"]) for s in get(client, calibrated["id"])["sizes"]}
    drawn = {p["batch_size"]: p["mean"] for p in after["calibration"]["points"]}
    # As everywhere, the fastest and the slowest run are dropped.
    assert drawn == pytest.approx({size: fmean(runs[1:-1]) for size, runs in epochs.items()})
    assert "calibration 1, adopted" in client.get(address).text

    small = start(batch_sizes=[64], runs=5).json()
    assert post(small["id"], "adoption", reason).status_code == 409  # It is under way.
    train(chunks_of(small)[0])
    refused = post(small["id"], "adoption", reason)
    assert refused.status_code == 409
    assert "batch size 64 has 5 runs of at least 6" in refused.json()["detail"]
    later = start(batch_sizes=[64], runs=8).json()
    train(chunks_of(later)[0])
    assert get(client, later["id"])["judges"] is False
    assert post(later["id"], "adoption", {"reason": "second"}).json()["judges"] is True
    assert get(client, calibrated["id"])["judges"] is False


def test_a_precision_has_a_calibration_and_a_band_of_its_own(
    calibrated, start, post, train, replay, client, database, olivia, digits_submission, submit
):
    digits_submission.claim |= {"precision": "bf16", "notes": "mixed precision"}
    replay.submission_id = submit(digits_submission).json()["id"]
    verify = f"/api/v1/submissions/{replay.submission_id}/verifications"
    post(calibrated["id"], "adoption", {"reason": "of fp32"})
    refused = olivia.post(verify)
    assert refused.status_code == 422
    assert "`finishline benchmark calibrate digits --precision bf16 " in refused.json()["detail"]

    unknown = start(precision="fp64")
    assert (unknown.status_code, "fp32 or tf32 or bf16" in unknown.text) == (422, True)
    narrow = start(precision="bf16", batch_sizes=[64], runs=8).json()
    assert (calibrated["precision"], narrow["precision"]) == ("fp32", "bf16")
    chunk = chunks_of(narrow)[0]
    late = [14.0, 45.0, 72.0, 84.0, 90.0, 94.0, 95.0, 96.0, 97.9, 98.4]
    old = train(chunk, touched="fp32")  # A worker of before, which trains in fp32 all the same.
    assert (old.status_code, "expected bf16; update the worker" in old.text) == (422, True)
    assert train(chunk, curve=late, touched="bf16").status_code == 200
    assert post(narrow["id"], "adoption", {"reason": "of bf16"}).json()["judges"] is True
    assert get(client, calibrated["id"])["judges"] is True

    replay.ask_again(olivia)
    planned = replay.view()
    assert planned["calibration_id"] == narrow["id"]
    assert len(planned["control_points"]) == len(late)
    with database.read() as session:
        trainings = session.get_one(Verification, replay.verification_id).trainings
        assert {training.precision for training in trainings} == {"bf16"}
        assert {t.precision for t in session.get_one(Verification, chunk).trainings} == {"bf16"}
    replay.train(qualities=late)
    address = f"/api/v1/verifications/{replay.verification_id}/proof?format=dsse"
    proof = predicate_in(client.get(address))
    passed = {check.name for check in check_proof(proof, None) if check.result == "pass"}
    assert {"seal", "seeds", "calibration", "band", "verdict"} <= passed


def test_two_are_compared_and_one_with_the_file(calibrated, start, train, client):
    later = start(batch_sizes=[64, 128], runs=8).json()
    for chunk in chunks_of(later):
        train(chunk, curve=[quality - 0.6 for quality in CURVE])
    path = f"/compare?with={later['id']}"
    (size,) = get(client, calibrated["id"], path)["sizes"]

    assert size["batch_size"] == 64
    assert (size["first"]["runs"], size["second"]["runs"]) == (12, 8)
    assert size["difference"] == pytest.approx(size["first"]["mean"] - size["second"]["mean"])
    assert 0.4 < size["band"][0]["mean_difference"] < 0.8
    with_file = get(client, calibrated["id"], "/compare")
    assert (with_file["second"], [s["batch_size"] for s in with_file["sizes"]]) == (None, [32, 64])
    assert with_file["sizes"][0]["second"]["runs"] == 40


def test_a_benchmark_without_a_reference_is_not_calibrated(start, offer_archive):
    offer_archive("mlperf-v5.1-rgat")
    response = start(benchmark="mlperf-v5.1-rgat")

    assert response.status_code == 422
    assert "no reference model to calibrate" in response.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batch_sizes": []}, "batch_sizes"),
        ({"batch_sizes": [64, 64]}, "each size once"),
        ({"batch_sizes": [8]}, "expected whole numbers from 16 to 256"),
        ({"batch_sizes": [257]}, "expected whole numbers from 16 to 256"),
        ({"batch_sizes": [2**40]}, "batch_sizes"),
        ({"batch_sizes": "64"}, "batch_sizes"),
        ({"runs": 0}, "runs"),
        ({"runs": 201}, "runs"),
        ({"runs": True}, "body.runs: expected a whole number"),
        ({"reason": ""}, "reason"),
        ({"why": "x"}, "why"),
    ],
)
def test_a_bad_body_is_422_and_plans_nothing(changes, expected, start, row_counts, olivia):
    before = row_counts()
    response = start(**changes)

    assert response.status_code == 422
    assert expected in response.json()["detail"]
    assert row_counts() == before


def test_outdated_one_is_not_in_force(calibrated, start, train, settings, tmp_path, client, olivia):
    address = f"/calibrations/{calibrated['id']}"
    body = {"reason": "it is measured here"}
    adopted = olivia.post(f"/api/v1{address}/adoption", body).json()
    assert (adopted["judges"], adopted["outdated"]) == (True, False)
    other = start(batch_sizes=[64], runs=8).json()
    train(chunks_of(other)[0])
    waits = "compare it and adopt it, or continue it with more runs"
    console = Console(client, olivia)
    assert waits in console.get("/console").text
    assert waits in console.get("/console/calibrations").text

    folder = tmp_path / "benchmarks"
    shutil.copytree(settings.benchmarks_dir, folder)
    digits = folder / "digits.toml"
    digits.write_text(digits.read_text() + "\n# Another.\n")
    settings.benchmarks_dir = folder
    with serving(settings) as later:
        assert later.get(f"/api/v1{address}").json()["outdated"]
        assert all(each["outdated"] for each in later.get(CALIBRATIONS).json()["calibrations"])
        page = words_of(later.get(address, headers=BROWSER).text)
        assert "For an earlier definition, so only earlier verdicts use it." in page
        assert "In force" not in page
        page = words_of(later.get("/calibrations", headers=BROWSER).text)
        assert ", for an earlier definition" in page
        assert "in force" not in page
        console = Console(later, olivia)
        assert other["id"] not in console.get("/console").text
        page = console.get(f"/console/calibrations/{other['id']}").text
        assert "needs its own calibration" in page
        assert waits not in page
