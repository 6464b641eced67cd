"""A browser watches a replay from the queue to its verdict, over a restart of the server."""

import pytest

from tests.server.browser.conftest import serving
from tests.server.browser.test_every_page import sign_in
from tests.server.browser.test_scripts import becomes, draw_chart
from tests.support.processes import free_port

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
ROWS = "document.querySelectorAll('#evaluations tbody tr').length"
EVALUATING = "document.getElementById('so-far').textContent.includes('evaluating')"
DRAWN = "document.getElementById('chart').chart.figure.data.find(t => t.name === 'run 1').x"


def evaluations(first, last):
    """Events of the first run, from one evaluation to another."""
    return [
        {"sequence": 10 * j, "run": 0, "kind": "evaluation", "epoch": float(j), "seconds": 0.2 * j,
         "quality": QUALITIES[j - 1]}
        for j in range(first, last + 1)
    ]  # fmt: skip


@pytest.mark.parametrize("is_owner", [False, True], ids=["signed out", "the owner"])
def test_replay_is_watched_to_its_verdict(browser, client, replay, make_report, alice, is_owner):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, errors, port = context.new_page(), [], free_port()
    page.on("pageerror", lambda error: errors.append(str(error)))
    seeds = replay.seeds()
    with serving(client.app, port) as url:
        if is_owner:
            sign_in(page, url, alice.secret)
        page.goto(f"{url}/verifications/{replay.verification_id}")
        page.evaluate("window.isTheSamePage = true")
        draw_chart(page)
        assert "No worker is connected" in page.locator("[data-live=now]").inner_text()

        grant = replay.claim().json()
        assert replay.post(grant, evaluations(1, 3)).is_success
        becomes(page, ROWS, 3)
        phase = {"sequence": 31, "run": 0, "kind": "phase", "phase": "eval"}
        assert replay.post(grant, [phase]).is_success
        becomes(page, EVALUATING, True)
        becomes(page, "document.title", f"73\u00a0% · run 1/{len(seeds)}")
    page.wait_for_selector("#connection >> text=The connection was lost")
    assert page.evaluate(ROWS) == 3

    with serving(client.app, port):
        assert replay.post(grant, evaluations(4, 8)).is_success
        becomes(page, ROWS, 8)
        becomes(page, f"({DRAWN}).length", 8)  # The chart follows events, the table the server.
        assert page.evaluate(DRAWN) == pytest.approx([0.2 * j for j in range(1, 9)])
        assert page.locator("#announcer").text_content().startswith("Run 1, evaluation")
        assert replay.report(grant, make_report(seeds)).is_success
        page.wait_for_selector("text=agrees with the submitted logs.")
        becomes(page, ROWS, 8 * len(seeds))
        assert str(seeds[-1]) in page.locator("[data-live=runs]").inner_text()
        assert page.evaluate("window.isTheSamePage") is True
    context.close()
    assert not errors
