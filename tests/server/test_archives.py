"""Archives: what was published elsewhere is stored with the rules it breaks."""

import json

import pytest

from server.base.settings import MIB
from server.benchmarks.endpoints import count_submissions
from tests.support.boards import rows_of
from tests.support.build import CURVE, send_entry, taken
from tests.support.pages import words_of
from tests.support.run_logs import SubmissionParts

SUBMISSIONS = "/api/v1/submissions"
ARCHIVE = {"archive": "true"}


@pytest.fixture
def settings(settings):
    """Limits that whole packages fit into."""
    limits = {"max_log_bytes": 8 * MIB, "max_request_bytes": 64 * MIB, "max_log_files": 100}
    return settings.model_copy(update=limits)


@pytest.fixture
def archived(digits_submission):
    digits_submission.form = dict(ARCHIVE)
    digits_submission.claim |= {"organisation": "Ex & Co <b>", "submitted_on": "2018-04-20"}
    digits_submission.logs["run_1.log"] = digits_submission.logs["run_1.log"].replace(
        b'"key":"seed","value":101', b'"key":"seed","value":100'
    )
    assert digits_submission.logs["run_1.log"].count(b'"value":100,') == 1
    return digits_submission


def test_archive_that_breaks_a_rule_is_stored_unranked(archived, submit, olivia, client):
    view = taken(submit(archived, by=olivia))

    assert view["result"]["eligible"] is False
    assert [v["code"] for v in view["result"]["violations"]] == ["same_seed"]
    assert view["result"]["tta_seconds"] is not None
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    told = "breaks a rule: seed 100 is also the seed of run_0.log"
    assert (entry["rank"], entry["unranked_reason"]) == (None, told)
    page = client.get(f"/submissions/{view['id']}").text
    assert "seed 100 is also the seed of run_0.log" in page
    # An organisation stands for the submitter, with its date.
    for shown in (view, entry):
        assert (shown["submitter"], shown["submitted_on"]) == ("Ex & Co <b>", "2018-04-20")
    assert view["archive"] is True
    for text in (page, client.get("/benchmarks/digits").text):
        assert "Ex &amp; Co &lt;b&gt;" in text
        assert "2018-04-20" in text
    # Without the field `archive` it is refused.
    archived.form = {}
    assert "organisation" in submit(archived, by=olivia).json()["detail"]
    for name in ("organisation", "submitted_on"):
        del archived.claim[name]
    assert "seed 100 is also" in submit(archived, by=olivia).json()["detail"]


def test_a_log_that_contradicts_the_claim_is_a_violation(archived, submit, olivia, make_log):
    archived.logs["run_1.log"] = make_log(101, name="run_1.log", division="open", batch_size=32)
    view = submit(archived, by=olivia).json()

    assert {v["code"] for v in view["result"]["violations"]} == {
        "division_contradicts_claim",
        "batch_size_contradicts_claim",
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"submitted_on": "20.4.2018"}, "submitted_on"),
        ({"submitted_on": "2018-02-30"}, "submitted_on"),
        ({"organisation": "x" * 201}, "organisation"),
        ({"organisation": 7}, "organisation"),
        ({}, "archive"),
    ],
)
def test_a_bad_origin_is_422(change, field, archived, submit, olivia):
    archived.claim |= change
    if field == "archive":
        archived.form = {"archive": "yes"}
    response = submit(archived, by=olivia)

    assert response.status_code == 422
    assert [problem["field"] for problem in response.json()["problems"]] == [field]


def test_a_run_that_was_never_evaluated_did_not_reach_the_target(archived, submit, olivia, client):
    lines = archived.logs["run_2.log"].splitlines(keepends=True)
    kept = [x for x in lines if b'"eval_' not in x and b'"run_stop"' not in x]
    archived.logs["run_2.log"] = b"".join(kept)
    view = taken(submit(archived, by=olivia))

    run = view["runs"][2]
    assert (run["reached"], run["tta_seconds"], run["best_quality"]) == (False, None, None)
    assert (view["result"]["reached"], view["result"]["started"]) == (2, 3)
    assert client.get(f"{SUBMISSIONS}/{view['id']}/runs/2/curve").json()["evaluations"] == []
    for query in ("", "?tab=runs"):
        assert client.get(f"/submissions/{view['id']}{query}").status_code == 200


