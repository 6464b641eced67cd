"""Calibrations: asked for, made chunk by chunk, continued, adopted, and their pages."""

import shutil
from dataclasses import replace
from functools import partial
from statistics import fmean

import pytest
from fastapi.testclient import TestClient

from finishline.rules.measurements import PrecisionAudit
from finishline.rules.proof.check import check_proof
from finishline.rules.verification.messages import Failure
from server.app import create_app
from server.base.models import Verification
from tests.support.build import Replay, seal_of
from tests.support.pages import BROWSER, words_of
from tests.support.proofs import predicate_in
from tests.support.streams import stream_report

CALIBRATIONS = "/api/v1/calibrations"
BODY = {"benchmark": "digits", "batch_sizes": [64, 32], "runs": 12, "reason": "new torch"}
CURVE = [14.0, 45.0, 73.0, 85.0, 91.0, 95.5, 97.4, 98.1, 98.3]


@pytest.fixture
def start(client, olivia):
    """Asks for a calibration as an organiser."""

    def ask(**changes):
        return client.post(CALIBRATIONS, json=BODY | changes, headers=olivia.headers)

    return ask


@pytest.fixture
def post(client, olivia):
    """Posts to a calibration as an organiser."""

    def send(calibration_id, step, body=None):
        address = f"{CALIBRATIONS}/{calibration_id}/{step}"
        return client.post(address, json=body, headers=olivia.headers)

    return send


@pytest.fixture
def chunk_of(client, database, walter):
    """A chunk, whose latest attempt a worker may claim."""
    return partial(Replay, client, database, walter, None)


@pytest.fixture
def train(database, chunk_of, make_report):
    """Makes the latest attempt of a chunk as a worker does, or fails it."""

    def make(chunk_id, *, failure=None, curve=CURVE, touched=None):
        chunk = chunk_of(chunk_id)
        grant = chunk.claim().json()
        report = make_report(chunk.seeds(), qualities=curve)
        report = replace(report, runs=[_to_its_end(run) for run in report.runs])
        if failure is not None:
            report = replace(report, runs=[], failure=failure)
        if touched is not None:
            report = replace(report, precision=PrecisionAudit(touched, {touched: 9}, False))
        stream_report(database, grant["attempt_id"], report)
        return chunk.post_report(grant, report)

    return make


def _to_its_end(run):
    """A run whose seed moves its curve a little, and which reached at its eighth evaluation."""
    shift = (run.seed % 7) * 0.05
    evaluations = [replace(e, quality=e.quality + shift) for e in run.evaluations]
    at_target = next((e.seconds for e in evaluations if e.quality >= 97.5), None)
    status = "not_reached" if at_target is None else "reached"
    return replace(run, evaluations=evaluations, status=status, tta_seconds=at_target)


@pytest.fixture
def calibrated(start, train):
    """A calibration whose every run was made."""
    view = start().json()
    for chunk in view["chunks"]:
        assert train(chunk["verification_id"]).status_code == 200
    return view


def get(client, calibration_id, part=""):
    return client.get(f"{CALIBRATIONS}/{calibration_id}{part}").json()


def test_an_organiser_starts_one_and_it_is_planned_in_chunks(start, client):
    answer = start()

    assert answer.status_code == 201, answer.text
    view = answer.json()
    assert (view["benchmark"], view["version"], view["state"]) == ("digits", 1, "running")
    assert (view["batch_sizes"], view["runs"], view["runs_planned"]) == ([32, 64], 12, 24)
    assert (view["reason"], view["requested_by"]) == ("new torch", "olivia")
    assert [(c["batch_size"], c["runs"], c["state"]) for c in view["chunks"]] == [
        (32, 6, "queued"),
        (32, 6, "queued"),
        (64, 6, "queued"),
        (64, 6, "queued"),
    ]
    chunk = client.get(f"/api/v1/verifications/{view['chunks'][0]['verification_id']}").json()
    assert (chunk["kind"], chunk["calibration_id"]) == ("calibration", view["id"])
    assert (chunk["submission_id"], chunk["seeds"]) == (None, None)
    assert get(client, view["id"]) == view
    assert start().json()["version"] == 2


def test_what_a_chunk_was_sealed_with_can_be_checked_at_its_end(calibrated, client):
    chunk_id = calibrated["chunks"][0]["verification_id"]
    chunk = client.get(f"/api/v1/verifications/{chunk_id}").json()
    settings = [{"batch_size": 32.0}] * 6
    sealed = {
        "benchmark_sha256": calibrated["benchmark_sha256"], "calibration": calibrated["id"],
        "hyperparameters": settings, "kind": "calibration", "runs": 6, "submission": None,
    }  # fmt: skip
    opened = {"nonce": chunk["nonce"], "seeds": chunk["seeds"]}
    assert seal_of(**sealed, **opened) == chunk["seal"]
    assert chunk["hyperparameters"] == settings


