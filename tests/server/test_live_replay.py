"""A browser watches a replay from the queue to its verdict while the server dies and comes back."""

import os
import subprocess
import sys
from dataclasses import asdict, dataclass

import pytest

from server.base.database import Database
from server.base.models import Submission, Verification
from server.people.accounts import create_token
from tests.support.processes import asking, free_port, wait_for
from tests.support.streams import stream_report
from tests.support.workers import greet_as_servers, latest_attempt, send_to

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]


@dataclass
class LiveServer:
    """A server process on a database of its own, and somebody with a token of each role."""

    environment: dict[str, str]
    port: int
    database: Database
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(self.port)]
        self.process = subprocess.Popen(
            command,
            env=os.environ | self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(
            lambda: asking.get(f"{self.url}/api/v1/workers").status_code == 200,
            seconds=60,
            what="the server to answer",
        )

    def kill(self):
        """End it as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def headers(self, role):
        with self.database.write() as session:
            made = create_token(session, user_name=role, role=role, expires_in=None)
        return {"Authorization": f"Bearer {made.secret}"}

    def post(self, path, headers, **body):
        answer = asking.post(f"{self.url}/api/v1{path}", headers=headers, timeout=20, **body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


@pytest.fixture
def live_server(sqlite_url, tmp_path):
    """A running server without a worker and without a broker."""
    environment = {
        "FINISHLINE_DATABASE_URL": sqlite_url,
        "FINISHLINE_ARTIFACTS_DIR": str(tmp_path / "artifacts"),
        "FINISHLINE_BROKER_URL": f"redis+socket://{tmp_path}/nobody",
    }
    server = LiveServer(environment, free_port(), Database(sqlite_url))
    server.start()
    yield server
    server.kill()
    server.database.close()


class FakeWorker:
    """Posts what a worker would, without a training."""

    def __init__(self, server, system):
        self._server = server
        self._token = server.headers("worker")
        self._grant = {}
        self._system = system

    def claim(self, attempt_id):
        hello = {"system": asdict(self._system), "state": "idle"}
        self._server.post("/workers/hello", self._token, json=hello)
        asked = {
            "worker": self._system.worker,
            "hardware_class": self._system.hardware_class,
        }
        send_to(self._server.database, attempt_id, self._system.worker)
        self._grant = self._server.post(f"/attempts/{attempt_id}/claim", self._token, json=asked)

    def post_evaluations(self, first, last):
        """Tell the evaluations of the first run from one to another (both from 1)."""
        events = [
            {
                "sequence": 10 * j,
                "run": 0,
                "kind": "evaluation",
                "epoch": float(j),
                "seconds": 0.2 * j,
                "quality": QUALITIES[j - 1],
            }
            for j in range(first, last + 1)
        ]
        self._post("evaluations", {"events": events})

    def post_phase(self, phase, *, sequence):
        """Tell that the first run has come to a phase."""
        event = {"sequence": sequence, "run": 0, "kind": "phase", "phase": phase}
        self._post("evaluations", {"events": [event]})

    def report(self, report):
        stream_report(self._server.database, self._grant["attempt_id"], report)
        self._post("report", asdict(report))

    def _post(self, what, body):
        grant = self._grant
        headers = {
            "Authorization": f"Bearer {grant['token']}",
            "Finishline-Fence": str(grant["fence"]),
        }
        self._server.post(f"/attempts/{grant['attempt_id']}/{what}", headers, json=body)


@pytest.fixture
def tab(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


# What is said of the connection goes again after some seconds, so all of it is written down.
WRITE_DOWN_WHAT_IS_SAID = """() => {
 const place = document.getElementById('connection');
 window.said = [];
 new MutationObserver(() => said.push(place.textContent)).observe(place, {childList: true});
}"""


def texts(tab, selector):
    return [text.replace("\u00a0", " ") for text in tab.locator(selector).all_inner_texts()]


def seeds_of(server, verification):
    """The sealed seeds of a verification, one for each run."""
    with server.database.read() as session:
        return list(session.get_one(Verification, verification["id"]).seeds)


def test_a_replay_is_watched_to_its_verdict_over_a_restart(
    live_server, digits_submission, make_report, tab
):
    def shows(expression, expected):
        wait_for(lambda: tab.evaluate(expression) == expected, seconds=30, what=expression)

    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    submission = live_server.post(
        "/submissions", live_server.headers("submitter"), files=digits_submission.files()
    )
    verification = live_server.post(
        f"/submissions/{submission['id']}/verifications", live_server.headers("organiser")
    )
    with live_server.database.write() as session:
        # Nobody is heard of while the server is away, however long it takes to come back.
        session.get_one(Verification, verification["id"]).lease_seconds = 600.0
        # The claim's curve is beside the replay's, which others see after a verdict alone.
        session.get_one(Submission, submission["id"]).revealed_at = None
    worker = FakeWorker(live_server, make_report([]).system)

    tab.goto(f"{live_server.url}/verifications/{verification['id']}")
    tab.evaluate("window.isTheSamePage = true")
    tab.evaluate(WRITE_DOWN_WHAT_IS_SAID)
    tab.locator("#chart").scroll_into_view_if_needed()
    tab.wait_for_selector("#chart .main-svg", timeout=30_000)
    words = tab.locator("[data-live=waiting]").inner_text()
    assert "No worker is connected" in tab.locator("[data-live=now]").inner_text()
    assert "no worker that could take it is connected" in words

    worker.claim(latest_attempt(live_server.database, verification["id"]))
    worker.post_evaluations(1, 3)
    rows = "document.querySelectorAll('#evaluation-rows tr').length"
    shows(rows, 3)
    tab.wait_for_selector("text=on walter-1.")
    shows("document.querySelector('[data-live=waiting]').textContent.trim()", "")

    worker.post_phase("eval", sequence=31)
    status = "document.querySelector('#run-rows tr').cells[5].textContent"
    shows(status, "evaluating")
    worker.post_phase("train", sequence=32)
    shows(status, "training")
    shows("document.title", "73\u00a0% · run 1/" + str(len(seeds_of(live_server, verification))))
    assert "run 1 of" in tab.locator("#so-far").inner_text()

    live_server.kill()
    tab.wait_for_selector("#connection >> text=The connection was lost")
    assert tab.evaluate(rows) == 3
    live_server.start()
    worker.post_evaluations(4, 8)
    shows(rows, 8)
    shows("said.some(words => words.startsWith('The connection is back'))", True)
    seen = texts(tab, "#split-rows tr td:nth-child(3)")[:8]
    assert [text.split(" s")[0] for text in seen] == [f"{0.2 * j:.3f}" for j in range(1, 9)]
    # The claim's median run takes 118 ms for each epoch with its evaluation.
    assert [text.split("s ")[1].split(" s")[0] for text in seen][7] == "+0.66"
    assert tab.locator("#announcer").text_content().startswith("Run 1, evaluation")
    drawn = "document.getElementById('chart').chart.figure.data.find(t => t.name === 'run 1').x"
    assert tab.evaluate(drawn) == pytest.approx([0.2 * j for j in range(1, 9)])

    seeds = seeds_of(live_server, verification)
    greet_as_servers(live_server.database, "walter-1")
    worker.report(make_report(seeds))
    tab.wait_for_selector("text=supports the claim.")
    shows(rows, 8 * len(seeds))
    assert str(seeds[-1]) in tab.locator("[data-live=runs]").inner_text()
    assert tab.evaluate("window.isTheSamePage") is True
    assert errors == []