def test_an_unreadable_log_is_refused_from_an_archive_too(archived, submit, olivia, row_counts):
    archived.logs["run_2.log"] = b":::MLLOG no log at all\n"
    response = submit(archived, by=olivia)

    assert response.status_code == 422
    assert response.json()["problems"][0]["file"] == "run_2.log"
    assert row_counts()["submissions"] == 0


def test_packages_of_v5_1_get_their_published_figures_and_order(archives, client, olivia):
    groups = json.loads((archives / "mlperf/expected_v51.json").read_text())["groups"]
    for group in groups:
        if group["benchmark"] != "llama31_405b":
            continue
        place = f"{group['org']}/results/{group['system']}/{group['benchmark']}"
        folder = archives / "mlperf/v5.1" / place
        logs = {path.name: path.read_bytes() for path in sorted(folder.glob("result_*.txt"))}
        system = {"name": group["system"], "hardware_class": "mlperf", "processor": "not stated"}
        claim = {
            "benchmark": "mlperf-v5.1-llama31_405b", "division": "closed", "model": "llama31_405b",
            "framework": "not stated", "system": system, "runs": list(logs),
            "organisation": group["org"], "submitted_on": "2025-11-12",
        }  # fmt: skip
        parts = SubmissionParts(claim, logs)
        result = taken(olivia.post(SUBMISSIONS, data=ARCHIVE, files=parts.files()))["result"]
        factor = max(1.0, group["rcp"]["pruned_rcps"]["norm_factor"])
        assert result["eligible"], (folder, result["violations"])
        assert result["raw_tta_seconds"] == pytest.approx(group["olympic_unscaled_min"] * 60)
        assert result["tta_seconds"] == pytest.approx(result["raw_tta_seconds"] * factor)
        assert result["rcp"]["normalised"] is (factor > 1)

    address = "/api/v1/leaderboards/mlperf-v5.1-llama31_405b"
    board = rows_of(client.get(address).json())
    assert rows_of(client.get(f"{address}?round=archive").json()) == board
    assert rows_of(client.get(f"{address}?round=open").json()) == []
    fastest = [entry["submitter"] for entry in board]
    assert fastest == ["NVIDIA", "Nebius", "University-of-Florida"]
    page = client.get("/benchmarks/mlperf-v5.1-llama31_405b").text
    assert page.count('title="normalised') == 2
    assert "MLPerf is a trademark of MLCommons" in page
    page = words_of(client.get(f"/submissions/{board[1]['submission_id']}?tab=scoring").text)
    for words in ("normalised × 1.1333", "209.65 min", "237.61 min"):
        assert words in page


DAWNBENCH_COMMIT = "fb27b827bd83eff9021698ffe576b33a100e0b78"


def archive_entry(client, by, **form):
    """Send an entry of 720 seconds as a published result."""
    curve = CURVE.replace("0.05", "0.2").replace("0.075", "0.3")
    return send_entry(client, by, curve=curve, key="entry", **{"archive": "true"} | form)


def test_a_known_commit_is_the_source_of_a_published_result(client, database, olivia):
    view = archive_entry(client, olivia, source_commit=DAWNBENCH_COMMIT).json()

    assert view["evidence"] == "published"
    assert view["source"] == {
        "name": "DAWNBench",
        "url": "https://github.com/stanford-futuredata/dawn-bench-entries",
        "commit": DAWNBENCH_COMMIT,
    }
    with database.read() as session:  # The slowest is counted with the fastest claim.
        counts = count_submissions(session, ["cifar10"])["cifar10"]
    assert counts.slowest_published == {"open": 720.0}
    assert view["result"]["tta_seconds"] == 720.0
    here = f"/submissions/{view['id']}"
    for address in (
        "/", "/benchmarks/cifar10", "/feed.atom", here, f"{here}/badge.svg",
        "/benchmarks/cifar10/charts/pareto",
    ):  # fmt: skip
        page = client.get(address).text.replace("\u00a0", " ")
        assert ("12.00 min" in page, "0:12:00" in page) == (True, False), address