def test_its_runs_are_kept_and_counted_as_chunks_end(start, train, client):
    view = start().json()
    train(view["chunks"][0]["verification_id"])
    half = get(client, view["id"])
    assert (half["state"], half["runs_finished"]) == ("running", 6)
    assert [size["finished"] for size in half["sizes"]] == [6, 0]
    for chunk in view["chunks"][1:]:
        train(chunk["verification_id"])

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
    assert [len(run["quality"]) for run in runs] == [9] * 24
    assert all(len(run["seconds"]) == 9 for run in runs)
    assert {run["system"]["software"]["torch"] for run in runs} == {"2.13.0"}
    chunks = {c["verification_id"] for c in view["chunks"]}
    assert {run["verification_id"] for run in runs} == chunks


def test_runs_under_way_are_seen_before_they_are_reported(start, chunk_of, client):
    view = start().json()
    chunk = chunk_of(view["chunks"][0]["verification_id"])
    event = {"sequence": 0, "run": 4, "kind": "evaluation", "quality": 50.0, "epoch": 1.0}
    chunk.post(chunk.claim().json(), [event])

    sizes = get(client, view["id"])["sizes"]
    assert [(s["finished"], s["under_way"]) for s in sizes] == [(0, 4), (0, 0)]


def test_a_chunk_trains_to_the_end(start, chunk_of):
    chunk = chunk_of(start(batch_sizes=[32], runs=2).json()["chunks"][0]["verification_id"])
    job = chunk.claim().json()["job"]
    assert (job["purpose"], job["submission_id"]) == ("calibration", None)
    assert [training["stop_at"] for training in job["trainings"]] == ["end"] * 2
    settings = [training["settings"] for training in job["trainings"]]
    assert [(each["batch_size"], each["momentum"]) for each in settings] == [(32.0, 0.9)] * 2
    assert (job["control_points"], job["division"]) == ([], "closed")


def test_a_chunk_judges_nobody(start, train, client):
    chunk = start(batch_sizes=[32], runs=2).json()["chunks"][0]["verification_id"]
    address = f"/verifications/{chunk}"
    assert client.get(f"/api/v1{address}").json()["hyperparameters"] is None
    assert "The reference is trained to its end" in client.get(address).text
    assert "· calibration</small>" in client.get("/").text
    answer = train(chunk).json()
    assert (answer["state"], answer["outcome"]) == ("done", None)
    assert "The reference was measured in 2 runs." in client.get(address).text
    assert client.get(f"{address}/charts/replay.json").status_code == 200
    assert address not in client.get("/").text  # It gives no verdict about anybody.
    (listed,) = client.get("/api/v1/verifications").json()["verifications"]
    assert (listed["kind"], listed["submission_id"]) == ("calibration", None)
    assert "event: end" in client.get(f"/api/v1{address}/events").text


RULES_FAILURE = Failure("rules", "data_set_differs", "another data set", "install the right one")


def test_a_failed_chunk_loses_no_finished_one_and_is_made_up_for(start, post, train, client):
    view = start().json()
    answer = train(view["chunks"][0]["verification_id"], failure=RULES_FAILURE).json()
    assert (answer["state"], answer["outcome"]) == ("failed", None)
    for chunk in view["chunks"][1:]:
        train(chunk["verification_id"])
    failed = get(client, view["id"])
    assert (failed["state"], failed["runs_finished"]) == ("incomplete", 18)
    assert [c["state"] for c in failed["chunks"]] == ["failed", "done", "done", "done"]
    why = [c["why"] for c in failed["chunks"]]
    assert (RULES_FAILURE.message in why[0], why[1:]) == (True, [None] * 3)

    went_on = post(view["id"], "continuation").json()
    assert went_on["state"] == "running"
    assert [(c["batch_size"], c["runs"]) for c in went_on["chunks"][4:]] == [(32, 6)]
    train(went_on["chunks"][4]["verification_id"])
    assert get(client, view["id"])["state"] == "done"


def test_a_run_that_diverged_counts_but_has_no_curve_to_judge_by(start, train, client):
    view = start(batch_sizes=[64], runs=2).json()
    train(view["chunks"][0]["verification_id"], curve=[10.0, 20.0])

    ended = get(client, view["id"])
    (size,) = ended["sizes"]
    assert ended["state"] == "done"
    assert (size["finished"], size["reached"], size["mean"]) == (2, 0, None)


