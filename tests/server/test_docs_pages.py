"""Documents, pages of convergence, paths back, and sentences on a board's score."""

import re
import statistics
import tomllib
from html.parser import HTMLParser

import pytest
from fastapi.testclient import TestClient

from finishline.rules.archive.definitions import shipped_texts
from server.app import create_app
from server.base.models import RunRow, Submission
from server.base.places import SOURCE
from tests.support.build import taken
from tests.support.pages import BROWSER

DOCS = SOURCE / "docs"


class Anchors(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.links = []
        self.ids = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def addresses():
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        yield f"/docs/{name}".removesuffix("/README")


def test_every_document_is_a_page_and_every_link_of_it_leads_somewhere(client):
    pages = {address: client.get(address, headers=BROWSER) for address in addresses()}
    read = {address: Anchors(page.text) for address, page in pages.items()}

    sources = {f"/docs/{path.relative_to(DOCS).as_posix()}" for path in DOCS.rglob("*.md")}
    assert len(pages) > 10
    for address, page in pages.items():
        assert page.status_code == 200, address
        assert len(set(read[address].ids)) == len(read[address].ids), address
        assert "style=" not in page.text, address
        for link in read[address].links:
            path, _, fragment = link.partition("#")
            if fragment:
                assert fragment in read[path or address].ids, f"{address} links to {link}"
            if link.startswith("/docs") and not path.startswith("/docs/images/"):
                assert path in (*pages, "/docs/api", *sources), f"{address} links to {link}"
            else:
                assert not path.endswith(".md"), f"{address} links to {link}"


def test_every_link_of_the_readme_leads_to_a_file_and_a_part_of_it(client):
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", (SOURCE / "README.md").read_text())

    assert len(links) > 15
    for link, part in links:
        assert (SOURCE / link).is_file(), link
        if part:
            page = client.get(f"/{link.removesuffix('.md')}", headers=BROWSER)
            assert part in Anchors(page.text).ids, f"{link}#{part}"


def test_the_indexes_lead_to_every_document_and_every_decision(client):
    def links(address):
        page = client.get(address, headers=BROWSER).text
        return set(Anchors(page[page.index("<article") : page.index("</article>")]).links)

    decisions = {each for each in addresses() if each.startswith("/docs/decisions/")}
    assert set(addresses()) - decisions - {"/docs"} <= links("/docs")
    assert decisions <= links("/docs/decisions")
    assert "/docs/decisions" in links("/docs")
    assert not decisions & links("/docs")


def test_the_documents_stand_below_their_headings_beside_each_page(client):
    page = client.get("/docs/rules", headers=BROWSER).text
    beside = page[page.index('<nav class="chapters"') :].split("</nav>")[0]

    assert set(addresses()) - {each for each in addresses() if "/decisions" in each} <= set(
        Anchors(beside).links
    )
    assert re.findall("<p>([^<]+)</p>", beside)[:2] == ["Read a board", "Submit"]


def test_a_document_is_there_as_it_was_written_and_an_image_is_asked_for_once(client):
    response = client.get("/docs/rules.md")
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert response.text == (DOCS / "rules.md").read_text()
    image = "/docs/images/leaderboard.png"
    response = client.get(image)
    assert response.headers["content-type"].startswith("image/png")
    known = {"If-None-Match": response.headers["etag"]}
    assert client.get(image, headers=known).status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "nothing", "../pyproject.toml", "%2e%2e/README.md", "..%2f..%2fREADME.md",
        "images/..%2frules.md", "images/nothing.png", "%00",
    ],
)  # fmt: skip
def test_nothing_but_documents_is_served(path, client):
    assert client.get(f"/docs/{path}", headers=BROWSER).status_code == 404


def test_a_server_without_its_documents_says_so(settings, tmp_path):
    bare = settings.model_copy(update={"docs_dir": tmp_path / "nothing"})
    with TestClient(create_app(bare, dispatch=False)) as client:
        page = client.get("/docs", headers=BROWSER)

        assert page.status_code == 404
        assert "FINISHLINE_DOCS_DIR" in page.text
        assert client.get("/docs/api").status_code == 200


def address(benchmark):
    return f"/api/v1/benchmarks/{benchmark}/convergence"


def test_points_of_mlperf_are_those_of_its_checker(client, offer_archive):
    offer_archive("mlperf-v5.1-llama31_405b")
    view = client.get(address("mlperf-v5.1-llama31_405b")).json()

    (point,) = [p for p in view["points"] if p["batch_size"] == 1152]
    # mlperf-logging 4.1.68 on the published packages of v5.1.
    assert point["mean"] == pytest.approx(313344.0)
    assert point["stdev"] == pytest.approx(10641.720161703182)
    assert point["lowest"] == pytest.approx(285344.1411244869)
    assert (view["judged"], view["unit"], view["submissions"]) == (True, "samples", [])
    assert {(p["batch_size"], p["mean"]) for p in view["points"] if not p["pruned"]} <= {
        (p["batch_size"], p["mean"]) for p in view["envelope"]
    }