def test_importing_again_with_the_commit_names_the_source(client, olivia):
    for form in ({}, {"source_commit": "0" * 40}):
        first = archive_entry(client, olivia, **form).json()
        assert (first["evidence"], first["source"]) == ("published", None)
    again = archive_entry(client, olivia, source_commit=DAWNBENCH_COMMIT)

    assert again.headers["Idempotent-Replayed"] == "true"
    assert (again.json()["id"], again.json()["source"]["name"]) == (first["id"], "DAWNBench")
    assert olivia.get("/api/v1/audit").json()["records"][0]["action"] == "archive.source"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"source_commit": "fb27b82"}, "the 40 hex digits of a commit"),
        ({"source_commit": DAWNBENCH_COMMIT, "archive": "false"}, "the commit of an archive"),
    ],
)
def test_a_commit_is_whole_and_of_an_archive(client, olivia, form, expected):
    answer = archive_entry(client, olivia, **form)

    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert (problem["field"], problem["expected"]) == ("source_commit", expected)


def test_published_results_are_numbered_apart_from_those_of_this_server(client, olivia, alice):
    board, page = "/api/v1/leaderboards/cifar10", "/benchmarks/cifar10"
    published = archive_entry(client, olivia, source_commit=DAWNBENCH_COMMIT).json()["id"]

    def ranks(address):
        found = client.get(address).json()
        return {found["round"]: {e["submission_id"]: e["rank"] for e in rows_of(found)}}

    assert ranks(board) == {"archive": {published: 1}}
    own = send_entry(client, alice, curve=CURVE.replace("0.05", "0.06")).json()["id"]

    assert ranks(f"{board}?round=open") == {"open": {own: None}}
    assert ranks(board) == ranks(f"{board}?round=archive") == {"archive": {published: 1}}
    for one, shown, rank in (
        (own, f"{page}?round=open", None),
        (published, f"{page}?round=archive", 1),
    ):
        view = client.get(f"{SUBMISSIONS}/{one}").json()
        assert view["rank"] == rank
        text = client.get(shown).text
        assert one in text
        assert ({own, published} - {one}).pop() not in text
    badge = client.get(f"/submissions/{published}/badge.svg").text
    assert "published · 12.00 min · #1 of 1" in badge
    # The list shows what people sent here first, and archives with their day and place.
    here, archives = (client.get(f"/submissions{query}").text for query in ("", "?source=archives"))
    assert [one in here for one in (own, published)] == [True, False]
    assert [one in archives for one in (own, published)] == [False, True]
    assert "Sent here 1" in words_of(here)
    assert "Published archives 1" in words_of(here)
    assert "#1 of 1 on" in words_of(archives)
    # Both rounds stand on the first page; each has a page of its own.
    home, names = client.get("/?round=all").text, ("/rounds/open", "/rounds/dawnbench")
    assert all(f'href="{name}"' in home for name in names)
    assert [[one in client.get(name).text for one in (own, published)] for name in names] == [
        [True, False],
        [False, True],
    ]


def test_set_of_an_earlier_release_is_there_already(archived, submit, olivia):
    first = submit(archived, by=olivia).json()["id"]
    archived.claim["system"] |= {"availability": "Available cloud"}
    again = submit(archived, by=olivia, key="of the later release")
    assert (again.json()["id"], again.headers["Idempotent-Replayed"]) == (first, "true")

    archived.claim["system"] |= {"processor": "Another"}
    assert submit(archived, by=olivia, as_is=True).json()["id"] != first