def test_more_runs_and_more_batch_sizes_are_added(calibrated, post):
    view = post(calibrated["id"], "continuation", {"runs": 14, "batch_sizes": [128]}).json()

    assert (view["batch_sizes"], view["runs"]) == ([32, 64, 128], 14)
    added = [(c["batch_size"], c["runs"]) for c in view["chunks"][4:]]
    assert added == [(32, 2), (64, 2), (128, 7), (128, 7)]
    assert post(calibrated["id"], "continuation", {"runs": 14}).status_code == 409


def test_a_cancelled_one_keeps_what_is_finished(start, post, train, client):
    view = start().json()
    train(view["chunks"][0]["verification_id"])
    cancelled = post(view["id"], "cancellation").json()

    assert (cancelled["state"], cancelled["runs_finished"]) == ("cancelled", 6)
    assert [c["state"] for c in cancelled["chunks"]] == ["done", *["cancelled"] * 3]
    assert post(view["id"], "cancellation").status_code == 409
    went_on = post(view["id"], "continuation").json()
    assert sum(c["runs"] for c in went_on["chunks"] if c["state"] == "queued") == 18


def test_once_adopted_it_judges_what_is_planned_afterwards_and_nothing_before(
    calibrated, post, replay, client, olivia, make_report
):
    before = replay.view()
    view = post(calibrated["id"], "adoption", {"reason": "torch 2.13"})
    assert view.status_code == 200, view.text
    assert (view.json()["judges"], view.json()["adopted_by"]) == (True, "olivia")
    assert view.json()["adopted_because"] == "torch 2.13"

    assert replay.view()["control_points"] == before["control_points"]
    assert before["calibration_id"] is None
    first = replay.report(replay.claim().json(), make_report(replay.seeds())).json()
    assert first["outcome"] == "verified"
    assert _reference_runs(replay.view()) == 40 + before["runs_planned"]

    replay.ask_again(olivia)
    planned = replay.view()
    assert planned["calibration_id"] == calibrated["id"]
    # The calibration's runs have nine evaluations each, those of the file twenty.
    assert len(planned["control_points"]) == 9
    replay.report(replay.claim().json(), make_report(replay.seeds()))
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


def test_an_adopted_one_changes_no_more_and_the_last_adopted_judges(
    calibrated, start, post, train, client
):
    reason = {"reason": "first"}
    for body in (None, {}, {"reason": ""}):
        assert post(calibrated["id"], "adoption", body).status_code == 422
    assert post(calibrated["id"], "adoption", reason).status_code == 200
    assert post(calibrated["id"], "adoption", reason).status_code == 409
    assert post(calibrated["id"], "continuation", {"runs": 100}).status_code == 409

    later = start(batch_sizes=[64], runs=8).json()
    train(later["chunks"][0]["verification_id"])
    assert get(client, later["id"])["judges"] is False
    assert post(later["id"], "adoption", {"reason": "second"}).json()["judges"] is True
    assert get(client, calibrated["id"])["judges"] is False


def test_a_precision_has_a_calibration_and_a_band_of_its_own(
    calibrated,
    start,
    post,
    train,
    replay,
    client,
    database,
    olivia,
    make_report,
    digits_submission,
    submit,
):
    digits_submission.claim |= {"precision": "bf16", "notes": "mixed precision"}
    replay.submission_id = submit(digits_submission).json()["id"]
    verify = f"/api/v1/submissions/{replay.submission_id}/verifications"
    post(calibrated["id"], "adoption", {"reason": "of fp32"})
    refused = client.post(verify, headers=olivia.headers)
    assert refused.status_code == 422
    assert "`finishline benchmark calibrate digits --precision bf16 " in refused.json()["detail"]

    unknown = start(precision="fp64")
    assert (unknown.status_code, "fp32 or tf32 or bf16" in unknown.text) == (422, True)
    narrow = start(precision="bf16", batch_sizes=[64], runs=8).json()
    assert (calibrated["precision"], narrow["precision"]) == ("fp32", "bf16")
    chunk = narrow["chunks"][0]["verification_id"]
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
    replay.report(replay.claim().json(), make_report(replay.seeds(), qualities=late))
    address = f"/api/v1/verifications/{replay.verification_id}/proof?format=dsse"
    proof = predicate_in(client.get(address))
    passed = {check.name for check in check_proof(proof, None) if check.result == "pass"}
    assert {"seal", "seeds", "calibration", "band", "verdict"} <= passed