def test_pruned_points_are_told_and_not_on_the_envelope(client, offer_archive):
    offer_archive("mlperf-v5.1-dlrm_dcnv2")
    view = client.get(address("mlperf-v5.1-dlrm_dcnv2")).json()

    pruned = [p["batch_size"] for p in view["points"] if p["pruned"]]
    assert pruned
    drawn = {p["batch_size"]: p["mean"] for p in view["envelope"]}
    for point in view["points"]:
        on_line = drawn.get(point["batch_size"]) == point["mean"]
        assert on_line is not point["pruned"], point


def test_points_of_digits_are_its_calibrated_runs(client, benchmarks_dir):
    view = client.get(address("digits")).json()

    runs = tomllib.loads((benchmarks_dir / "digits.toml").read_text())["reference_runs"]
    assert [p["batch_size"] for p in view["points"]] == [32, 64, 128]
    for point in view["points"]:
        curves = [r["quality"] for r in runs if r["batch_size"] == point["batch_size"]]
        hits = [[q >= 97.5 for q in curve] for curve in curves]
        epochs = sorted(hit.index(True) + 1 for hit in hits if True in hit)
        assert point["mean"] == pytest.approx(statistics.fmean(epochs[1:-1]))
        assert point["stdev"] == pytest.approx(statistics.pstdev(epochs))
        assert (point["lowest"], point["pruned"]) == (None, False)
    assert view["judged"] is False


def test_submission_stands_at_its_mean(client, digits_submission, submit, olivia, make_log):
    """The fastest and the slowest run are dropped where there are enough."""
    digits_submission.form = {"archive": "true"}
    digits_submission.claim["organisation"] = "ACME"
    for epochs, mean in (((8, 8, 8), 8.0), ((8, 7, 3), 7.0), ((8, 5), 6.5)):
        logs = {
            f"run_{n}.log": make_log(n, name=f"run_{n}.log", epochs=e) for n, e in enumerate(epochs)
        }
        digits_submission.claim["runs"], digits_submission.logs = list(logs), logs
        made = taken(submit(digits_submission, by=olivia))
        found = client.get(address("digits")).json()["submissions"]
        (place,) = [each for each in found if each["id"] == made["id"]]
        assert (place["submitter"], place["batch_size"], place["verdict"]) == ("ACME", 64, None)
        assert place["mean"] == pytest.approx(mean)
    logs["run_1.log"] = make_log(101, name="run_1.log", batch_size=32)
    made = taken(submit(digits_submission, by=olivia))

    view = client.get(address("digits")).json()
    assert (len(view["submissions"]), view["left_out"]) == (3, 1)
    other = client.get(address("cifar10")).json()
    assert (other["submissions"], other["left_out"]) == ([], 0)


def test_fast_passing_set_is_normalised(client, digits_submission, submit, database):
    made = submit(digits_submission).json()
    for verdict, factor, normalised in (
        ("pass", 1.0, False), ("pass", 1.0625, True), ("fail", 1.0625, False),
    ):  # fmt: skip
        rcp = {"verdict": verdict, "factor": factor, "submission_mean": 6.25}
        with database.write() as session:
            submission = session.get_one(Submission, made["id"])
            submission.result = submission.result | {"rcp": rcp}
        (place,) = client.get(address("digits")).json()["submissions"]
        shown = (place["verdict"], place["mean"], place["normalised"])
        assert shown == (verdict, 6.25, normalised)
    with database.write() as session:  # The claim's batch size counts where no log tells.
        session.query(RunRow).update({"batch_size": None})
        session.query(Submission).update({"hyperparameters": {"batch_size": 128}})
    (place,) = client.get(address("digits")).json()["submissions"]
    assert place["batch_size"] == 128


def test_a_benchmark_without_points_says_so(client):
    view = client.get(address("cifar10")).json()
    page = client.get("/benchmarks/cifar10/convergence")

    assert (view["points"], view["envelope"], view["judged"]) == ([], [], False)
    assert page.status_code == 200
    assert "has yet to measure how the reference" in page.text
    assert "data-chart" not in page.text
    assert 'id="points"' in page.text


def test_every_benchmark_answers(client, offer_archive):
    for benchmark_id in shipped_texts():
        offer_archive(benchmark_id)
    for benchmark in client.get("/api/v1/benchmarks").json()["benchmarks"]:
        assert client.get(address(benchmark["id"])).status_code == 200
        assert client.get(f"/benchmarks/{benchmark['id']}/convergence").status_code == 200