def test_an_adopted_one_stands_beside_the_points_of_the_file(calibrated, post, client):
    address = "/benchmarks/digits/convergence"
    before = client.get(f"/api/v1{address}").json()
    assert before["calibration"] is None

    assert post(calibrated["id"], "adoption", {"reason": "measured"}).status_code == 200
    after = client.get(f"/api/v1{address}").json()
    assert after["points"] == before["points"]
    assert after["calibration"]["id"] == calibrated["id"]
    epochs = {s["batch_size"]: sorted(s["epochs"]) for s in get(client, calibrated["id"])["sizes"]}
    drawn = {p["batch_size"]: p["mean"] for p in after["calibration"]["points"]}
    # As everywhere, the fastest and the slowest run are dropped.
    assert drawn == pytest.approx({size: fmean(runs[1:-1]) for size, runs in epochs.items()})
    assert "calibration 1, adopted" in client.get(address).text


def test_one_that_is_under_way_or_too_small_cannot_be_adopted(start, post, train):
    view = start(batch_sizes=[64], runs=5).json()
    assert post(view["id"], "adoption", {"reason": "x"}).status_code == 409
    train(view["chunks"][0]["verification_id"])

    small = post(view["id"], "adoption", {"reason": "x"})
    assert small.status_code == 409
    assert "batch size 64 has 5 runs of at least 6" in small.json()["detail"]


def test_two_are_compared_and_one_with_the_file(calibrated, start, train, client):
    later = start(batch_sizes=[64, 128], runs=8).json()
    for chunk in later["chunks"]:
        train(chunk["verification_id"], curve=[quality - 0.6 for quality in CURVE])
    path = f"/compare?with={later['id']}"
    (size,) = get(client, calibrated["id"], path)["sizes"]

    assert size["batch_size"] == 64
    assert (size["first"]["runs"], size["second"]["runs"]) == (12, 8)
    assert size["difference"] == pytest.approx(size["first"]["mean"] - size["second"]["mean"])
    assert 0.4 < size["band"][0]["mean_difference"] < 0.8
    with_file = get(client, calibrated["id"], "/compare")
    assert (with_file["second"], [s["batch_size"] for s in with_file["sizes"]]) == (None, [32, 64])
    assert with_file["sizes"][0]["second"]["runs"] == 40


def test_the_list_is_newest_first_and_by_benchmark(calibrated, start, client):
    later = start().json()
    listed = client.get(CALIBRATIONS).json()["calibrations"]

    assert [item["id"] for item in listed] == [later["id"], calibrated["id"]]
    assert [item["runs_finished"] for item in listed] == [0, 24]
    assert client.get(CALIBRATIONS, params={"benchmark": "cifar10"}).json()["calibrations"] == []
    assert len(client.get(CALIBRATIONS, params={"limit": 1}).json()["calibrations"]) == 1
    assert client.get(CALIBRATIONS, params={"limit": 0}).status_code == 422


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


def test_a_calibration_of_an_earlier_definition_is_in_force_nowhere(
    calibrated, client, settings, tmp_path, olivia
):
    address = f"/calibrations/{calibrated['id']}"
    body = {"reason": "it is measured here"}
    adopted = client.post(f"/api/v1{address}/adoption", json=body, headers=olivia.headers).json()
    assert (adopted["judges"], adopted["outdated"]) == (True, False)

    folder = tmp_path / "benchmarks"
    shutil.copytree(settings.benchmarks_dir, folder)
    digits = folder / "digits.toml"
    digits.write_text(digits.read_text() + "\n# Another.\n")
    settings.benchmarks_dir = folder
    with TestClient(create_app(settings, dispatch=False)) as later:
        assert later.get(f"/api/v1{address}").json()["outdated"]
        [listed] = later.get("/api/v1/calibrations").json()["calibrations"]
        assert listed["outdated"]
        page = words_of(later.get(address, headers=BROWSER).text)
        assert "For an earlier definition, so only earlier verdicts use it." in page
        assert "In force" not in page
        page = words_of(later.get("/calibrations", headers=BROWSER).text)
        assert ", for an earlier definition" in page
        assert "in force" not in page


def test_calibrations_are_listed_by_benchmark_with_their_state(calibrated, client):
    page = client.get("/calibrations?benchmark=digits", headers=BROWSER).text
    words = words_of(page)

    assert f'href="/calibrations/{calibrated["id"]}"' in page
    assert "1 ● done 32, 64 fp32 24 of 24 not adopted" in words
    none = words_of(client.get("/calibrations?benchmark=cifar10", headers=BROWSER).text)
    assert "finishline benchmark calibrate cifar10" in none
